/**
 * Runs fixtures against a provider. A fixture is an operation, a case and what goes in and comes out. The name of the
 * case says its kind: `request`, `answer` or `stream`, perhaps followed by `-more`. Requests whose body is sent as it
 * came, or that are refused, are rows of `requests.json` in the folder of the provider. Everything else is a pair of
 * files `<operation>.<case>.in.<ext>` and `.out.<ext>`. All are written by hand, after the published definitions.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { SluiceError } from '../../src/kernel/errors.ts';
import { isObject, type JsonObject } from '../../src/kernel/json.ts';
import { parseExact } from '../../src/kernel/json-exact.ts';
import { Secret } from '../../src/kernel/secret.ts';
import { formatEvent, parseEvent, SseSplitter } from '../../src/kernel/sse.ts';
import { errorCode } from '../../src/operations/dialects/errors.ts';
import { OPERATIONS, type OperationId } from '../../src/operations/operation.ts';
import { bindingFor } from '../../src/providers/binding.ts';
import type { CallContext, Credentials, FormValue, Provider, StreamEvent } from '../../src/providers/provider.ts';

/** What a caller sends: everything but `body` is optional. */
export interface RequestCase {
  readonly body?: JsonObject;
  /** In place of a body: texts, and files whose content is in base64. */
  readonly form?: readonly { readonly name: string; readonly value: string; readonly file?: string }[];
  readonly headers?: Readonly<Record<string, string>>;
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly pathParams?: Readonly<Record<string, string>>;
}

/** A fixture: JSON for requests and answers, events for streams. */
export interface Fixture {
  readonly operation: OperationId;
  readonly name: string;
  readonly in: string;
  readonly out: string;
}

/** A row of `requests.json`: what a caller gives, and the call it becomes or the refusal. The body is sent as given. */
interface RequestRow {
  readonly case: string;
  readonly given: RequestCase;
  readonly call?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly refused?: JsonObject;
}

const FOLDER = join(import.meta.dirname, '../../src/providers/__fixtures__');
const TABLE = 'requests.json';

const named = (file: string): Pick<Fixture, 'operation' | 'name'> => {
  const [operation, name = ''] = file.split('.');
  return { operation: operation as OperationId, name };
};

function fixtureOfRow({ case: id, given, ...outcome }: RequestRow): Fixture {
  const out = outcome.refused === undefined && given.body !== undefined ? { ...outcome, body: given.body } : outcome;
  return { ...named(id), in: JSON.stringify(given), out: JSON.stringify(out) };
}

/** All fixtures of a provider; none when it has no folder. @throws when a file has no counterpart. */
export function fixturesOf(provider: string): Fixture[] {
  const folder = join(FOLDER, provider);
  if (!existsSync(folder)) return [];
  const read = (file: string): string => readFileSync(join(folder, file), 'utf8');
  const files = readdirSync(folder);
  const rows = files.includes(TABLE) ? (JSON.parse(read(TABLE)) as RequestRow[]).map(fixtureOfRow) : [];
  const pairs = files
    .filter((file) => file.includes('.in.'))
    .map((file) => ({ ...named(file), in: read(file), out: read(file.replace('.in.', '.out.')) }));
  return [...rows, ...pairs];
}

export const TEST_KEY = 'test-key';

function modelOf({ body, form }: RequestCase): string {
  if (form !== undefined) return form.find(({ name }) => name === 'model')?.value ?? '';
  return typeof body?.model === 'string' ? body.model : '';
}

const partsOf = (form: NonNullable<RequestCase['form']>): FormValue[] =>
  form.map(({ name, value, file }) => ({
    name,
    filename: file === undefined ? null : 'picture',
    contentType: file ?? null,
    bytes: Buffer.from(value, file === undefined ? 'utf8' : 'base64'),
  }));

export function contextOf(operation: OperationId, given: RequestCase, more: Partial<CallContext> = {}): CallContext {
  return {
    operation,
    model: modelOf(given),
    stream: given.body?.stream === true,
    credentials: { key: new Secret(TEST_KEY), settings: given.settings ?? {} },
    pathParams: given.pathParams ?? {},
    header: (name) => given.headers?.[name],
    strict: true,
    now: () => 1_700_000_000_500,
    ...(given.body === undefined ? null : { body: given.body }),
    ...more,
  };
}

/** A refusal as a fixture holds it; other errors are faults of the test. */
function refused(error: unknown): JsonObject {
  if (!(error instanceof SluiceError)) throw error;
  return { refused: { kind: error.kind, param: error.param, code: errorCode(error) } };
}

function boundOf(
  provider: Provider,
  operation: OperationId,
  model: string,
  credentials?: Credentials,
): NonNullable<ReturnType<typeof bindingFor>> {
  const bound = bindingFor(provider, operation, model, credentials);
  if (bound === null) throw new Error(`${provider.id} does not serve ${operation}`);
  return bound;
}

/** URL, headers and body that a request becomes. */
export function runRequest(provider: Provider, operation: OperationId, given: RequestCase): JsonObject {
  const context = contextOf(operation, given);
  const bound = boundOf(provider, operation, context.model, context.credentials);
  try {
    const headers: string[] = [];
    provider.authorize(headers, context);
    const sent: JsonObject = {};
    for (let i = 0; i < headers.length; i += 2) sent[headers[i] ?? ''] = headers[i + 1] ?? '';
    const body =
      given.form !== undefined
        ? bound.binding.form?.(partsOf(given.form), context)
        : given.body === undefined
          ? undefined
          : (bound.request?.(given.body, context) ?? given.body);
    const own = bound.binding.base?.(context.credentials) ?? null;
    const base = own ?? provider.baseUrl(context.credentials) ?? 'http://self.hosted';
    if (given.body !== undefined) {
      const more = bound.convert === null ? (bound.binding.headers?.(given.body, context) ?? []) : [];
      for (let i = 0; i < more.length; i += 2) sent[more[i] ?? ''] = more[i + 1] ?? '';
    }
    const method = OPERATIONS[operation].method;
    return {
      call: `${method} ${base}${bound.binding.path(context)}`,
      headers: sent,
      ...(body === undefined ? null : { body }),
    };
  } catch (error) {
    return refused(error);
  }
}

/** The caller's answer to an upstream answer. `asked` is the caller's own body. */
export function runAnswer(
  provider: Provider,
  operation: OperationId,
  answer: JsonObject,
  asked?: JsonObject,
): JsonObject {
  const context = contextOf(operation, asked === undefined ? {} : { body: asked });
  const bound = boundOf(provider, operation, context.model);
  try {
    return bound.response?.(answer, context) ?? answer;
  } catch (error) {
    return refused(error);
  }
}

/** The caller's stream for an upstream stream that arrives in `chunks`. */
export function runEvents(
  provider: Provider,
  operation: OperationId,
  chunks: readonly Buffer[],
  asked?: JsonObject,
): string {
  const context = contextOf(operation, asked === undefined ? {} : { body: asked }, { stream: true });
  const bound = boundOf(provider, operation, context.model);
  const transform = bound.stream?.(context);
  const splitter = new SseSplitter();
  let out = '';
  const emit = (event: StreamEvent): void => {
    out += formatEvent(event);
  };
  for (const chunk of chunks) {
    for (const bytes of splitter.push(chunk)) {
      const event = parseEvent(bytes);
      if (event === null) continue;
      if (transform === undefined) emit(event);
      else transform.event(event, emit);
    }
  }
  transform?.end(emit);
  return out;
}

/** A JSON object from the text of a fixture, big integers kept. */
export function objectOf(text: string): JsonObject {
  const value = parseExact(text);
  if (!isObject(value)) throw new Error('a fixture must be a JSON object');
  return value;
}
