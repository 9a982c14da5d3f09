/** What the training adapters share: building calls, reading answers, refusing fields, cutting pages. */
import { SluiceError } from '../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import { parseJson } from '../kernel/json-exact.ts';
import { quoted } from '../operations/convert/fields.ts';
import { embeddedError, type ProviderError, readProviderError } from '../operations/dialects/provider-error.ts';
import type { Batch, FineTuningJob, JobRequest, Page, PageRequest } from '../operations/training.ts';
import { segment } from './path.ts';
import type { AdapterAnswer, AdapterContext, AdapterRequest } from './training.ts';

/** Reads a provider's error body; `Provider.error` fits. */
export type ErrorReader = (status: number, body: JsonObject | string) => ProviderError;

/** The error of a provider as one of ours: its status, type, code and param stay. */
export function providerFailure(error: ProviderError, retryAfter?: string): SluiceError {
  const { status, type, code, param } = error;
  const seconds = retryAfter !== undefined && /^\d{1,6}$/.test(retryAfter) ? Number(retryAfter) : undefined;
  return new SluiceError('provider_error', error.message, {
    provider: { status, type, code },
    param,
    ...(seconds === undefined ? null : { retryAfter: seconds }),
  });
}

/** Reads the body of a failed answer and says what it said; an unreadable body does not hide the status. */
export async function failureOf(answer: AdapterAnswer, read: ErrorReader = readProviderError): Promise<SluiceError> {
  let body: JsonObject | string = '';
  try {
    const text = await answer.text(1024 * 1024);
    body = text;
    const parsed: unknown = parseJson(text);
    if (isObject(parsed)) body = parsed;
    else if (Array.isArray(parsed) && isObject(parsed[0])) body = parsed[0];
  } catch {
    // Not JSON, or cut: what is there of the text is the message.
  }
  return providerFailure(read(answer.status, body), answer.headers['retry-after']);
}

/** Sends and insists on a 2xx; the body is still unread. */
export async function sent(
  context: AdapterContext,
  request: AdapterRequest,
  read: ErrorReader = readProviderError,
): Promise<AdapterAnswer> {
  const answer = await context.call(request);
  if (answer.status >= 200 && answer.status < 300) return answer;
  // A redirect carries no error body, and nobody follows it.
  if (answer.status < 400) {
    answer.stream.destroy();
    throw new SluiceError(
      'upstream_invalid',
      `The provider answered with status ${answer.status}, which has no use here.`,
    );
  }
  throw await failureOf(answer, read);
}

/** Sends and reads any JSON. */
export async function sentJson(
  context: AdapterContext,
  request: AdapterRequest,
  read: ErrorReader = readProviderError,
): Promise<JsonValue> {
  return (await sent(context, request, read)).json();
}

/** Sends and reads a JSON object; one that holds only an error is that error, whatever the status said. */
export async function sentObject(
  context: AdapterContext,
  request: AdapterRequest,
  read: ErrorReader = readProviderError,
): Promise<JsonObject> {
  const body = await sentJson(context, request, read);
  if (!isObject(body)) throw invalidAnswer('a JSON object');
  const error = body.id === undefined && body.data === undefined ? embeddedError(body) : null;
  if (error !== null) throw providerFailure(error);
  return body;
}

export function invalidAnswer(wanted: string, detail?: unknown): SluiceError {
  return new SluiceError('upstream_invalid', `The provider's answer is not ${wanted}.`, { detail });
}

/** `base` + path + query; values that are null or undefined are left out. */
export function urlOf(
  base: string,
  path: string,
  query: Readonly<Record<string, string | number | null | undefined>> = {},
): URL {
  const url = new URL(base + path);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined) url.searchParams.set(name, String(value));
  }
  return url;
}

/** An object's id as one path segment. No id is empty or a dot segment, which would leave the path around it. */
export function idSegment(id: string): string {
  if (id === '' || id === '.' || id === '..') throw new SluiceError('not_found', 'There is no object of this id.');
  return segment(id);
}

/** Method, headers and body of a JSON call. */
export function jsonRequest(
  method: AdapterRequest['method'],
  url: URL,
  headers: readonly string[],
  body: JsonObject | null = null,
): AdapterRequest {
  if (body === null) return { method, url, headers: [...headers, 'accept', 'application/json'], body: null };
  return {
    method,
    url,
    headers: [...headers, 'accept', 'application/json', 'content-type', 'application/json'],
    body: Buffer.from(JSON.stringify(body)),
  };
}

/** The account's key as a bearer token. */
export function bearerHeaders(context: AdapterContext): string[] {
  const { key } = context.credentials;
  return key === null ? [] : ['authorization', `Bearer ${key.reveal()}`];
}

/**
 * The fields one create request may not have, noted while its body is built: a field that `drop_params` lists is left
 * out, every other stops the request by name.
 */
export class Refusals {
  readonly #title: string;
  readonly #drop: ReadonlySet<string>;

  /** `title`: name of the provider in messages. */
  constructor(title: string, context: Pick<AdapterContext, 'dropParams'>) {
    this.#title = title;
    this.#drop = context.dropParams;
  }

  /**
   * Whether `param` may be left out: true when drop_params names it by its whole path, its last member or, for a
   * member of `method.*.hyperparameters`, its plain name.
   */
  dropped(param: string): boolean {
    return this.#drop.has(param) || this.#drop.has(param.slice(param.lastIndexOf('.') + 1));
  }

  /** Returns when the field is to be left out, else throws 400. `instead`: what the caller can do. */
  refuse(param: string, value: unknown, instead: string): void {
    if (this.dropped(param)) return;
    throw new SluiceError(
      'unsupported_parameter',
      `${this.#title} cannot express ${param} = ${quoted(value as JsonValue)}; ${instead}`,
      { param },
    );
  }

  /** Refuses each of `fields` that has a value. */
  absent(fields: Readonly<Record<string, unknown>>): void {
    for (const [param, value] of Object.entries(fields)) {
      if (value !== undefined && value !== null) this.refuse(param, value, 'leave it out');
    }
  }
}

/** `value`, or null when it is an empty list or object, which asks for nothing. */
export function filled<T extends object>(value: T | null): T | null {
  return value === null || Object.keys(value).length === 0 ? null : value;
}

const HYPERPARAMETERS: ReadonlySet<string> = new Set(['n_epochs', 'learning_rate_multiplier', 'batch_size', 'beta']);

/**
 * Members of the caller's `method` that no shape names, by dotted path, for providers that build their own body: such a
 * member would otherwise be lost without a word.
 */
export function unknownMethodMembers(job: JobRequest): Record<string, JsonValue> {
  const out: Record<string, JsonValue> = {};
  const note = (holder: JsonValue | undefined, path: string, known: (name: string) => boolean): void => {
    if (!isObject(holder)) return;
    for (const [name, value] of Object.entries(holder)) {
      if (!known(name) && value !== undefined && value !== null) out[`${path}.${name}`] = value;
    }
  };
  const { method, hyperparameters } = job.body;
  note(method, 'method', (name) => name === 'type' || name === job.method);
  const block = isObject(method) ? method[job.method] : undefined;
  note(block, `method.${job.method}`, (name) => name === 'hyperparameters');
  const inner = isObject(block) ? block.hyperparameters : undefined;
  note(inner, `method.${job.method}.hyperparameters`, (name) => HYPERPARAMETERS.has(name));
  note(hyperparameters, 'hyperparameters', (name) => HYPERPARAMETERS.has(name));
  return out;
}

/** Twelve digits are more than any rate has, and hide what binary fractions add to a product. */
const rounded = (value: number): number => Number(value.toPrecision(12));

/** Absolute learning rate of a multiplier, and back. */
export const rateOf = (multiplier: number, base: number): number => rounded(base * multiplier);
export const multiplierOf = (rate: number, base: number): number => rounded(rate / base);

const ENDED: ReadonlySet<string> = new Set(['succeeded', 'failed', 'completed', 'expired']);

/** What a cancel answered: a job or batch that had ended before cannot be cancelled. */
export function cancelled<T extends FineTuningJob | Batch>(object: T): T {
  if (!ENDED.has(object.status)) return object;
  throw new SluiceError('validation', `It is ${quoted(object.status)} already and can no longer be cancelled.`);
}

/** Whole seconds of an RFC 3339 time, rounded down; null for anything else. */
export function epochOf(value: unknown): number | null {
  const ms = typeof value === 'string' ? Date.parse(value) : Number.NaN;
  return Number.isNaN(ms) ? null : Math.floor(ms / 1000);
}

/** A count or time that came as a JSON number or as digits in a text; null for anything else. */
export function integerOf(value: unknown): number | null {
  if (typeof value === 'number') return Number.isFinite(value) ? Math.trunc(value) : null;
  return typeof value === 'string' && /^-?\d{1,15}$/.test(value) ? Number(value) : null;
}

/** A text that says something; null for the empty one. */
export function textOf(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null;
}

/** The entry an upstream word names; a word nobody knows names none. */
export function namedIn<T>(table: Readonly<Record<string, T>>, word: unknown): T | undefined {
  return typeof word === 'string' && Object.hasOwn(table, word) ? table[word] : undefined;
}

/** Unknown cursor of a list. */
export function unknownAfter(): SluiceError {
  return new SluiceError('validation', 'The list does not hold the object that "after" names.', { param: 'after' });
}

/** A page of a list that is known whole, newest first already. */
export function slicePage<T extends { readonly id: string }>(all: readonly T[], page: PageRequest): Page<T> {
  let from = 0;
  if (page.after !== null) {
    const at = all.findIndex((one) => one.id === page.after);
    if (at < 0) throw unknownAfter();
    from = at + 1;
  }
  const data = all.slice(from, from + page.limit);
  return { data, has_more: from + data.length < all.length };
}
