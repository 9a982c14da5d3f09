/**
 * Carries erasures of stored requests out, on each node that has files. A pass rewrites files and chunks; the erasure is done when a
 * pass has found nothing, and no journal has a segment that was there before it. All of it may be killed and begins anew.
 */
import type { Clock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import { erasureOf } from '../resources/logs/erasures/pending.ts';
import type { ErasedOnNode } from '../store/log-tables.ts';
import type { SystemTx, Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Vault } from '../store/vault.ts';
import type { ErasedCounts, ErasedTrace, LogEraser } from '../telemetry/log-erasure.ts';

export interface ErasureOptions {
  readonly tables: Tables;
  readonly vault: Pick<Vault, 'open'>;
  readonly eraser: LogEraser;
  readonly feedback: Pick<FeedbackForgetter, 'removed'>;
  /** The node on whose disk the files are. */
  readonly node: string;
  readonly clock: Clock;
  readonly log: Log;
  /** Names of what is in journals and not in files only. */
  readonly segments: () => Promise<readonly string[]>;
  /** Gives up the segments among these that wait for a collector alone. */
  readonly giveUp: (segments: readonly string[]) => Promise<void>;
  /** From an erasure until it may be done: requests under way, and other nodes, have so long to write their records to files. */
  readonly settleMs: number;
  readonly restMs?: number;
  readonly workMs?: number;
}

type Erasure = Row<'log_erasures'>;

/** Between two looks when there is nothing to do, and when there is. */
const REST_MS = 30_000;
const WORK_MS = 2_000;
/** Spans that a collector has not taken by then are given up: an erasure is done within a day. */
const OUTGOING_MS = 12 * 3_600_000;
const PAGE = 100;
const NOTHING: ErasedOnNode = { records: 0, bodies: 0, feedback: 0, damaged_files: 0, done: false };

export class LogErasures implements Closable {
  readonly #options: Required<ErasureOptions>;
  /** By erasure, the segments that were there when the last pass ended. */
  readonly #segments = new Map<string, ReadonlySet<string>>();
  #cancel: () => void = () => undefined;
  #turn: Promise<void> = Promise.resolve();
  #forgotten = 0;
  #again = false;
  #running = false;
  #closed = false;

  constructor(options: ErasureOptions) {
    this.#options = { restMs: REST_MS, workMs: WORK_MS, ...options };
    this.#later(this.#options.workMs);
  }

  /** One was added. */
  wake(): void {
    if (this.#running) this.#again = true;
    else if (!this.#closed) this.#later(0);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#cancel();
    await this.#turn;
  }

  #later(ms: number): void {
    this.#cancel();
    this.#cancel = this.#options.clock.after(ms, () => {
      this.#turn = this.#look();
    });
  }

  async #look(): Promise<void> {
    const { log, restMs, workMs } = this.#options;
    this.#running = true;
    let pending = true;
    try {
      pending = await this.#work();
    } catch (error) {
      log.warn('stored requests could not be erased yet', { error });
    }
    this.#running = false;
    if (this.#closed) return;
    this.#later(this.#again ? 0 : pending ? workMs : restMs);
    this.#again = false;
  }

  /** Answers whether any is still pending. */
  async #work(): Promise<boolean> {
    const { tables, node } = this.#options;
    const rows = await tables.systemRead((tx) =>
      tx.list('log_erasures', { where: { status: 'pending' }, orderBy: [['id', 'asc']], limit: PAGE }),
    );
    for (const row of rows) {
      if (this.#closed) return true;
      if (row.nodes[node]?.done === true) await this.#note(row.id, null, true);
      else await this.#pass(row);
    }
    return rows.length > 0;
  }

  async #pass(row: Erasure): Promise<void> {
    const { vault, eraser, segments, giveUp, clock, settleMs } = this.#options;
    const age = clock.now() - row.created_at;
    const waiting = this.#segments.get(row.id);
    if (waiting !== undefined) {
      const left = (await segments()).filter((name) => waiting.has(name));
      if (age >= OUTGOING_MS) await giveUp(left);
      if (left.length > 0 || age < settleMs) return;
    }
    const found = await eraser.erase(row.organisation_id, await erasureOf(row, vault));
    const done = waiting !== undefined && found.records === 0;
    if (done && !(await this.#isForgotten())) return;
    if (done) this.#segments.delete(row.id);
    else this.#segments.set(row.id, new Set(await segments()));
    await this.#note(row.id, found, done);
  }

  /** A row of feedback that was removed stays in the files of the store until they are written anew. */
  async #isForgotten(): Promise<boolean> {
    const { tables, feedback } = this.#options;
    const { removed } = feedback;
    if (removed === this.#forgotten) return true;
    if (!(await tables.eraseRemoved(['feedback']))) return false;
    this.#forgotten = removed;
    return true;
  }

  async #note(id: string, found: ErasedCounts | null, done: boolean): Promise<void> {
    const { tables, node } = this.#options;
    await tables.systemWrite(
      async (tx) => {
        const row = await tx.find('log_erasures', { id });
        if (row?.status !== 'pending') return;
        const before = row.nodes[node] ?? NOTHING;
        const own: ErasedOnNode = {
          records: before.records + (found?.records ?? 0),
          bodies: before.bodies + (found?.bodies ?? 0),
          feedback: before.feedback + (found?.feedback ?? 0),
          damaged_files: found?.damagedFiles ?? before.damaged_files,
          done,
        };
        const nodes = { ...row.nodes, [node]: own };
        const all = done && (await othersAreDone(tx, { ...row, nodes }, node));
        const last_updated_at = await tx.now();
        const over = all ? ({ status: 'done', subject: null, done_at: last_updated_at } as const) : {};
        if (all || found !== null) await tx.update('log_erasures', { id }, { nodes, last_updated_at, ...over });
      },
      { queue: 'log erasures' },
    );
  }
}

/** Whether every other node with records from before the time has done its part. */
async function othersAreDone(tx: SystemTx, { nodes, before }: Erasure, node: string): Promise<boolean> {
  const min_time = { lt: Math.min(before, Number.MAX_SAFE_INTEGER) };
  const files = await tx.list('log_files', { where: { node: { not: node }, min_time } });
  return files.every((file) => nodes[file.node]?.done === true);
}

/** Removes feedback on what is erased. */
export class FeedbackForgetter {
  readonly #tables: Tables;
  #removed = 0;

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  /** Rows, since the start. */
  get removed(): number {
    return this.#removed;
  }

  /** Of traces of an organisation; answers how many there were. */
  async forget(organisationId: string, traces: readonly ErasedTrace[]): Promise<number> {
    let count = 0;
    for (const [workspaceId, group] of Map.groupBy(traces, (trace) => trace.workspaceId)) {
      const ids = group.map(({ traceId }) => traceId);
      for (let at = 0; at < ids.length; at += PAGE) {
        const trace_id = { in: ids.slice(at, at + PAGE) };
        const where = { organisation_id: organisationId, workspace_id: workspaceId, trace_id };
        count += await this.#tables.systemWrite((tx) => tx.remove('feedback', where));
      }
    }
    this.#removed += count;
    return count;
  }
}
