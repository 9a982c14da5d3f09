/**
 * The records of one node where several share a control store: each has the files of the requests that it served. An answer says
 * for which times others have more.
 */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Tables } from '../store/ports.ts';
import type {
  LogCoverage,
  LogGroupQuery,
  LogGroups,
  LogPage,
  LogPageQuery,
  LogRow,
  LogScope,
  LogSelection,
  LogStore,
} from '../telemetry/log-query.ts';

/** A file is sent within seconds where nothing is wrong. */
const ON_THE_WAY_MS = 60_000;

export class NodeLogs implements LogStore {
  readonly #own: LogStore;
  readonly #tables: Pick<Tables, 'systemRead'>;
  readonly #node: string;
  readonly #sentElsewhere: Pick<Clock, 'now'> | null;

  /** @param sentElsewhere the clock where all nodes send their files to one store: then only files that wait long are missing */
  constructor(
    own: LogStore,
    tables: Pick<Tables, 'systemRead'>,
    node: string,
    sentElsewhere: Pick<Clock, 'now'> | null = null,
  ) {
    this.#own = own;
    this.#tables = tables;
    this.#node = node;
    this.#sentElsewhere = sentElsewhere;
  }

  async page(selection: LogSelection, query: LogPageQuery): Promise<LogPage> {
    return this.#honest(selection, await this.#own.page(selection, query));
  }

  async groups(selection: LogSelection, query: LogGroupQuery): Promise<LogGroups> {
    return this.#honest(selection, await this.#own.groups(selection, query));
  }

  count(selection: LogSelection, most: number): Promise<number> {
    return this.#own.count(selection, most);
  }

  arrived(...asked: Parameters<LogStore['arrived']>): ReturnType<LogStore['arrived']> {
    return this.#own.arrived(...asked);
  }

  async find(scope: LogScope, id: string): Promise<LogRow | null> {
    const found = await this.#own.find(scope, id);
    if (found === null && (await this.#others(scope.keptSince, Number.MAX_SAFE_INTEGER)) !== null) {
      throw new SluiceError(
        'unavailable',
        this.#sentElsewhere === null
          ? 'This node has no such request, and other nodes have records as well. Ask the node that served it.'
          : 'No such request is in the log store, and log files of nodes are still on their way there. Try again later.',
      );
    }
    return found;
  }

  async #honest<T extends LogCoverage>({ scope, from, to }: LogSelection, answer: T): Promise<T> {
    const others = await this.#others(Math.max(from, scope.keptSince), to);
    return others === null ? answer : { ...answer, incomplete: [...answer.incomplete, others] };
  }

  /** The part of a range of which others have files; null: none. */
  async #others(from: number, to: number): Promise<LogCoverage['incomplete'][number] | null> {
    const files = await this.#tables.systemRead((tx) =>
      tx.list('log_files', {
        where: {
          remove_at: 0,
          ...(this.#sentElsewhere && { created_at: { lt: this.#sentElsewhere.now() - ON_THE_WAY_MS } }),
          max_time: { gte: from },
          min_time: { lt: Math.min(to, Number.MAX_SAFE_INTEGER) },
        },
        // Files that were shared before are in a store that this node is not given.
        anyOf: [{ node: { not: this.#node } }, { place: 'store' }],
      }),
    );
    if (files.length === 0) return null;
    const first = Math.min(...files.map(({ min_time }) => min_time));
    const last = Math.max(...files.map(({ max_time }) => max_time));
    return { from: Math.max(from, first), to: Math.min(to, last) };
  }
}
