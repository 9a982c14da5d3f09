/** One log destination: what waits for it, how far it came, and its calls. It waits for no other, and no other for it. */
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import type { Log } from '../../kernel/log.ts';
import type { FeedMark } from '../../store/log-tables.ts';
import { sentFields, withoutFields } from '../../telemetry/destination-fields.ts';
import { rowOf } from '../../telemetry/log-columns.ts';
import type {
  DestinationHost,
  DestinationPlan,
  DestinationState,
  HandedOver,
  PastPage,
} from '../../telemetry/log-destination.ts';
import { EXPORT_FIELD_IDS, type LogBodies } from '../../telemetry/log-export.ts';
import { holds } from '../../telemetry/log-filter.ts';
import type { LogRow } from '../../telemetry/log-query.ts';
import type { LogRecord } from '../../telemetry/record.ts';
import { nodeOfRun } from '../../telemetry/recorder.ts';
import { type Delivery, Feed } from '../feed.ts';
import { Outbox } from './outbox.ts';
import { type Answer, type SendParts, sendBatch } from './send.ts';

export interface RunnerParts extends Omit<SendParts, 'parquet'> {
  readonly host: DestinationHost;
  readonly log: Log;
}

/** What is known of a destination beside the files of its outbox. */
interface Progress {
  /** Requests that ended before it (milliseconds since the epoch) are of the past; null: it is not known yet. */
  readonly boundary: number | null;
  readonly behind: PastPage['next'];
  /** The past was sent. */
  readonly filled: boolean;
  readonly deliveredAt: number | null;
  /** As far as it is known, for other nodes. */
  readonly mark?: FeedMark | null;
  /** Requests that were sent in place of other nodes, and those of these that were refused. */
  readonly forOthers?: number;
  readonly refusedForOthers?: number;
}

/** Records of one call. Objects of S3 have all of their interval. */
const MOST = { otlp: 256, webhook: 500, s3: 20_000 } as const;
/** The same with bodies, which may be a quarter of a megabyte each. */
const MOST_WITH_BODIES = 32;
const CHUNK = { otlp: 512 << 10, webhook: 512 << 10, s3: 4 << 20 } as const;
const IDLE_MS = 30_000;
const IDLE_S3_MS = 1_000;
const MOST_BACKOFF_MS = 300_000;
/** Bytes of an object of S3 that is written before its interval is over. */
const FULL_BYTES = 16 << 20;
/** A record that comes so late was not there when the past was read. */
const LATE_MS = 60_000;
/** Requests that ended before the boundary are stored by then. */
const SETTLED_MS = 2_000;
/** Bodies come a moment after the record. */
const BODIES_MS = 5_000;
const ASK_AGAIN_MS = 60_000;
const PAST_BYTES = 8 << 20;
const LOOK_MS = 1_000;
const MOST_WAIT_MS = 30_000;
const BEGIN: Progress = { boundary: null, behind: null, filled: false, deliveredAt: null };
/** How often it asks what nodes that are away have left. */
const LEFT_MS = 15_000;
/** Where each batch is noted for other nodes, small ones gather so long. */
const GATHER_MS = 200;
const GATHERED = 100;
/** Runs of processes that a mark names. */
const MOST_RUNS = 100;
const TWO_32 = 2 ** 32;

const endOf = ({ time, latency_ms: latency }: LogRecord): number => time + latency;

export class Runner {
  #plan: DestinationPlan;
  readonly #parts: RunnerParts;
  readonly #dir: string;
  readonly #outbox: Outbox;
  #feed: Feed<LogRecord>;
  #progress: Progress;
  #work: Promise<unknown> = Promise.resolve();
  /** Records that came since the start, and those that waited then and were settled before. */
  #come = 0;
  /** Since when something waits for its interval. */
  #since: number | null = null;
  /** The end of the oldest request of the batch that is tried. */
  #trying: number | null = null;
  #removed = false;
  #closing = false;
  #pastFailures = 0;
  #cancel: () => void = () => undefined;
  #cancelLeft: () => void = () => undefined;
  #leftError: string | null = null;
  /** All that was recorded before the first time was in the outbox at the second. */
  #routed: { readonly before: number; readonly at: number } | null = null;
  /** Of what came, so many may be of the past: their numbers say nothing of those before. Null: more are to come. */
  #pastEnd: number | null = null;
  #mark: FeedMark = { since: 0, runs: {} };

  private constructor(plan: DestinationPlan, parts: RunnerParts, dir: string, outbox: Outbox, progress: Progress) {
    this.#plan = plan;
    this.#parts = parts;
    this.#dir = dir;
    this.#outbox = outbox;
    this.#progress = progress;
    this.#feed = this.#makeFeed();
  }

  static async start(plan: DestinationPlan, parts: RunnerParts, below: string): Promise<Runner> {
    const dir = join(below, plan.id);
    const outbox = await Outbox.open(dir);
    const text = await readFile(join(dir, 'progress.json'), 'utf8').catch(() => null);
    const progress = text === null ? BEGIN : (JSON.parse(text) as Progress);
    const runner = new Runner(plan, parts, dir, outbox, progress);
    await runner.#begin();
    return runner;
  }

  get plan(): DestinationPlan {
    return this.#plan;
  }

  get outbox(): Outbox {
    return this.#outbox;
  }

  /** The far side takes nothing right now. */
  get failing(): boolean {
    return this.#feed.state.failure !== null;
  }

  get state(): DestinationState {
    const { sent, refused, lost, failure } = this.#feed.state;
    const { forOthers = 0, refusedForOthers = 0 } = this.#progress;
    const now = this.#parts.clock.now();
    return {
      id: this.#plan.id,
      delivered: sent + forOthers,
      failed: refused + refusedForOthers,
      lost,
      waiting: this.#left,
      deliveredAt: this.#progress.deliveredAt,
      lagMs: this.#trying === null ? 0 : Math.max(0, Math.round(now - this.#trying)),
      error: failure ?? this.#leftError,
      backfilling: !this.#progress.filled,
      mark: this.#plan.shared ? this.#markNow : null,
    };
  }

  get #left(): number {
    const { sent, refused, lost } = this.#feed.state;
    return Math.max(0, this.#come - sent - refused - lost);
  }

  /** Takes the settings of now; a call that waits to be tried again is tried at once. */
  async change(plan: DestinationPlan): Promise<void> {
    if (plan.version === this.#plan.version) return;
    const otherKind = plan.target?.kind !== this.#plan.target?.kind || plan.bodies !== this.#plan.bodies;
    this.#plan = plan;
    if (otherKind) {
      // Sizes of batches are those of the kind.
      await this.#feed.finish();
      this.#feed = this.#makeFeed();
      await this.#feed.start();
    }
    this.#feed.wake();
  }

  /** Null: some of the past is not settled. */
  get #markNow(): FeedMark | null {
    const { sent, refused, lost } = this.#feed.state;
    return this.#pastEnd !== null && sent + refused + lost >= this.#pastEnd ? this.#mark : null;
  }

  /** All that was written before `began` has been seen: what comes from now on is not of the past. */
  routed(began: number): void {
    this.#routed = { before: began, at: this.#parts.clock.now() };
    if (this.#progress.boundary !== null) return;
    this.#progress = { ...this.#progress, boundary: began };
    this.#fillLater(SETTLED_MS);
  }

  /** Whether a record that comes now is to be sent. `row` is made when it is needed. */
  takes(record: LogRecord, row: () => LogRow): boolean {
    const { boundary } = this.#progress;
    if (boundary === null) return false;
    const end = endOf(record);
    // It is sent with the past.
    if (end < boundary && end >= boundary - LATE_MS) return false;
    return this.#wants(record, row);
  }

  /** Resolves when the records (their JSON texts) are on the disk. */
  append(texts: readonly string[]): Promise<void> {
    return this.#serial(async () => {
      await this.#outbox.append(texts);
      this.#come += texts.length;
      this.#since ??= this.#parts.clock.now();
      this.#feed.nudge();
    });
  }

  /** Gives up what is older than `before` (milliseconds since the epoch), and lets go of what was sent. */
  async tidy(before: number): Promise<void> {
    const needed = this.#feed.needs('outbox');
    if (needed !== null) await this.#outbox.forgetBefore(needed);
    for (;;) {
      const oldest = await this.#outbox.oldestWrite();
      if (oldest === null || oldest >= before || !(await this.#outbox.giveUpOldest())) break;
      this.#feed.wake();
    }
  }

  /** Gives up the oldest file. Answers whether there was one. */
  async giveUp(): Promise<boolean> {
    const gaveUp = await this.#outbox.giveUpOldest();
    if (gaveUp) this.#feed.wake();
    return gaveUp;
  }

  /** Sends what is there, each batch once; the rest waits for the next start. */
  async finish(): Promise<void> {
    this.#closing = true;
    this.#cancel();
    this.#cancelLeft();
    await this.#work.catch(() => undefined);
    await this.#feed.finish();
    await this.#outbox.close();
    await this.#note({}).catch(() => undefined);
  }

  /** The destination is gone. */
  async remove(): Promise<void> {
    this.#removed = true;
    await this.finish();
    await rm(this.#dir, { recursive: true, force: true });
  }

  async #begin(): Promise<void> {
    await this.#feed.load();
    const { sent, refused, lost } = this.#feed.state;
    this.#come = sent + refused + lost + (await this.#feed.backlog());
    const { filled, mark } = this.#progress;
    this.#mark = mark ?? this.#mark;
    if (filled) this.#pastEnd = mark == null ? this.#come : 0;
    if (this.#left > 0) this.#since = this.#parts.clock.now();
    await this.#feed.start();
    this.#lookForLeft(LEFT_MS);
    if (this.#progress.boundary !== null && !this.#progress.filled) this.#fillLater(0);
  }

  #makeFeed(): Feed<LogRecord> {
    const { clock, log } = this.#parts;
    const { id, target, bodies } = this.#plan;
    const kind = target?.kind ?? 'webhook';
    return new Feed<LogRecord>({
      name: 'sent',
      dir: this.#dir,
      spool: this.#outbox,
      clock,
      log: { ...log, warn: (message, fields) => log.warn(message, { ...fields, destination_id: id }) },
      ready: (record) => [record],
      most: bodies ? MOST_WITH_BODIES : MOST[kind],
      chunkBytes: CHUNK[kind],
      idleMs: kind === 's3' ? IDLE_S3_MS : IDLE_MS,
      mostBackoffMs: MOST_BACKOFF_MS,
      holds: () => this.#holds(),
      idle: (began) => {
        this.#since = null;
        const routed = this.#routed;
        if (routed !== null && routed.at < began) this.#mark = { ...this.#mark, since: routed.before };
      },
      deliver: (batch) => this.#deliver(batch),
    });
  }

  #holds(): boolean {
    const { target } = this.#plan;
    if (target === null) return true;
    if (target.kind !== 's3') return false;
    if (this.#since === null) return true;
    const due = this.#since + target.intervalSeconds * 1_000;
    return this.#parts.clock.now() < due && this.#outbox.bytes < FULL_BYTES;
  }

  async #deliver(batch: readonly LogRecord[]): Promise<Delivery> {
    const [first] = batch;
    this.#trying = first === undefined ? null : endOf(first);
    const result = await this.#send(batch);
    if (result.kind === 'later') return result;
    this.#trying = null;
    this.#passed(batch);
    if (result.kind === 'accepted' || this.#plan.shared) {
      const deliveredAt = result.kind === 'accepted' ? this.#parts.clock.now() : this.#progress.deliveredAt;
      await this.#note({ deliveredAt, mark: this.#markNow });
    }
    if (this.#plan.shared) await this.#tellOthers(batch.length);
    return result;
  }

  #passed(batch: readonly LogRecord[]): void {
    if (!this.#plan.shared) return;
    const runs = new Map(Object.entries(this.#mark.runs));
    for (const { node, seq } of batch) {
      if (nodeOfRun(node) === null) continue;
      const before = runs.get(node) ?? 0;
      runs.delete(node);
      runs.set(node, Math.max(before, seq));
    }
    this.#mark = { ...this.#mark, runs: Object.fromEntries([...runs].slice(-MOST_RUNS)) };
  }

  /** Before the next batch: another node that sends in place of this one begins there. */
  async #tellOthers(records: number): Promise<void> {
    const { host, clock } = this.#parts;
    // While the store is away nothing is sent: the rules of the next batch are not read either.
    await host.settled(this.state).catch(() => undefined);
    if (this.#closing || records >= GATHERED) return;
    await new Promise<void>((resolve) => clock.after(GATHER_MS, resolve));
  }

  async #send(batch: readonly LogRecord[], own = true): Promise<Delivery> {
    const { target, id, organisationId, workspaceId } = this.#plan;
    if (this.#removed || target === null) return later('The destination is switched off.', null);
    const { host } = this.#parts;
    const terms = await host.terms(id).catch(() => undefined);
    if (terms === undefined) return later('The settings of the destination cannot be read right now.', null);
    if (terms === null) return later('The destination is switched off.', ASK_AGAIN_MS);
    const all = batch;
    const handedOver = own ? (terms.handedOver ?? null) : null;
    batch = handedOver === null ? all : all.filter((record) => !isHandedOver(record, handedOver));
    if (batch.length === 0) return { kind: 'accepted' };
    const denied = new Set(terms.denied);
    const bodies = await this.#bodiesOf(batch, denied);
    if (bodies === null) return later('The bodies of these requests cannot be read yet.', 1_000);
    const fields = sentFields(this.#plan.fields, this.#plan.bodies, denied);
    const hidden = target.kind === 'otlp' ? new Set(EXPORT_FIELD_IDS.filter((one) => !fields.includes(one))) : denied;
    const records = batch.map((record) => withoutFields(record, hidden));
    const kept = new Map(
      records.flatMap((record, i) => {
        const found = bodies.get(batch[i]?.id ?? '');
        return found === undefined ? [] : [[record, found] as const];
      }),
    );
    const { secrets, origin } = terms;
    const given = { destinationId: id, organisationId, workspaceId, fields, bodies: kept, secrets, origin };
    return halved(records, (some) =>
      sendBatch(target, { ...given, records: some }, { ...this.#parts, parquet: host.parquet }),
    );
  }

  /** Null: some are not there yet. */
  async #bodiesOf(
    batch: readonly LogRecord[],
    denied: ReadonlySet<string>,
  ): Promise<ReadonlyMap<string, LogBodies> | null> {
    const { bodies, fields } = this.#plan;
    const wanted = (name: 'request' | 'response') => !denied.has(name) && (fields === null || fields.includes(name));
    const kept = batch.filter(({ body_chunk: chunk }) => typeof chunk === 'string');
    if (!bodies || kept.length === 0 || (!wanted('request') && !wanted('response'))) return new Map();
    const { host, clock } = this.#parts;
    const answer = await host.bodies(kept, denied.has('metadata')).catch(() => null);
    if (answer === null) return null;
    const newest = Math.max(...kept.map(endOf));
    if (answer.pending && clock.now() - newest < BODIES_MS) return null;
    return new Map(
      [...answer.found].map(([id, { request, response }]) => [
        id,
        { request: wanted('request') ? request : null, response: wanted('response') ? response : null },
      ]),
    );
  }

  #wants(record: LogRecord, row: () => LogRow): boolean {
    const { organisationId, workspaceId, where, sample } = this.#plan;
    if (record.organisation_id !== organisationId) return false;
    if (workspaceId !== null && record.workspace_id !== workspaceId) return false;
    // All records of a trace, or none.
    if (sample < 1 && crc32(record.trace_id) / TWO_32 >= sample) return false;
    return holds(row(), where);
  }

  #fillLater(ms: number): void {
    if (this.#closing) return;
    this.#cancel = this.#parts.clock.after(ms, () => {
      this.#fill()
        .then((wait) => (wait === null ? undefined : this.#fillLater(wait)))
        .catch(() => this.#fillLater(MOST_WAIT_MS));
    });
  }

  /** A page of the past goes to the outbox. Answers how long to wait for the next; null: there is none. */
  async #fill(): Promise<number | null> {
    const { boundary, behind, filled } = this.#progress;
    if (boundary === null || filled || this.#closing) return null;
    if (this.#outbox.bytes > PAST_BYTES && this.#left > 0) return LOOK_MS;
    let page: PastPage;
    try {
      page = await this.#parts.host.past(this.#plan.id, boundary, behind);
      this.#pastFailures = 0;
    } catch {
      this.#pastFailures += 1;
      return Math.min(LOOK_MS * 2 ** this.#pastFailures, MOST_WAIT_MS);
    }
    const texts = page.records
      .filter((record) => endOf(record) < boundary && this.#wants(record, () => rowOf(record)))
      .map((record) => JSON.stringify(record));
    if (texts.length > 0) await this.append(texts);
    if (page.next === null) this.#pastEnd = this.#come;
    await this.#note({ behind: page.next, filled: page.next === null });
    return page.next === null ? null : 0;
  }

  #lookForLeft(ms: number): void {
    if (this.#closing) return;
    const { log } = this.#parts;
    this.#cancelLeft = this.#parts.clock.after(ms, () => {
      this.#sendLeft()
        .catch((error: unknown) => {
          log.warn('what a node that is away has left for a log destination cannot be read', {
            destination_id: this.#plan.id,
            error: String(error),
          });
          return false;
        })
        .then((more) => this.#lookForLeft(more ? 0 : LEFT_MS));
    });
  }

  /** Sends some of what a node that is away has left. Answers whether there may be more. */
  async #sendLeft(): Promise<boolean> {
    const { shared, target, id, bodies } = this.#plan;
    if (!shared || target === null || this.#progress.boundary === null) return false;
    const { host } = this.#parts;
    const left = await host.left(id);
    if (left === null) return false;
    const wanted = left.records.filter((record) => this.#wants(record, () => rowOf(record)));
    const most = bodies ? MOST_WITH_BODIES : MOST[target.kind];
    for (let at = 0; at < wanted.length; at += most) {
      const batch = wanted.slice(at, at + most);
      const result = await this.#send(batch, false);
      this.#leftError = result.kind === 'later' ? result.why : null;
      if (result.kind === 'later' || this.#closing) return false;
      const { forOthers = 0, refusedForOthers = 0 } = this.#progress;
      if (result.kind === 'accepted') {
        await this.#note({ deliveredAt: this.#parts.clock.now(), forOthers: forOthers + batch.length });
      } else await this.#note({ refusedForOthers: refusedForOthers + batch.length });
      const last = batch.at(-1);
      const next = at + most < wanted.length && last !== undefined ? { time: last.time, id: last.id } : left.next;
      await host.leftSettled(id, { node: left.node, next });
    }
    if (wanted.length === 0) await host.leftSettled(id, left);
    return true;
  }

  #note(change: Partial<Progress>): Promise<void> {
    this.#progress = { ...this.#progress, ...change };
    if (this.#removed) return Promise.resolve();
    const text = JSON.stringify(this.#progress);
    return this.#serial(async () => {
      const file = join(this.#dir, 'progress.json');
      await writeFile(`${file}.unfinished`, text, { mode: 0o600 });
      await rename(`${file}.unfinished`, file);
    });
  }

  #serial<T>(work: () => Promise<T>): Promise<T> {
    const next = this.#work.then(work, work);
    this.#work = next.catch(() => undefined);
    return next;
  }
}

/** Others have sent it while this node was away. */
function isHandedOver(record: LogRecord, { place, before }: HandedOver): boolean {
  const { time, id } = record;
  return endOf(record) < before && (time < place.time || (time === place.time && id <= place.id));
}

const later = (why: string, afterMs: number | null): Delivery => ({ kind: 'later', why, afterMs });

/** A batch that is too large for the far side is sent in two. */
async function halved(
  records: readonly LogRecord[],
  send: (records: readonly LogRecord[]) => Promise<Answer>,
): Promise<Delivery> {
  const answer = await send(records);
  if (answer.status !== 413 || records.length < 2) return answer;
  const middle = records.length >> 1;
  const first = await halved(records.slice(0, middle), send);
  return first.kind === 'later' ? first : halved(records.slice(middle), send);
}
