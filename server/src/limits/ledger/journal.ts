/**
 * The way of a settled request into the books: one journal line each, applied in batches, each batch once. The journal and
 * its shipper are those of log records (`store/disk/`); this is what stands where their log store does.
 */
import type { Clock } from '../../kernel/clock.ts';
import type { JournalPosition, SystemTx, Tables } from '../../store/ports.ts';
import { Book, type Settled } from './book.ts';

/** The part of a journal that settling needs (`store/disk/journal.ts`). */
export interface SettlementJournal {
  append(line: string, done: () => void): void;
  /** True while it cannot be written: nothing more may be admitted under a budget. */
  readonly failing: boolean;
}

export interface SettlementLine extends Settled {
  readonly bucket: string;
}

export function lineOf(line: SettlementLine): string {
  const { bucket, window, lease, reserved, used, carry, requests, unpriced, giveBack } = line;
  return JSON.stringify([bucket, window, lease, reserved, used, carry, requests, unpriced, giveBack ? 1 : 0]);
}

function parseLine(text: string): SettlementLine {
  const [bucket, window, lease, reserved, used, carry, requests, unpriced, giveBack] = JSON.parse(text) as [
    string,
    number,
    string,
    ...number[],
  ];
  const whole = (value: number | undefined) => (Number.isSafeInteger(value) ? (value as number) : 0);
  return {
    bucket,
    window,
    lease,
    reserved: Math.max(0, whole(reserved)),
    used: Math.max(0, whole(used)),
    carry: whole(carry),
    requests: whole(requests),
    unpriced: whole(unpriced),
    giveBack: giveBack === 1,
  };
}

/** What a shipper needs of where it ships to (`LogSink` without its reading half). */
export interface SettlementSink {
  insert(journal: string, lines: Buffer, position: JournalPosition): Promise<void>;
  position(journal: string): Promise<JournalPosition | null>;
}

export function settlementSink(options: { readonly tables: Tables; readonly clock: Clock }): SettlementSink {
  const { tables, clock } = options;
  return {
    async position(journal) {
      const row = await tables.systemRead((tx) => tx.find('ledger_positions', { journal }));
      return row === undefined ? null : { segment: row.segment, offset: row.position };
    },
    async insert(journal, bytes, position) {
      const lines = bytes.toString('utf8').split('\n').filter(Boolean).map(parseLine);
      await tables.systemWrite(async (tx) => {
        const stored = await tx.find('ledger_positions', { journal });
        if (stored !== undefined && !isBehind(stored, position)) return;
        await apply(tx, lines, clock);
        const at = { segment: position.segment, position: position.offset };
        if (stored === undefined) await tx.insert('ledger_positions', { journal, ...at });
        else await tx.update('ledger_positions', { journal }, at);
      });
    },
  };
}

function isBehind(stored: { segment: string; position: number }, to: JournalPosition): boolean {
  return stored.segment < to.segment || (stored.segment === to.segment && stored.position < to.offset);
}

async function apply(tx: SystemTx, lines: readonly SettlementLine[], clock: Clock): Promise<void> {
  if (lines.length === 0) return;
  const now = await tx.now();
  const byBucket = new Map<string, SettlementLine[]>();
  for (const line of lines) {
    const list = byBucket.get(line.bucket);
    if (list === undefined) byBucket.set(line.bucket, [line]);
    else list.push(line);
  }
  // Always in the same order: two nodes that change the same buckets wait for each other instead of undoing each other.
  for (const id of [...byBucket.keys()].sort()) {
    const row = await tx.find('usage_buckets', { id });
    // Whoever removed the bucket does not count any more.
    if (row === undefined) continue;
    const book = Book.of(row, clock);
    book.turn(now);
    for (const line of byBucket.get(id) ?? []) await book.settle(tx, line);
    await book.close(tx, now);
  }
}
