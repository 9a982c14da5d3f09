/**
 * Sluice runs the requests of a batch itself: a bucket of them at a time, each through the whole data plane as the key
 * that made the batch.
 *
 * A request's result is one row, written once, as soon as its answer is there. A process that is killed between an answer
 * and its row has made the call and has recorded and charged it, but the batch does not know: the request is run again
 * and recorded again, as both calls were made. What callers read is one result for every line in any case.
 */
import { createHash } from 'node:crypto';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject, JsonValue } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import type { ResultLine } from '../../providers/batch-lines.ts';
import type { LineAnswer } from '../services.ts';
import { goneInput, type InputLine, inputLines, tenantOfRow } from './batch-files.ts';
import {
  type BatchClaim,
  type BatchProgress,
  type BatchRow,
  changed,
  progressOf,
  publicOf,
  type Retry,
  statusOf,
  stored,
  type Turn,
  workOf,
} from './batch-row.ts';
import { type BatchServices, settingsOf } from './batch-services.ts';
import { isSuccess, resultId } from './result-line.ts';

/** Failures that may pass. */
const PASSING = new Set([408, 409, 425, 429, 500, 502, 503, 504, 529]);
/** Longest wait an answer may ask for. */
const MAX_WAIT_MS = 60 * 60_000;

interface Task {
  readonly line: number;
  readonly offset: number;
  readonly tries: number;
}

/** What became of one request. */
type Fate =
  | { readonly kind: 'result'; readonly line: ResultLine }
  | { readonly kind: 'retry'; readonly retry: Retry; readonly limited: boolean }
  | { readonly kind: 'stop'; readonly line: ResultLine; readonly reason: string }
  /** The turn was ended from outside; the request counts as not run. */
  | { readonly kind: 'left' };

export type End = NonNullable<BatchProgress['end']>;

/** Runs one bucket. */
export async function flush(claim: BatchClaim, services: BatchServices): Promise<Turn> {
  const { bucket, flushMs } = settingsOf(services);
  const row = claim.row;
  const progress = progressOf(row);
  const started = services.clock.now();
  const over = endOf(row, progress, started);
  if (over !== null) return conclude(claim, over);

  const width = Math.min(bucket, progress.width);
  const due = progress.retries.filter((retry) => retry.at <= started).slice(0, width);
  // Requests that wait are bounded: new ones are begun only while fewer than a bucket stand back.
  const room = Math.min(width - due.length, bucket - progress.retries.length);
  const fresh: InputLine[] = [];
  let next = progress.next;
  let more = room <= 0;
  if (room > 0) {
    for await (const line of inputLines(services, row, progress.next)) {
      if (fresh.length === room) {
        more = true;
        break;
      }
      fresh.push(line);
      next = { line: line.number + 1, offset: line.end };
    }
  }
  const again = new Map(due.map((retry) => [retry.line, retry]));
  const tasks = [...due, ...fresh.map((line): Task => ({ line: line.number, offset: line.offset, tries: 0 }))];
  const done = await linesWithResult(services, row, tasks);
  const lines = new Map<number, InputLine>(fresh.map((line) => [line.number, line]));
  const open = tasks.filter((task) => !done.has(task.line));

  const keep = resultWriter(claim);
  const stop = new AbortController();
  const signal = AbortSignal.any([claim.signal, claim.cancelled, stop.signal]);
  let refused: { readonly reason: string } | null = null;
  const settled = await Promise.allSettled(
    open.map(async (task) => {
      try {
        const line = lines.get(task.line) ?? (await lineAt(services, row, task));
        const fate = await runTask(services, row, task, line, signal, started);
        if (fate.kind === 'result' || fate.kind === 'stop') await keep(task.line, fate.line);
        if (fate.kind === 'stop' && refused === null) {
          refused = { reason: fate.reason };
          stop.abort(new SluiceError('client_closed', fate.reason));
        }
        return fate;
      } catch (error) {
        // What cannot be kept ends the turn; the others need not go on for nothing.
        stop.abort(error);
        throw error;
      }
    }),
  );
  claim.signal.throwIfAborted();
  const fates = settled.map((one): Fate => {
    if (one.status === 'rejected') throw one.reason;
    return one.value;
  });

  const retries = [
    ...progress.retries.filter((retry) => !again.has(retry.line)),
    ...fates.flatMap((fate) => (fate.kind === 'retry' ? [fate.retry] : [])),
  ];
  const waiting = fates.flatMap((fate) => (fate.kind === 'retry' && fate.limited ? [fate.retry.at] : []));
  const patch: Partial<BatchProgress> = {
    next,
    retries,
    width: widthAfter(progress, bucket, open.length, waiting.length),
  };
  const left = fates.some((fate) => fate.kind === 'left');
  const stopped = refused as { readonly reason: string } | null;
  if (stopped !== null) return conclude(claim, stoppedBy(stopped.reason), patch);
  if (!left && !more && retries.length === 0) return conclude(claim, COMPLETED, patch);
  const written = await claim.write(async (tx, now, at) => {
    const counts = await countsOf(tx, now);
    return {
      // What was cut off by a cancellation stays as it was: the end of the batch tells about it.
      progress: stored(left ? progressOf(now) : { ...progressOf(now), ...patch }),
      ...changed(now, statusOf(now, 'in_progress'), at, { request_counts: counts }),
    };
  });
  if (left || written.cancel_requested) return { again: 0 };
  // Nothing new is begun while a limit holds: it would be refused as well.
  if (waiting.length > 0) return { again: Math.max(0, Math.min(...waiting) - services.clock.now()) };
  const soonest = more && retries.length < bucket ? started + flushMs : Math.min(...retries.map((retry) => retry.at));
  return { again: Math.max(0, Math.max(soonest, started + flushMs) - services.clock.now()) };
}

const COMPLETED: End = {
  status: 'completed',
  unrun: { code: 'batch_failed', message: 'The request was not run.' },
  fault: null,
};

const CANCELLED: End = {
  status: 'cancelled',
  unrun: { code: 'batch_cancelled', message: 'The batch was cancelled before this request was run.' },
  fault: null,
};

function stoppedBy(reason: string): End {
  return {
    status: 'failed',
    unrun: { code: 'batch_failed', message: `The batch was stopped before this request was run: ${reason}` },
    fault: {
      code: 'invalid_api_key',
      message: `The API key that created the batch may not call any more: ${reason}`,
      param: null,
      line: null,
    },
  };
}

/**
 * Requests of the next flush. After Sluice's own limits refused some: as many as passed, else one less than were sent;
 * after that one more with every flush, until they refuse again.
 */
function widthAfter(progress: BatchProgress, bucket: number, sent: number, limited: number): number {
  if (limited === 0) return Math.min(bucket, progress.width + 1);
  return Math.max(1, sent > limited ? sent - limited : sent - 1);
}

/** Whether the batch has to end now, whatever is left. */
function endOf(row: BatchRow, progress: BatchProgress, now: number): End | null {
  if (row.cancel_requested) return CANCELLED;
  if (now < progress.expiresAt) return null;
  return {
    status: 'expired',
    unrun: { code: 'batch_expired', message: 'The batch expired before this request was run.' },
    fault: null,
  };
}

/** Decides the end; the files are written in the next turn. */
export async function conclude(claim: BatchClaim, end: End, patch: Partial<BatchProgress> = {}): Promise<Turn> {
  await claim.write(async (tx, row, now) => ({
    step: 'write',
    progress: stored({ ...progressOf(row), ...patch, end }),
    ...changed(row, statusOf(row, end.status === 'completed' ? 'finalizing' : publicOf(row).status), now, {
      request_counts: await countsOf(tx, row),
    }),
  }));
  return { again: 0 };
}

type Counter = Pick<Parameters<Parameters<BatchClaim['write']>[0]>[0], 'count'>;

/** Counted, not added up: a turn that is repeated must not count twice. */
async function countsOf(tx: Counter, row: BatchRow) {
  const where = { organisation_id: row.organisation_id, batch_id: row.id };
  const completed = await tx.count('batch_results', { where: { ...where, ok: true } });
  const failed = await tx.count('batch_results', { where: { ...where, ok: false } });
  return { total: publicOf(row).request_counts?.total ?? 0, completed, failed };
}

async function linesWithResult(services: BatchServices, row: BatchRow, tasks: readonly Task[]): Promise<Set<number>> {
  if (tasks.length === 0) return new Set();
  const found = await services.tables.read(tenantOfRow(row), (tx) =>
    tx.list('batch_results', { where: { batch_id: row.id, line: { in: tasks.map((task) => task.line) } } }),
  );
  return new Set(found.map((result) => result.line));
}

async function lineAt(services: BatchServices, row: BatchRow, task: Task): Promise<InputLine> {
  for await (const line of inputLines(services, row, task)) return line;
  throw goneInput();
}

interface Kept {
  readonly line: number;
  readonly result: ResultLine;
  readonly done: () => void;
  readonly failed: (error: unknown) => void;
}

/**
 * Writes results as soon as they are there, one transaction at a time: what arrives while one is under way goes into the
 * next together, so that a flush does not compete with itself. A line that has a result keeps it.
 */
function resultWriter(claim: BatchClaim): (line: number, result: ResultLine) => Promise<void> {
  let waiting: Kept[] = [];
  let writing = false;

  async function writeAll(): Promise<void> {
    writing = true;
    while (waiting.length > 0) {
      const group = waiting;
      waiting = [];
      try {
        await claim.write(async (tx, row, now) => {
          const { organisation_id, workspace_id, id } = row;
          for (const { line, result } of group) {
            if ((await tx.find('batch_results', { organisation_id, batch_id: id, line })) !== undefined) continue;
            await tx.insert('batch_results', {
              organisation_id,
              workspace_id,
              batch_id: id,
              line,
              ok: isSuccess(result),
              result: JSON.stringify(result),
              created_at: now,
            });
          }
          return {};
        });
        for (const one of group) one.done();
      } catch (error) {
        for (const one of group) one.failed(error);
      }
    }
    writing = false;
  }

  return (line, result) =>
    new Promise((done, failed) => {
      waiting.push({ line, result, done, failed });
      if (!writing) void writeAll();
    });
}

async function runTask(
  services: BatchServices,
  row: BatchRow,
  task: Task,
  line: InputLine,
  signal: AbortSignal,
  started: number,
): Promise<Fate> {
  const { flushMs, retries } = settingsOf(services);
  if (signal.aborted) return { kind: 'left' };
  const work = workOf(row);
  const answer = await services.runLine({
    keyId: work.keyId,
    organisationId: row.organisation_id,
    workspaceId: row.workspace_id,
    endpoint: work.batch.endpoint,
    headers: headersOf(row, line.number),
    body: withModel(line.request.body, work.batch.model),
    signal,
  });
  if (signal.aborted && answer.status === 499) return { kind: 'left' };
  const result = resultOf(row, line, answer);
  if (answer.keyRefused !== null) return { kind: 'stop', line: result, reason: answer.keyRefused };
  const wait = Math.min(answer.retryAfterMs ?? 0, MAX_WAIT_MS);
  if (answer.limited) {
    // The batch keeps to the limit's pace; no request fails because the key's others were faster.
    const retry = { line: task.line, offset: task.offset, tries: task.tries, at: started + Math.max(flushMs, wait) };
    return { kind: 'retry', retry, limited: true };
  }
  if (PASSING.has(answer.status) && task.tries < retries) {
    const at = started + Math.max(flushMs * 2 ** task.tries, wait);
    return {
      kind: 'retry',
      retry: { line: task.line, offset: task.offset, tries: task.tries + 1, at },
      limited: false,
    };
  }
  return { kind: 'result', line: result };
}

/** The line's own model, else the batch's. */
function withModel(body: JsonObject, model: string | null): JsonObject {
  return model === null ? body : { ...body, model };
}

/**
 * Gateway headers of a line's request. All lines share the batch as their trace, and metadata says which line a record
 * belongs to.
 */
function headersOf(row: BatchRow, line: number): Record<string, string> {
  const { options } = workOf(row);
  const given = options['x-gateway-metadata'];
  let metadata: Record<string, JsonValue | undefined> = {};
  if (given !== undefined) metadata = parseExact(given) as JsonObject;
  return {
    'x-gateway-trace-id': row.id,
    ...options,
    'x-gateway-span-id': createHash('sha256').update(`${row.id} ${line}`).digest('hex').slice(0, 16),
    'x-gateway-metadata': JSON.stringify({ ...metadata, _batch_id: row.id, _batch_line: String(line) }),
  };
}

function resultOf(row: BatchRow, line: InputLine, answer: LineAnswer): ResultLine {
  return {
    id: resultId(row.id, line.number),
    custom_id: line.request.custom_id,
    response: {
      status_code: answer.status,
      request_id: answer.requestId === '' ? null : answer.requestId,
      body: answer.body as JsonValue,
    },
    error: null,
  };
}
