/**
 * Carries erasures of stored requests out, on each node that has files. A pass rewrites files and chunks; the erasure is done when a
 * pass has found nothing, and no journal has a segment that was there before it. All of it may be killed and begins anew.
 *
 * Where all nodes have their records in one place, each says when its journals have nothing more of them (`filed`). Then one node
 * rewrites for all, and each says when its own disk has nothing of what was replaced (`done`).
 */
import type { Clock } from '../kernel/clock.ts';
import { base62 } from '../kernel/id.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import { erasureOf } from '../resources/logs/erasures/pending.ts';
import type { ErasedOnNode } from '../store/log-tables.ts';
import type { SystemTx, Tables, Where } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Vault } from '../store/vault.ts';
import type { ErasedCounts, ErasedTrace, LogEraser } from '../telemetry/log-erasure.ts';
import { takeLease } from './leader.ts';

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
  /** The one place of the records of all nodes, `files` of the blob store or a store `elsewhere`; null: on the disk of each. */
  readonly place: 'files' | 'elsewhere' | null;
  readonly restMs?: number;
  readonly workMs?: number;
  /** Of the node that rewrites for all. */
  readonly leaseMs?: number;
  readonly pauseMs?: number;
}

type Erasure = Row<'log_erasures'>;

/** Between two looks when there is nothing to do, and when there is. */
const REST_MS = 30_000;
const WORK_MS = 2_000;
/** Spans that a collector has not taken by then are given up: an erasure is done within a day. */
const OUTGOING_MS = 12 * 3_600_000;
const LEASE = 'log-erasures';
const LEASE_MS = 120_000;
/** Between two tries of what fails, at first and at most. */
const PAUSE_MS = 4_000;
const MOST_PAUSE_MS = 600_000;
/** Files that were replaced while the last one was rewritten count as replaced before it. */
const NEAR_MS = 5_000;
const PAGE = 100;
const NOTHING: ErasedOnNode = { records: 0, bodies: 0, feedback: 0, damaged_files: 0, done: false };

export class LogErasures implements Closable {
  readonly #options: Required<ErasureOptions>;
  /** By erasure, the segments that were there when the last pass ended. */
  readonly #segments = new Map<string, ReadonlySet<string>>();
  #cancel: () => void = () => undefined;
  #turn: Promise<void> = Promise.resolve();
  /** Feedback that a process before has removed may be in the files of the store still. */
  #forgotten = -1;
  readonly #holder: string;
  /** By erasure, how often it could not be rewritten for all, and when it is tried again. */
  readonly #failures = new Map<string, { readonly count: number; readonly at: number }>();
  #again = false;
  #running = false;
  #closed = false;

  constructor(options: ErasureOptions) {
    this.#options = { restMs: REST_MS, workMs: WORK_MS, leaseMs: LEASE_MS, pauseMs: PAUSE_MS, ...options };
    // Of this process: one that was killed on this node may have left work under way.
    this.#holder = `${options.node}/${base62(12)}`;
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
      if (this.#options.place !== null) await this.#step(row, this.#options.place);
      else if (row.nodes[node]?.done === true) await this.#note(row.id, null, { done: true });
      else await this.#pass(row);
    }
    return rows.length > 0;
  }

  async #pass(row: Erasure): Promise<void> {
    const { vault, eraser, segments } = this.#options;
    const waiting = this.#segments.has(row.id);
    if (waiting && !(await this.#isOutOfJournals(row))) return;
    const found = await eraser.erase(row.organisation_id, await erasureOf(row, vault));
    const done = waiting && found.records === 0;
    if (done && !(await this.#isForgotten())) return;
    if (done) this.#segments.delete(row.id);
    else this.#segments.set(row.id, new Set(await segments()));
    await this.#note(row.id, found, { done });
  }

  /** Whether no journal has a segment that was there when the last pass ended, and requests under way have had their time. */
  async #isOutOfJournals({ id, created_at }: Erasure): Promise<boolean> {
    const { segments, giveUp, clock, settleMs } = this.#options;
    const waiting = this.#segments.get(id);
    const left = (await segments()).filter((name) => waiting?.has(name));
    const age = clock.now() - created_at;
    if (age >= OUTGOING_MS) await giveUp(left);
    return left.length === 0 && age >= settleMs;
  }

  /** The next step of an erasure where all nodes have their records in one place. */
  async #step(row: Erasure, place: 'files' | 'elsewhere'): Promise<void> {
    const { tables, eraser, node } = this.#options;
    const own = row.nodes[node] ?? NOTHING;
    if (own.filed !== true) {
      if (await this.#isFiled(row)) await this.#note(row.id, null, { filed: true });
    } else if (row.rewritten_at === null) {
      if (await tables.systemRead((tx) => isFiledByAll(tx, row, node, place))) await this.#rewriteForAll(row, place);
    } else if (own.done || (await eraser.isClear(row.rewritten_at))) await this.#note(row.id, null, { done: true });
  }

  /** Whether all that this node has written is where all nodes have theirs. */
  async #isFiled(row: Erasure): Promise<boolean> {
    const { tables, vault, eraser, segments, node } = this.#options;
    if (!this.#segments.has(row.id)) {
      await eraser.hand(await erasureOf(row, vault));
      this.#segments.set(row.id, new Set(await segments()));
      return false;
    }
    if (!(await this.#isOutOfJournals(row))) return false;
    // Lines that were set aside meanwhile.
    await eraser.hand(await erasureOf(row, vault));
    const left = await tables.systemRead((tx) => tx.count('log_files', { where: { ...waitingFiles(row), node } }));
    if (left > 0) return false;
    this.#segments.delete(row.id);
    return true;
  }

  /** By one node at a time, which all others have handed theirs to. */
  async #rewriteForAll(row: Erasure, place: 'files' | 'elsewhere'): Promise<void> {
    const { tables, vault, eraser, clock, leaseMs, pauseMs, node } = this.#options;
    const failed = this.#failures.get(row.id);
    if (failed !== undefined && clock.now() < failed.at) return;
    if (!(await takeLease(tables, LEASE, this.#holder, leaseMs))) return;
    const leave = this.#renewed();
    try {
      const found = await eraser.eraseForAll(row.organisation_id, await erasureOf(row, vault));
      const over = await this.#isForgotten();
      this.#failures.delete(row.id);
      const isOver = async (tx: SystemTx, now: Erasure) => over && (await isFiledByAll(tx, now, node, place));
      await this.#note(row.id, found, { rewritten: isOver });
    } catch (error) {
      const count = failed?.count ?? 0;
      const at = clock.now() + Math.min(pauseMs * 2 ** count, MOST_PAUSE_MS);
      this.#failures.set(row.id, { count: count + 1, at });
      throw error;
    } finally {
      leave();
    }
  }

  /** Renews the lease until the answer is called. */
  #renewed(): () => void {
    const { tables, clock, log, leaseMs } = this.#options;
    let cancel: (() => void) | null = () => undefined;
    const renew = () => {
      if (cancel === null) return;
      cancel = clock.after(leaseMs / 4, () => {
        takeLease(tables, LEASE, this.#holder, leaseMs)
          .catch((error: unknown) => log.warn('a lease could not be renewed', { name: LEASE, error }))
          .finally(renew);
      });
    };
    renew();
    return () => {
      cancel?.();
      cancel = null;
    };
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

  async #note(
    id: string,
    found: ErasedCounts | null,
    state: {
      readonly done?: boolean;
      readonly filed?: boolean;
      readonly rewritten?: (tx: SystemTx, row: Erasure) => Promise<boolean>;
    },
  ): Promise<void> {
    const { tables, clock, node, place } = this.#options;
    await tables.systemWrite(
      async (tx) => {
        const row = await tx.find('log_erasures', { id });
        if (row?.status !== 'pending') return;
        const before = row.nodes[node] ?? NOTHING;
        const own: ErasedOnNode = {
          ...before,
          records: before.records + (found?.records ?? 0),
          bodies: before.bodies + (found?.bodies ?? 0),
          feedback: before.feedback + (found?.feedback ?? 0),
          damaged_files: found?.damagedFiles ?? before.damaged_files,
          done: state.done ?? before.done,
          ...(state.filed === true ? { filed: true } : {}),
        };
        let nodes: Erasure['nodes'] = { ...row.nodes, [node]: own };
        let { rewritten_at } = row;
        if (state.rewritten !== undefined && (await state.rewritten(tx, { ...row, nodes }))) rewritten_at = clock.now();
        if (state.filed === true && rewritten_at !== null) {
          // It has come with its own records: all is looked at again.
          rewritten_at = null;
          nodes = Object.fromEntries(Object.entries(nodes).map(([name, part]) => [name, { ...part, done: false }]));
        }
        const next = { ...row, nodes, rewritten_at };
        const all =
          own.done && (place === null ? await othersAreDone(tx, next, node) : await isOverForAll(tx, next, node));
        if (!all && found === null && own.done === before.done && own.filed === before.filed) return;
        const last_updated_at = await tx.now();
        const over = all ? ({ status: 'done', subject: null, done_at: last_updated_at } as const) : {};
        await tx.update('log_erasures', { id }, { nodes, rewritten_at, last_updated_at, ...over });
      },
      { queue: 'log erasures' },
    );
  }
}

/** Files that no other node can read yet. Those that cannot be read at all are counted, and stay. */
function waitingFiles({ before }: Erasure): Where<'log_files'> {
  const min_time = { lt: Math.min(before, Number.MAX_SAFE_INTEGER) };
  return { place: 'disk', status: 'live', remove_at: 0, min_time };
}

/** Whether every node that was not ended has handed all it had over, and none of its files waits. */
async function isFiledByAll(tx: SystemTx, row: Erasure, node: string, place: 'files' | 'elsewhere'): Promise<boolean> {
  const known = await tx.list('log_nodes', {});
  const filed = [node, ...known.map((each) => each.node)].every((name) => row.nodes[name]?.filed === true);
  if (!filed || (await tx.count('log_files', { where: waitingFiles(row) })) > 0) return false;
  if (place === 'files') return true;
  // Files of a time when nodes shared them are no part of the store elsewhere.
  return (await tx.count('log_files', { where: { ...waitingFiles(row), place: 'store' } })) === 0;
}

/** Whether no disk of a node that was not ended has them, and no file that was replaced is left. */
async function isOverForAll(tx: SystemTx, { nodes, rewritten_at }: Erasure, node: string): Promise<boolean> {
  if (rewritten_at === null) return false;
  const known = await tx.list('log_nodes', {});
  if (![node, ...known.map((each) => each.node)].every((name) => nodes[name]?.done === true)) return false;
  const where = { remove_at: { gt: 0 }, changed_at: { lte: rewritten_at + NEAR_MS } };
  return (await tx.count('log_files', { where })) === 0;
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
