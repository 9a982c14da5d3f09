/** What the data plane gives to the thread for large bodies, and how it takes the results. */

import { borrowBuffer, keepBuffer, returnBuffer } from '../../http/buffer-pool.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import { factsOf, type ScanResult, scanOf } from '../../kernel/json-scan.ts';
import { askedOf, rememberAsked } from '../../providers/binding.ts';
import type { CallContext } from '../../providers/provider.ts';
import type { References } from '../../runtime/references.ts';
import type { Uses } from '../exchange.ts';
import type { Media } from '../media-names.ts';
import type { AnswerOrder, ReadAnswer } from '../relay/read-answer.ts';
import type { BodyOrder, MadeBody } from '../request-body.ts';
import type { Shaping } from '../shaping.ts';
import type { LlmRequest } from '../state/request.ts';
import type { Target } from '../target.ts';
import { bufferOf, type CallFacts, type Done, type Job, type SentOrder } from './jobs.ts';
import { MAX_SETTINGS } from './settings.ts';

/** Bytes of a body from which on it is read, converted and written by the thread: 4 ms for each megabyte. */
const LARGE_BODY = 512 * 1024;
/** Its weight from which on it is: what a transform makes of so many values takes 10 ms at the worst. */
const HEAVY_BODY = 50_000;
/** Bytes of a body from which on the thread scans it. */
const LARGE_SCAN = 1024 * 1024;
/** Bytes of an answer, of which nobody knows how heavy it is before it is read. */
const LARGE_ANSWER = 128 * 1024;

export const isLargeBody = ({ body, scan, media }: BodyOrder): boolean =>
  body.bytes.length > LARGE_BODY || scan.weight > HEAVY_BODY || (media !== null && charactersOf(media) > LARGE_BODY);

function charactersOf(media: Media): number {
  let sum = 0;
  for (const data of media.values())
    sum += typeof data === 'string' ? data.length : data.reduce((all, piece) => all + piece.length, 0);
  return sum;
}

export const isLargeRead = (bytes: number): boolean => bytes > LARGE_BODY;
export const isLargeScan = (body: Buffer): boolean => body.length > LARGE_SCAN;
export const isLargeAnswer = (bytes: number): boolean => bytes > LARGE_ANSWER;

/** More than `buffer-pool.ts` keeps for one thread alone. */
const PIECE = 2 * 1024 * 1024;

/** Bytes as they come, over lent memory that threads share. */
export class SharedPieces {
  readonly #full: Buffer[] = [];
  #piece: Buffer = borrowBuffer(PIECE);
  #at = 0;

  add(chunk: Buffer): void {
    for (let from = 0; from < chunk.length; ) {
      if (this.#at === PIECE) {
        this.#full.push(this.#piece);
        this.#piece = borrowBuffer(PIECE);
        this.#at = 0;
      }
      const copied = chunk.copy(this.#piece, this.#at, from);
      this.#at += copied;
      from += copied;
    }
  }

  pieces(): readonly Buffer[] {
    return [...this.#full, this.#piece.subarray(0, this.#at)];
  }

  /** All of their memory. */
  memory(): readonly Buffer[] {
    return [...this.#full, this.#piece];
  }

  /** Nobody reads them any more, but for a thread that was lent them. Called once; without it the garbage collector ends them. */
  giveBack(): void {
    for (const piece of [...this.#full, this.#piece]) returnBuffer(piece);
  }
}

/** Like `scanJson`, and looks for `texts`, too. Rejects with its errors, and where the client leaves. */
export function scanOnThread(
  x: Uses<'cancel' | 'clientGone' | 'request', 'large'>,
  body: Buffer,
  wanted: readonly string[],
  texts: readonly string[] = [],
): Promise<ScanResult> {
  const handed = nothing();
  return waited(x, { kind: 'scan', body: sent(body, handed), wanted, texts }, handed).then(scanOf);
}

/** Like `referencesIn`. */
export function referencesOnThread(
  x: Uses<'cancel' | 'clientGone' | 'request', 'large'>,
  parts: readonly Buffer[],
): Promise<References | null> {
  const handed = nothing();
  const body = parts.map((part) => sent(part, handed));
  return waited(x, { kind: 'references', body }, handed).then(({ references }) => references);
}

/** Like `namedMedia`, of the body of the request. */
export function namedMediaOnThread(
  x: Uses<'attempt' | 'cancel' | 'clientGone' | 'request', 'large'>,
  target: Target,
  context: CallContext,
  shaping: Shaping | null,
): Promise<readonly string[]> {
  const handed = nothing();
  const call = factsOfCall(x.request, target, context);
  return waited(x, { kind: 'media', call, body: sent(x.attempt.body.bytes, handed), shaping }, handed).then(
    ({ urls }) => urls,
  );
}

/** Like `makeBody`. `known`: the settings of the request are remembered with the context, as its stream may ask for them. */
export async function makeBodyOnThread(
  x: Uses<'attempt' | 'cancel' | 'clientGone' | 'request', 'large'>,
  target: Target,
  context: CallContext,
  order: BodyOrder,
  seen: string[],
): Promise<{ readonly made: MadeBody; readonly known: boolean }> {
  const handed = nothing();
  const call = factsOfCall(x.request, target, context);
  const done = await waited(x, { kind: 'body', call, order: sentOrder(order, handed) }, handed);
  seen.push(...done.seen);
  if (done.settings !== null) rememberAsked(context, parseExact(done.settings) as JsonObject);
  else if (x.attempt.stream) throw tooManySettings();
  const { edits, parts } = done.made;
  const made = {
    ...done.made,
    edits: edits?.map((edit) => ({ ...edit, bytes: bufferOf(edit.bytes) })) ?? null,
    parts: parts.map(bufferOf),
    written: null,
  };
  return { made, known: done.settings !== null };
}

function tooManySettings(): SluiceError {
  const message = `Instructions, tools, metadata and the format of the answer together are larger than ${MAX_SETTINGS} bytes, which is more than is repeated in the events of a stream. Send a smaller request, or one with stream false.`;
  return new SluiceError('too_large', message);
}

/**
 * Like `readAnswer`; gives what drops it. `settle` also gets the bytes for the caller: the result has taken the place of the answer
 * in its memory where there is room.
 *
 * @param made what a thread has made the request of
 */
export function readAnswerOnThread(
  x: Uses<'request', 'large'>,
  target: Target,
  context: CallContext,
  made: BodyOrder | null,
  order: Omit<AnswerOrder, 'raw'> & { readonly raw: SharedPieces },
  settle: (read: ReadAnswer | Error, parts: readonly Buffer[]) => void,
): () => void {
  const handed = nothing();
  const given = context.body ?? askedOf(context);
  const asked = made !== null ? sentOrder(made, handed) : given === undefined ? null : JSON.stringify(given);
  const call = factsOfCall(x.request, target, context);
  const raw = order.raw.pieces();
  const into = order.raw.memory();
  const answer = { ...order, raw: raw.map((piece) => sent(piece, handed)) };
  return run(x, { kind: 'answer', call, answer, asked, into }, handed, (done) => {
    if (done instanceof Error) {
      settle(done, raw);
      return;
    }
    const { written, ...read } = done;
    const bytes = read.bytes === null ? null : bufferOf(read.bytes);
    const parts = written === null ? (bytes === null ? raw : [bytes]) : beginning(into, written);
    settle({ ...read, usage: parsed(read.usage), made: parsed(read.made), bytes }, parts);
  });
}

function beginning(pieces: readonly Buffer[], length: number): Buffer[] {
  const out: Buffer[] = [];
  for (let left = length, i = 0; left > 0; i++) {
    const part = (pieces[i] as Buffer).subarray(0, left);
    out.push(part);
    left -= part.length;
  }
  return out;
}

const parsed = (text: string | null): JsonObject | null => (text === null ? null : (parseExact(text) as JsonObject));

/** What goes over with a job. */
export interface Handed {
  /** Memory that is given away. */
  readonly memory: ArrayBuffer[];
  /** Ends the keeping of lent memory: while the thread reads it, no other body may be written to it. */
  readonly drops: (() => void)[];
}

export const nothing = (): Handed => ({ memory: [], drops: [] });

/** Bytes as they go over: shared memory as it is, other memory as a copy that is given away. */
export function sent(bytes: Buffer, { memory, drops }: Handed): Uint8Array {
  if (bytes.buffer instanceof SharedArrayBuffer) {
    drops.push(keepBuffer(bytes));
    return bytes;
  }
  const copy = new Uint8Array(bytes.length);
  copy.set(bytes);
  memory.push(copy.buffer);
  return copy;
}

function sentOrder(order: BodyOrder, handed: Handed): SentOrder {
  const { body, came, scan, prefill } = order;
  return {
    ...order,
    body: sent(body.bytes, handed),
    came: came === null ? null : sent(came.bytes, handed),
    scan: factsOf(scan),
    prefill: prefill === null ? null : { message: prefill.message, body: prefill.body },
  };
}

function factsOfCall(request: LlmRequest, target: Target, context: CallContext): CallFacts {
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(request.incoming.headers))
    if (typeof value === 'string') headers[name] = value;
  const { credentials, pathParams } = context;
  return {
    provider: target.provider.id,
    operation: context.operation,
    model: context.model,
    stream: context.stream,
    hasKey: credentials.key !== null,
    settings: credentials.settings,
    pathParams: { ...pathParams },
    headers,
    strict: context.strict,
    elsewhere: context.elsewhere === true,
    now: context.now(),
    requestId: context.requestId ?? null,
  };
}

/** A job that is dropped may still be under way: what it was lent is then left to the garbage collector. */
function run<J extends Job>(
  x: Uses<'request', 'large'>,
  job: J,
  { memory, drops }: Handed,
  settle: (done: Done<J> | Error) => void,
): () => void {
  return x.services.large.run(x.request.organisationId, { job, memory }, (done) => {
    for (const drop of drops) drop();
    settle(done);
  });
}

/** The result, for as long as the client waits for it. */
function waited<J extends Job>(
  x: Uses<'cancel' | 'clientGone' | 'request', 'large'>,
  job: J,
  handed: Handed,
): Promise<Done<J>> {
  return new Promise((resolve, reject) => {
    if (x.clientGone) throw new SluiceError('client_closed', 'The client closed the connection.');
    const { cancel } = x;
    const drop = run(x, job, handed, (done) => {
      x.cancel = cancel;
      if (done instanceof Error) reject(done);
      else resolve(done);
    });
    x.cancel = (error) => {
      x.cancel = cancel;
      drop();
      reject(error);
    };
  });
}
