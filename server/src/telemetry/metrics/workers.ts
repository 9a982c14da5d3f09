/**
 * Metrics of several processes that share a port. One of them is asked; it asks the primary process, which asks all, adds
 * up and answers. The sum never falls: of a process that has ended, or does not answer in time, the numbers that it told
 * last go on counting.
 */
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { definitionOf, FAMILY_NAMES } from './families.ts';
import { type CellValues, type FamilyValues, Slices } from './family-values.ts';
import type { Metrics } from './metrics.ts';

/** A process's end of the channel between it and the primary process, or the other end. */
export interface MetricsChannel {
  send(message: unknown): void;
  onMessage(receive: (message: unknown) => void): void;
}

/** Number of the family in the table, label values, numbers. */
type WireCell = readonly [number, readonly string[], readonly number[]];

type Message =
  /** A worker asks for the sum. */
  | { readonly sluice: 'metrics.ask'; readonly id: number }
  /** The primary asks a worker for its numbers. */
  | { readonly sluice: 'metrics.tell'; readonly id: number }
  /** A part of them; */
  | {
      readonly sluice: 'metrics.part';
      readonly id: number;
      readonly cells: readonly WireCell[];
      readonly last: boolean;
    }
  /** and of the sum. */
  | {
      readonly sluice: 'metrics.sum';
      readonly id: number;
      readonly cells: readonly WireCell[];
      readonly last: boolean;
      readonly answered: number;
    };

/** Until a worker has told its numbers, milliseconds. */
const TELL_MS = 1_000;
/** The primary answers after that at the latest, unless it hangs. */
const ASK_MS = 3_000;
/** Cells of one message: it is written and read in a fraction of a millisecond. */
const PART = 64;

function messageOf(message: unknown): Message | null {
  const ours = typeof message === 'object' && message !== null && 'sluice' in message;
  return ours && String(message.sluice).startsWith('metrics.') ? (message as Message) : null;
}

/** Numbers of several processes, added up. */
class Sum {
  readonly #cells = new Map<string, { readonly cell: WireCell; readonly values: number[] }>();

  /** @param gauges false for a process that is not there any more: only what it counted is left of it */
  add(cell: WireCell, gauges: boolean): void {
    const [family, labels, values] = cell;
    const { type, join } = definitionOf(FAMILY_NAMES[family] ?? 'sluice_inflight');
    if (type === 'gauge' && !gauges) return;
    const key = `${family}\0${labels.join('\0')}`;
    const known = this.#cells.get(key)?.values;
    if (known === undefined) {
      this.#cells.set(key, { cell, values: [...values] });
      return;
    }
    for (let i = 0; i < values.length; i++) {
      const [one, other] = [known[i] ?? 0, values[i] ?? 0];
      known[i] = join === 'max' ? Math.max(one, other) : join === 'min' ? Math.min(one, other) : one + other;
    }
  }

  *cells(): Iterable<WireCell> {
    for (const { cell, values } of this.#cells.values()) yield [cell[0], cell[1], values];
  }
}

/** Sends cells in parts, in slices. */
async function sendParts(
  cells: Iterable<WireCell>,
  clock: Clock,
  send: (cells: readonly WireCell[], last: boolean) => void,
): Promise<void> {
  const slices = new Slices(clock);
  let part: WireCell[] = [];
  for (const cell of cells) {
    part.push(cell);
    if (part.length < PART) continue;
    send(part, false);
    part = [];
    if (slices.due()) await slices.next();
  }
  send(part, true);
}

interface WorkerNumbers {
  readonly channel: MetricsChannel;
  /** The last whole answer, and the one that arrives. */
  told: readonly WireCell[];
  arriving: WireCell[];
  /** The round that `told` answers. */
  round: number;
}

/** The primary's part. */
export class WorkerSums {
  readonly #clock: Clock;
  readonly #workers = new Map<number, WorkerNumbers>();
  /** What processes have counted that are no more. */
  readonly #departed = new Sum();
  #waiters: { readonly channel: MetricsChannel; readonly id: number }[] = [];
  #round = 0;
  #cancel: (() => void) | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A worker has started. */
  joined(index: number, channel: MetricsChannel): void {
    const worker: WorkerNumbers = { channel, told: [], arriving: [], round: 0 };
    this.#workers.set(index, worker);
    channel.onMessage((received) => {
      const message = messageOf(received);
      if (message?.sluice === 'metrics.ask') this.#ask(channel, message.id);
      else if (message?.sluice === 'metrics.part' && message.id === this.#round) this.#take(worker, message);
    });
  }

  /** It has ended. */
  left(index: number): void {
    const worker = this.#workers.get(index);
    if (worker === undefined) return;
    this.#workers.delete(index);
    for (const cell of worker.told) this.#departed.add(cell, false);
    this.#endWhenTold();
  }

  /** One round serves all that ask while it runs. */
  #ask(channel: MetricsChannel, id: number): void {
    this.#waiters.push({ channel, id });
    if (this.#cancel !== null) return;
    this.#round += 1;
    this.#cancel = this.#clock.after(TELL_MS, () => this.#end());
    for (const worker of this.#workers.values()) {
      worker.arriving = [];
      worker.channel.send({ sluice: 'metrics.tell', id: this.#round } satisfies Message);
    }
  }

  #take(worker: WorkerNumbers, { cells, last, id }: Extract<Message, { sluice: 'metrics.part' }>): void {
    for (const cell of cells) worker.arriving.push(cell);
    if (!last) return;
    worker.told = worker.arriving;
    worker.arriving = [];
    worker.round = id;
    this.#endWhenTold();
  }

  #endWhenTold(): void {
    if (this.#cancel !== null && [...this.#workers.values()].every(({ round }) => round === this.#round)) this.#end();
  }

  #end(): void {
    this.#cancel?.();
    this.#cancel = null;
    const waiters = this.#waiters;
    this.#waiters = [];
    void this.#answer(waiters);
  }

  async #answer(waiters: readonly { readonly channel: MetricsChannel; readonly id: number }[]): Promise<void> {
    const slices = new Slices(this.#clock);
    const sum = new Sum();
    let answered = 0;
    // A worker may end while this goes on: what is added up is what there was at its begin.
    const departed = [...this.#departed.cells()].map(
      ([family, labels, values]): WireCell => [family, labels, [...values]],
    );
    const parts: { readonly cells: readonly WireCell[]; readonly gauges: boolean }[] = [
      { cells: departed, gauges: false },
    ];
    for (const { told, round } of this.#workers.values()) {
      const fresh = round === this.#round;
      if (fresh) answered += 1;
      parts.push({ cells: told, gauges: fresh });
    }
    for (const { cells, gauges } of parts) {
      for (const cell of cells) {
        sum.add(cell, gauges);
        if (slices.due()) await slices.next();
      }
    }
    for (const { channel, id } of waiters) {
      await sendParts(sum.cells(), this.#clock, (cells, last) =>
        channel.send({ sluice: 'metrics.sum', id, cells, last, answered } satisfies Message),
      );
    }
  }
}

/** A worker's part: tells its own numbers when it is asked, and asks for those of all. */
export function workerMetrics(
  channel: MetricsChannel,
  metrics: Metrics,
  clock: Clock,
): () => Promise<readonly FamilyValues[]> {
  const waiting = new Map<number, (message: Extract<Message, { sluice: 'metrics.sum' }>) => void>();
  let asked = 0;
  const tell = async (id: number) => {
    await sendParts(wireOf(metrics.families()), clock, (cells, last) =>
      channel.send({ sluice: 'metrics.part', id, cells, last } satisfies Message),
    );
  };
  channel.onMessage((received) => {
    const message = messageOf(received);
    if (message?.sluice === 'metrics.tell') void tell(message.id);
    else if (message?.sluice === 'metrics.sum') waiting.get(message.id)?.(message);
  });
  return async () => {
    asked += 1;
    const id = asked;
    const { cells, answered } = await new Promise<{ cells: WireCell[]; answered: number }>((resolve, reject) => {
      const cells: WireCell[] = [];
      const cancel = clock.after(ASK_MS, () => {
        waiting.delete(id);
        reject(new SluiceError('unavailable', 'The other processes do not answer; ask again.'));
      });
      waiting.set(id, (message) => {
        for (const cell of message.cells) cells.push(cell);
        if (!message.last) return;
        cancel();
        waiting.delete(id);
        resolve({ cells, answered: message.answered });
      });
      channel.send({ sluice: 'metrics.ask', id } satisfies Message);
    });
    return familiesOf(cells, answered, metrics);
  };
}

function* wireOf(all: readonly FamilyValues[]): Iterable<WireCell> {
  for (const { name, cells } of all) {
    const family = FAMILY_NAMES.indexOf(name);
    for (const { labels, values } of cells) yield [family, labels, Array.from(values)];
  }
}

/** The sum with the labels that this process has: all have the same settings. */
function familiesOf(cells: readonly WireCell[], answered: number, metrics: Metrics): readonly FamilyValues[] {
  const byFamily = new Map<number, CellValues[]>();
  for (const [family, given, values] of cells) {
    const list = byFamily.get(family) ?? [];
    list.push({ labels: given, values });
    byFamily.set(family, list);
  }
  return FAMILY_NAMES.map((name, i) => ({
    name,
    labels: metrics.labelsOf(name),
    cells: name === 'sluice_workers_answered' ? [{ labels: [], values: [answered] }] : (byFamily.get(i) ?? []),
  }));
}
