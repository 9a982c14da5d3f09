/**
 * What is done with large bodies, as data in and data out: the thread of `worker.ts` does it, so that no body holds the event
 * loop. Each job calls the function that small bodies go through in the event loop itself.
 */
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import {
  factsOf,
  type JsonFault,
  JsonScanError,
  type ScanFacts,
  scanJson,
  scanOf,
  withTexts,
} from '../../kernel/json-scan.ts';
import { Secret } from '../../kernel/secret.ts';
import { OPERATIONS, type OperationId } from '../../operations/operation.ts';
import { askedOf, bindingFor } from '../../providers/binding.ts';
import { PROVIDERS } from '../../providers/catalog.ts';
import type { CallContext } from '../../providers/provider.ts';
import { type References, referencesIn } from '../../runtime/references.ts';
import { namedMedia } from '../media-names.ts';
import { type AnswerOrder, type ReadAnswer, readAnswer } from '../relay/read-answer.ts';
import { askedBody, type BodyOrder, type MadeBody, makeBody } from '../request-body.ts';
import type { Shaping } from '../shaping.ts';
import { RequestBody } from '../state/body.ts';
import { settingsOf } from './settings.ts';

/** A `CallContext` as data. */
export interface CallFacts {
  readonly provider: string;
  readonly operation: OperationId;
  readonly model: string;
  readonly stream: boolean;
  readonly hasKey: boolean;
  readonly settings: Readonly<Record<string, unknown>>;
  readonly pathParams: Readonly<Record<string, string>>;
  /** Of the caller. */
  readonly headers: Readonly<Record<string, string>>;
  readonly strict: boolean;
  readonly elsewhere: boolean;
  readonly now: number;
  readonly requestId: string | null;
}

type Bytes = Uint8Array;

export interface SentOrder extends Omit<BodyOrder, 'body' | 'came' | 'scan'> {
  readonly body: Bytes;
  readonly came: Bytes | null;
  readonly scan: ScanFacts;
}

export interface ScanJob {
  readonly kind: 'scan';
  readonly body: Bytes;
  readonly wanted: readonly string[];
  /** Texts that are looked for in it. */
  readonly texts?: readonly string[];
}

export interface BodyJob {
  readonly kind: 'body';
  readonly call: CallFacts;
  readonly order: SentOrder;
}

export interface AnswerJob {
  readonly kind: 'answer';
  readonly call: CallFacts;
  readonly answer: Omit<AnswerOrder, 'raw'> & { readonly raw: readonly Bytes[] };
  /** The body of the request: what it was made of, or itself as JSON; null: no transform has seen it. */
  readonly asked: SentOrder | string | null;
  /** Shared memory of the answer, which nobody reads any more once it is converted: the result is written there if it fits. */
  readonly into: readonly Bytes[];
}

/** What the body names of the objects at an account. */
export interface ReferencesJob {
  readonly kind: 'references';
  readonly body: readonly Bytes[];
}

/** The pictures and files that the body names by addresses, of those that the provider does not read itself. */
export interface MediaJob {
  readonly kind: 'media';
  readonly call: CallFacts;
  readonly body: Bytes;
  readonly shaping: Shaping | null;
}

export type Job = ScanJob | BodyJob | AnswerJob | ReferencesJob | MediaJob;

export interface BodyDone {
  readonly made: MadeBody;
  /** Headers of the caller that were looked at, `name, value`. */
  readonly seen: readonly string[];
  /** What the stream of the answer may ask of the body, as JSON; null: more than it may. */
  readonly settings: string | null;
}

/** An answer whose `usage` and `made` are JSON: numbers that no double holds do not travel otherwise. */
export interface AnswerDone extends Omit<ReadAnswer, 'usage' | 'made'> {
  readonly usage: string | null;
  readonly made: string | null;
  /** So many bytes of the result are in the memory of the answer, and `bytes` is null; null: they are not. */
  readonly written: number | null;
}

/** `references` is null where the body is no JSON. */
export interface ReferencesDone {
  readonly references: References | null;
}

export interface MediaDone {
  readonly urls: readonly string[];
}

export type Done<J extends Job> = J extends ScanJob
  ? ScanFacts
  : J extends BodyJob
    ? BodyDone
    : J extends AnswerJob
      ? AnswerDone
      : J extends ReferencesJob
        ? ReferencesDone
        : MediaDone;

/** An error as data: what a caller or a log learns of it. */
export type Failure =
  | { readonly of: 'scan'; readonly reason: JsonFault; readonly offset: number; readonly message: string }
  | { readonly of: 'sluice'; readonly error: Record<string, unknown> }
  | { readonly of: 'other'; readonly message: string };

export type Reply = { readonly done: Done<Job> } | { readonly failure: Failure };

/** Does one job. Never throws. */
export function perform(job: Job): Reply {
  try {
    return { done: doneOf(job) };
  } catch (error) {
    return { failure: failureOf(error) };
  }
}

function doneOf(job: Job): Done<Job> {
  switch (job.kind) {
    case 'scan': {
      const body = bufferOf(job.body);
      return withTexts(factsOf(scanJson(body, job.wanted)), body, job.texts ?? []);
    }
    case 'body':
      return bodyDone(job);
    case 'answer':
      return answerDone(job);
    case 'references':
      return { references: referencesIn(Buffer.concat(job.body)) };
    case 'media':
      return mediaDone(job);
  }
}

function bodyDone({ call, order: sent }: BodyJob): BodyDone {
  const seen: string[] = [];
  const context = contextOf(call, seen);
  const bound = boundOf(call, context);
  const made = makeBody(orderOf(sent), bound, context);
  const asked = askedOf(context);
  return { made: { ...made, written: null }, seen, settings: asked === undefined ? '{}' : settingsOf(asked) };
}

function mediaDone({ call, body, shaping }: MediaJob): MediaDone {
  const { binding } = boundOf(call, contextOf(call, []));
  const { conversations } = OPERATIONS[call.operation].wire;
  const { inlines } = binding;
  return {
    urls:
      inlines === undefined
        ? []
        : namedMedia(conversations, new RequestBody(bufferOf(body), null).under(shaping), inlines),
  };
}

function answerDone(job: AnswerJob): AnswerDone {
  const { call, answer, asked } = job;
  const given = contextOf(call, []);
  const bound = boundOf(call, given);
  const body =
    asked === null
      ? undefined
      : typeof asked === 'string'
        ? (parseExact(asked) as JsonObject)
        : askedBody(orderOf(asked), bound, given);
  const context = body === undefined ? given : { ...given, body };
  const read = readAnswer({ ...answer, raw: Buffer.concat(answer.raw) }, bound, context);
  const written = read.bytes === null ? null : writeInto(job.into, read.bytes);
  const bytes = written === null ? read.bytes : null;
  return { ...read, bytes, written, usage: jsonOf(read.usage), made: jsonOf(read.made) };
}

/** Writes the bytes to this memory and says how many they are; null where they do not fit. */
function writeInto(into: readonly Bytes[], bytes: Buffer): number | null {
  let room = 0;
  for (const piece of into) room += piece.length;
  if (room < bytes.length) return null;
  let at = 0;
  for (const piece of into) {
    const part = bytes.subarray(at, at + piece.length);
    piece.set(part);
    at += part.length;
  }
  return bytes.length;
}

const jsonOf = (value: JsonObject | null): string | null => (value === null ? null : JSON.stringify(value));

function contextOf(call: CallFacts, seen: string[]): CallContext {
  const { headers } = call;
  const read = (name: string) => (headers[name] === '' ? undefined : headers[name]);
  return {
    operation: call.operation,
    model: call.model,
    stream: call.stream,
    // No transform reads a key; some ask whether there is one.
    credentials: { key: call.hasKey ? new Secret('') : null, settings: call.settings },
    pathParams: call.pathParams,
    header(name) {
      const value = read(name) ?? read(`x-gateway-${name}`);
      if (value !== undefined) seen.push(name, value);
      return value;
    },
    strict: call.strict,
    elsewhere: call.elsewhere,
    now: () => call.now,
    ...(call.requestId === null ? null : { requestId: call.requestId }),
  };
}

function boundOf({ provider: id, operation, model }: CallFacts, { credentials }: CallContext) {
  const provider = PROVIDERS.get(id);
  const bound = provider === undefined ? null : bindingFor(provider, operation, model, credentials);
  if (bound === null) throw new Error(`no provider ${id} with the operation ${operation}`);
  return bound;
}

function orderOf(sent: SentOrder): BodyOrder {
  const { came } = sent;
  const scan = scanOf(sent.scan);
  const body = new RequestBody(bufferOf(sent.body), scan);
  return { ...sent, body, came: came === null ? null : new RequestBody(bufferOf(came), null), scan };
}

/** The same memory as a Buffer, which no longer is one when it has come from another thread. */
export function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

export function failureOf(error: unknown): Failure {
  if (error instanceof JsonScanError) {
    const { reason, offset, message } = error;
    return { of: 'scan', reason, offset, message };
  }
  if (error instanceof SluiceError) {
    const { kind, message, param, reason, provider, retryAfter, errors, problems } = error;
    const detail = error.detail === undefined ? undefined : String(error.detail);
    return { of: 'sluice', error: { kind, message, param, reason, provider, retryAfter, errors, problems, detail } };
  }
  return { of: 'other', message: error instanceof Error ? (error.stack ?? error.message) : String(error) };
}

/** The error that a job threw, as if it had been thrown here. */
export function errorOf(failure: Failure): Error {
  if (failure.of === 'scan') {
    const { reason, offset, message } = failure;
    return Object.assign(new JsonScanError(reason, offset), { message });
  }
  if (failure.of === 'other') return new Error('A large body could not be worked on.', { cause: failure.message });
  const { kind, message, ...facts } = failure.error as unknown as SluiceError;
  return Object.assign(new SluiceError(kind, message), facts);
}
