/**
 * Sluice runs the requests of a batch itself: so many at a time, each through the whole data plane as the key that made
 * the batch. How fast that is, limits, the provider's answers and the setting decide.
 *
 * A request's result is one row, written once, as soon as its answer is there. A process that is killed between an answer
 * and its row has made the call and has recorded and charged it, but the batch does not know: the request is run again
 * and recorded again, as both calls were made. What callers read is one result for every line in any case.
 */
import { createHash } from 'node:crypto';
import { callerOf } from '../../auth/held-caller.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject, JsonValue } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import { headerJson } from '../../kernel/text.ts';
import type { BatchStatus } from '../../operations/training.ts';
import type { ResultLine } from '../../providers/batch-lines.ts';
import type { InternalCallAnswer } from '../../runtime/internal-call.ts';
import type { Tables } from '../../store/ports.ts';
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
import { settingsOf, type TurnServices } from './batch-services.ts';
import { isSuccess, resultId } from './result-line.ts';

/** Failures that may pass. */
const PASSING = new Set([408, 409, 425, 429, 500, 502, 503, 504, 529]);
/** Longest wait an answer may ask for. */
const MAX_WAIT_MS = 60 * 60_000;
/** Answers by which a provider says that there are too many. */
const TOO_MANY = new Set([429, 529]);
/** A turn begins no further request after so long, or so many lines: then what was done is noted. */
const TURN_MS = 30_000;
const TURN_LINES = 2_000;
/** Least wait for a limit of Sluice that names none. */
const LIMIT_MS = 1_000;

interface Task {
  readonly line: number;
  readonly offset: number;
  readonly tries: number;
}

/** What became of one request. */
type Fate =
  | { readonly kind: 'result'; readonly line: ResultLine }
  /** `slow`: fewer are to be under way, and none is begun before it is tried again. */
  | { readonly kind: 'retry'; readonly retry: Retry; readonly slow: boolean }
  | { readonly kind: 'stop'; readonly line: ResultLine; readonly reason: string }
  /** The turn was ended from outside; the request counts as not run. */
  | { readonly kind: 'left' };

export type End = NonNullable<BatchProgress['end']>;

/** Runs requests until the turn is long enough, something refuses to go as fast, or none is left. */
export async function runLines(claim: BatchClaim, services: TurnServices): Promise<Turn> {
  const { concurrency } = settingsOf(services);
  const { clock } = services;
  const row = claim.row;
  const progress = progressOf(row);
  const started = clock.now();
  const over = endOf(row, progress, started);
  if (over !== null) return conclude(claim, over);

  const width = Math.min(concurrency, progress.width);
  const due = progress.retries.filter((retry) => retry.at <= started);
  const retries = progress.retries.filter((retry) => retry.at > started);
  const until = progress.next.line + TURN_LINES;
  const done = await linesWithResult(
    services.tables,
    row,
    progress.next.line,
    until,
    due.map(({ line }) => line),
  );
  const stop = new AbortController();
  const signal = AbortSignal.any([claim.signal, claim.cancelled, stop.signal]);
  let next = progress.next;
  let more = false;
  let notBefore = progress.notBefore ?? 0;
  let slow = false;
  let passed = 0;
  let left = false;
  let refused: { readonly reason: string } | null = null;

  // Read only when there is room for one: a request may be large.
  async function* tasks(): AsyncGenerator<Task & { readonly input: InputLine }> {
    for (const retry of due) {
      if (signal.aborted || slow) retries.push(retry);
      else if (!done.has(retry.line)) yield { ...retry, input: await lineAt(services, row, retry) };
    }
    more = true;
    if (started < notBefore) return;
    for await (const input of inputLines(services, row, next)) {
      next = { line: input.number, offset: input.offset };
      // Requests that wait are bounded.
      if (signal.aborted || slow || retries.length >= concurrency) return;
      if (input.number >= until || clock.now() - started >= TURN_MS) return;
      next = { line: input.number + 1, offset: input.end };
      if (!done.has(input.number)) yield { line: input.number, offset: input.offset, tries: 0, input };
    }
    more = false;
  }

  const keep = resultWriter(claim);
  const open = tasks();
  const work = async () => {
    for (;;) {
      const one = await open.next();
      if (one.done === true) return;
      const task = one.value;
      const fate = await runTask(services, row, task, task.input, signal);
      if (fate.kind === 'result' || fate.kind === 'stop') await keep(task.line, fate.line);
      if (fate.kind === 'result') passed += 1;
      if (fate.kind === 'left') left = true;
      if (fate.kind === 'retry') {
        retries.push(fate.retry);
        slow ||= fate.slow;
        if (fate.slow) notBefore = Math.max(notBefore, fate.retry.at);
      }
      if (fate.kind === 'stop' && refused === null) {
        refused = { reason: fate.reason };
        stop.abort(new SluiceError('client_closed', fate.reason));
      }
    }
  };
  const workers = await Promise.allSettled(
    Array.from({ length: width }, () =>
      work().catch((error: unknown) => {
        // What cannot be kept ends the turn; the others need not go on for nothing.
        stop.abort(error);
        throw error;
      }),
    ),
  );
  claim.signal.throwIfAborted();
  for (const worker of workers) if (worker.status === 'rejected') throw worker.reason;

  const patch: Partial<BatchProgress> = {
    next,
    retries,
    notBefore,
    width: slow ? Math.max(1, Math.min(Math.floor(width / 2), passed)) : Math.min(concurrency, width * 2),
  };
  const stopped = refused as { readonly reason: string } | null;
  if (stopped !== null) return conclude(claim, stoppedBy(stopped.reason), patch);
  if (!left && !more && retries.length === 0) return conclude(claim, COMPLETED, patch);
  const written = await claim.write(async (_tx, now, at) => ({
    // A line that a cancellation cut off stays as it was: the end of the batch tells about it.
    progress: stored(left ? progressOf(now) : { ...progressOf(now), ...patch }),
    ...changed(now, statusOf(now, 'in_progress'), at),
  }));
  if (left || written.cancel_requested) return { again: 0 };
  const soonest = more && retries.length < concurrency ? notBefore : Math.min(...retries.map((retry) => retry.at));
  return { again: Math.max(0, Math.min(soonest, ...retries.map((retry) => retry.at)) - clock.now()) };
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

/** Counted once, at the end: meanwhile each result is added in the transaction that writes it. */
async function countsOf(tx: Counter, row: BatchRow) {
  const where = { organisation_id: row.organisation_id, batch_id: row.id };
  const completed = await tx.count('batch_results', { where: { ...where, ok: true } });
  const failed = await tx.count('batch_results', { where: { ...where, ok: false } });
  return { total: publicOf(row).request_counts?.total ?? 0, completed, failed };
}

/**
 * Of lines that may be run now (`from` to before `until`, and `retried`), those that a turn before this one ran and did not
 * note. Two look-ups: for either in one statement SQLite reads all results of the batch, each turn more.
 */
export async function linesWithResult(
  tables: Pick<Tables, 'read'>,
  row: Pick<BatchRow, 'id' | 'organisation_id' | 'workspace_id'>,
  from: number,
  until: number,
  retried: readonly number[],
): Promise<Set<number>> {
  return tables.read(tenantOfRow(row), async (tx) => {
    const of = { batch_id: row.id };
    const next = await tx.list('batch_results', { where: { ...of, line: { gte: from, lt: until } } });
    const again =
      retried.length === 0 ? [] : await tx.list('batch_results', { where: { ...of, line: { in: retried } } });
    return new Set([...next, ...again].map(({ line }) => line));
  });
}

async function lineAt(services: TurnServices, row: BatchRow, task: Task): Promise<InputLine> {
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
          const lines = group.map(({ line }) => line);
          const known = await tx.list('batch_results', {
            where: { organisation_id, batch_id: id, line: { in: lines } },
          });
          const has = new Set(known.map(({ line }) => line));
          const counts = { total: 0, completed: 0, failed: 0, ...publicOf(row).request_counts };
          for (const { line, result } of group) {
            if (has.has(line)) continue;
            counts[isSuccess(result) ? 'completed' : 'failed'] += 1;
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
          return changed(row, row.status as BatchStatus, now, { request_counts: counts });
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
  services: TurnServices,
  row: BatchRow,
  task: Task,
  line: InputLine,
  signal: AbortSignal,
): Promise<Fate> {
  const { retryMs, retries } = settingsOf(services);
  if (signal.aborted) return { kind: 'left' };
  const work = workOf(row);
  const answer = await services.runLine({
    keyId: work.keyId,
    ...callerOf(work),
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
  const { line: number, offset, tries } = task;
  const now = services.clock.now();
  if (answer.limited) {
    // The batch keeps to the limit's pace; no request fails because the key's others were faster.
    return { kind: 'retry', retry: { line: number, offset, tries, at: now + Math.max(LIMIT_MS, wait) }, slow: true };
  }
  if (PASSING.has(answer.status) && tries < retries) {
    const at = now + Math.max(retryMs * 2 ** tries, wait);
    const slow = TOO_MANY.has(answer.status);
    // A provider that says when to come again has not failed: the batch keeps to its pace too.
    const asked = slow && answer.retryAfterMs !== null;
    return { kind: 'retry', retry: { line: number, offset, tries: asked ? tries : tries + 1, at }, slow };
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
    'x-gateway-metadata': headerJson({ ...metadata, _batch_id: row.id, _batch_line: String(line) }),
  };
}

function resultOf(row: BatchRow, line: InputLine, answer: InternalCallAnswer): ResultLine {
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
