/**
 * Sums of the hours of a watched place. Hours that are over are kept in memory, so that a look each minute reads those that still
 * change.
 */
import type { Tables } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { NO_TRAFFIC, type TrafficSums, WEEK_HOURS, WEEKS } from './traffic-rules.ts';

type Watch = Row<'alert_watches'>;

/** The longest range of a rule, hours. */
const RANGE = 72;
/** A long stream is added to the hour in which it began. */
const CHANGING = 2;
/** Hours of one statement: others use the store between two of them. */
const STEP = 12;

interface Known {
  /** The hour in which it was read last. */
  at: number;
  readonly sums: Map<number, TrafficSums>;
  /** Of this hour and the one before: micro-dollars of the same hour in the weeks before; null: there are no four weeks. */
  usual: { readonly at: number; readonly of: ReadonlyMap<number, readonly number[] | null> } | null;
}

export class TrafficHours {
  readonly #tables: Pick<Tables, 'systemRead'>;
  readonly #known = new Map<string, Known>();

  constructor(tables: Pick<Tables, 'systemRead'>) {
    this.#tables = tables;
  }

  /** The sums of each hour (since the epoch) from 72 hours before this one. */
  async sums(watch: Watch, hour: number): Promise<ReadonlyMap<number, TrafficSums>> {
    const known = this.#of(watch.id);
    const from = Math.max(hour - RANGE, known.at - CHANGING);
    for (let at = from; at <= hour; at += STEP) {
      const read = await this.#read(watch, { gte: at, lt: Math.min(at + STEP, hour + 1) });
      for (let one = at; one < Math.min(at + STEP, hour + 1); one++) known.sums.set(one, read.get(one) ?? NO_TRAFFIC);
    }
    known.at = hour;
    for (const one of known.sums.keys()) if (one < hour - RANGE || one > hour) known.sums.delete(one);
    return known.sums;
  }

  /** Micro-dollars of the same hour in each of the four weeks before; null while the place has no four weeks behind it. */
  async usual(watch: Watch, of: number, hour: number): Promise<readonly number[] | null> {
    const known = this.#of(watch.id);
    if (known.usual?.at !== hour) {
      const each = [hour, hour - 1] as const;
      const weeks = (one: number) => Array.from({ length: WEEKS }, (_, week) => one - (week + 1) * WEEK_HOURS);
      const sums = await this.#read(watch, { in: each.flatMap(weeks) });
      const [first] = await this.#tables.systemRead((tx) =>
        tx.list('log_hours', {
          where: { ...placeOf(watch), hour: { lte: hour - WEEKS * WEEK_HOURS } },
          orderBy: [['hour', 'asc']],
          limit: 2,
        }),
      );
      const old = (one: number) => first !== undefined && first.hour <= one - WEEKS * WEEK_HOURS;
      const micros = (one: number) => (old(one) ? weeks(one).map((at) => sums.get(at)?.micros ?? 0) : null);
      known.usual = { at: hour, of: new Map(each.map((one) => [one, micros(one)])) };
    }
    return known.usual.of.get(of) ?? null;
  }

  /** Forgets places that are watched no more. */
  keep(ids: ReadonlySet<string>): void {
    for (const id of this.#known.keys()) if (!ids.has(id)) this.#known.delete(id);
  }

  #of(id: string): Known {
    const known = this.#known.get(id) ?? { at: Number.NEGATIVE_INFINITY, sums: new Map(), usual: null };
    this.#known.set(id, known);
    return known;
  }

  async #read(
    watch: Watch,
    hour: { readonly gte: number; readonly lt: number } | { readonly in: readonly number[] },
  ): Promise<Map<number, TrafficSums>> {
    const rows = await this.#tables.systemRead((tx) => tx.list('log_hours', { where: { ...placeOf(watch), hour } }));
    const out = new Map<number, TrafficSums>();
    for (const { hour: at, requests, errors, cost_micros } of rows) {
      const sum = out.get(at) ?? NO_TRAFFIC;
      out.set(at, { requests: sum.requests + requests, failed: sum.failed + errors, micros: sum.micros + cost_micros });
    }
    return out;
  }
}

const placeOf = ({ organisation_id, workspace_id }: Watch) => ({
  organisation_id,
  ...(workspace_id === '' ? {} : { workspace_id }),
});
