/**
 * One worker per row: a claim is the row's `holder` and `held_until`, taken by a conditional update. Every claim has
 * its own token, so the token is the fence: a worker that stalled past its lease writes nothing once another has
 * taken over, however often the row changed hands since.
 */
import { SluiceError } from '../kernel/errors.ts';
import type { SystemTx, Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';

/** Tables whose rows are work: all have the columns step, due_at, holder, held_until, failures, cancel_requested. */
export type WorkTable = 'training_jobs' | 'batches' | 'object_usage' | 'log_exports';

/** `due_at` of a row with nothing left to do: past every poll, so that finished rows cost none. */
export const NEVER = Number.MAX_SAFE_INTEGER;

/** Thrown to a worker that does not hold its row any more, or must let go of it; whatever it was about to do is void. */
export class ClaimEnded extends Error {
  readonly why: 'lost' | 'closing';

  constructor(why: 'lost' | 'closing') {
    super(why === 'lost' ? 'another worker has taken this row over' : 'the process is stopping');
    this.name = 'ClaimEnded';
    this.why = why;
  }
}

/** A row a worker holds. */
export interface Claim<N extends WorkTable> {
  /** As of the last read or write through this claim. */
  readonly row: Row<N>;
  /** Aborted when the claim is lost or the process stops: nothing more may be done for the row. */
  readonly signal: AbortSignal;
  /** Aborted when somebody asked to cancel the row after it was claimed. */
  readonly cancelled: AbortSignal;
  /**
   * Writes in one transaction, only while the claim is held: else throws `ClaimEnded`. `change` gets the row as it is
   * now and answers what to write; it may run more than once and must only use its `tx`. `now`: the store's clock.
   */
  write(change: (tx: SystemTx, row: Row<N>, now: number) => Promise<Partial<Row<N>>>): Promise<Row<N>>;
}

/** What work rows have in common; the tables' own columns stay out of sight here. */
type Common = Row<'training_jobs'>;
type Table = 'training_jobs';

/** The tables agree in every column named in this file; the type system cannot say so of a union. */
const common = (table: WorkTable): Table => table as Table;

/** Rows that are due and free, soonest first. */
export async function dueRows(tables: Tables, table: WorkTable, now: number, limit: number): Promise<Common[]> {
  return tables.systemRead((tx) =>
    tx.list(common(table), {
      where: { step: { not: 'done' }, due_at: { lte: now }, held_until: { lte: now } },
      orderBy: [['due_at', 'asc']],
      limit,
    }),
  );
}

/** When the next free row falls due; null when there is none. */
export async function nextDue(tables: Tables, table: WorkTable, now: number): Promise<number | null> {
  const [row] = await tables.systemRead((tx) =>
    tx.list(common(table), {
      where: { step: { not: 'done' }, due_at: { lt: NEVER }, held_until: { lte: now } },
      orderBy: [['due_at', 'asc']],
      limit: 1,
    }),
  );
  return row?.due_at ?? null;
}

/** Takes a row that `dueRows` found; null when somebody else was faster. */
export async function takeRow(
  tables: Tables,
  table: WorkTable,
  found: Common,
  claim: { readonly token: string; readonly until: number },
): Promise<Common | null> {
  const { id, holder, held_until, due_at } = found;
  return tables.systemWrite(async (tx) => {
    const taken = await tx.update(
      common(table),
      { id, holder, held_until, due_at, step: { not: 'done' } },
      { holder: claim.token, held_until: claim.until },
    );
    return taken === 1 ? ((await tx.find(common(table), { id })) ?? null) : null;
  });
}

/** Frees what an earlier run of this process held when it was killed. Returns how many rows. */
export async function freeRows(tables: Tables, table: WorkTable, heldBy: (holder: string) => boolean): Promise<number> {
  const held = await tables.systemRead((tx) =>
    tx.list(common(table), { where: { step: { not: 'done' }, held_until: { gt: 0 }, holder: { not: null } } }),
  );
  let freed = 0;
  for (const { id, holder } of held) {
    if (holder === null || !heldBy(holder)) continue;
    freed += await tables.systemWrite((tx) =>
      tx.update(common(table), { id, holder }, { holder: null, held_until: 0 }),
    );
  }
  return freed;
}

/** Pushes the end of the lease back and reads the row; null when the claim is lost. */
export async function renewRow(
  tables: Tables,
  table: WorkTable,
  id: string,
  token: string,
  leaseMs: number,
): Promise<Common | null> {
  const until = (await tables.now()) + leaseMs;
  return tables.systemWrite(async (tx) => {
    const held = await tx.update(common(table), { id, holder: token }, { held_until: until });
    return held === 1 ? ((await tx.find(common(table), { id })) ?? null) : null;
  });
}

/** A write behind the fence. */
export async function writeRow(
  tables: Tables,
  table: WorkTable,
  id: string,
  token: string,
  change: (tx: SystemTx, row: Common, now: number) => Promise<Partial<Common>>,
): Promise<Common> {
  const now = await tables.now();
  return tables.systemWrite(async (tx) => {
    const row = await tx.find(common(table), { id });
    if (row === undefined || row.holder !== token) throw new ClaimEnded('lost');
    const patch = await change(tx, row, now);
    if (Object.keys(patch).length === 0) return row;
    const written = await tx.update(common(table), { id, holder: token }, patch);
    if (written !== 1) throw new SluiceError('internal', 'A row changed hands within a transaction.');
    return { ...row, ...patch };
  });
}
