/**
 * Free text over kept bodies, newest request first: bodies are read until a page is full or the time is over, and the answer says
 * which. Nothing is kept of what was read: what an index would hold is a second place for what people have said.
 */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { Slots } from '../kernel/slots.ts';
import { nextTurn } from '../kernel/turns.ts';
import { phraseFinder } from '../telemetry/bodies/body-search.ts';
import { hideMetadata } from '../telemetry/hidden-metadata.ts';
import type { LogFoundPage, LogRow, LogSearchQuery, LogSelection, LogStore } from '../telemetry/log-query.ts';
import { BODY_COLUMNS, type ChunkReader } from './chunk-reader.ts';

export interface LogSearchParts {
  readonly store: Pick<LogStore, 'page'>;
  /** A reader of kept bodies, with all that is written by now. */
  readonly bodies: () => Promise<Pick<ChunkReader, 'find'>>;
  readonly clock: Clock;
}

/** One beside those of others, who wait for their turns. */
const AT_ONCE = 2;
const MOST_WAITING = 8;
const MOST_WAIT_MS = 5_000;
/** From the first body on. */
const SEARCH_MS = 1_000;
/** Between two looks at others' work. */
const STEP_MS = 10;
/** Rows that are read at once: the newest requests are often enough. */
const FIRST_ROWS = 100;
const ROWS = 1_000;
const COLUMNS = [...BODY_COLUMNS, 'metadata'];

export class LogSearch {
  readonly #parts: LogSearchParts;
  readonly #slots = new Slots('searches in bodies', AT_ONCE);

  constructor(parts: LogSearchParts) {
    this.#parts = parts;
  }

  /** Searches under way. */
  get running(): number {
    return this.#slots.shares.held;
  }

  async search(selection: LogSelection, query: LogSearchQuery): Promise<LogFoundPage> {
    const { organisationId } = selection.scope;
    if (this.#slots.waitingOf(organisationId) >= MOST_WAITING) throw busy();
    const late = new AbortController();
    const cancel = this.#parts.clock.after(MOST_WAIT_MS, () => late.abort(busy()));
    const leave = await this.#slots.take(organisationId, late.signal).finally(cancel);
    try {
      return await this.#search(selection, query);
    } finally {
      leave();
    }
  }

  async #search(selection: LogSelection, query: LogSearchQuery): Promise<LogFoundPage> {
    const { store, clock } = this.#parts;
    const { limit, order, noMetadata } = query;
    const kept = {
      ...selection,
      from: Math.max(selection.from, query.since),
      where: [...selection.where, { column: 'body_chunk', known: true }],
    };
    const bodies = await this.#parts.bodies();
    const has = phraseFinder(query.phrase);
    let until = Number.POSITIVE_INFINITY;
    const found: LogRow[] = [];
    // Without a range with bodies there is nothing to search.
    let behind = kept.from < kept.to ? query.behind : null;
    let [searched, unread, complete] = [0, 0, true];
    let turnOver = clock.monotonic() + STEP_MS;
    for (let rows = FIRST_ROWS; kept.from < kept.to; rows = ROWS) {
      const page = await store.page(kept, { columns: ['id', 'time', ...COLUMNS], order, limit: rows, behind });
      until = Math.min(until, clock.monotonic() + SEARCH_MS);
      for (const row of page.rows) {
        const one = await bodies.find(row, query.since);
        behind = { time: Number(row.time), id: String(row.id) };
        searched += 1;
        if (one === 'pending' || one === 'unreadable') unread += 1;
        const shown = <T>(body: T) => (noMetadata ? hideMetadata(row.metadata, body) : body);
        if (typeof one !== 'string' && has(one, { noMetadata, shown })) found.push(row);
        complete = clock.monotonic() < until;
        if (found.length === limit || !complete) break;
        if (clock.monotonic() < turnOver) continue;
        await nextTurn();
        turnOver = clock.monotonic() + STEP_MS;
      }
      const last = page.rows.at(-1);
      const atEnd = page.next === null && (last === undefined || behind?.id === last.id);
      if (atEnd) behind = null;
      if (atEnd || found.length === limit || !complete) break;
    }
    const wide = await this.#wide(kept, query, found);
    // Where nothing is left to be searched, the time that it took does not matter.
    return { rows: wide, next: behind, searched, unread, complete: complete || behind === null };
  }

  /** The columns that are asked for, of what was found. */
  async #wide(selection: LogSelection, query: LogSearchQuery, found: readonly LogRow[]): Promise<readonly LogRow[]> {
    if (found.length === 0) return [];
    const times = found.map(({ time }) => Number(time));
    const ids = found.map(({ id }) => String(id));
    const page = await this.#parts.store.page(
      {
        ...selection,
        from: Math.min(...times),
        to: Math.max(...times) + 1,
        where: [...selection.where, { column: 'id', in: ids }],
      },
      { columns: query.columns, order: query.order, limit: ids.length, behind: null },
    );
    return page.rows;
  }
}

const busy = () =>
  new SluiceError('throttled', 'Too many searches in bodies at once. Try again in a second.', { retryAfter: 1 });
