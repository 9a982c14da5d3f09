/** `POST /logs`: requests that went another way than through Sluice become records, too. */
import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { isSpanName, isTraceId } from '../../kernel/trace-context.ts';
import { readAnyUsage } from '../../operations/shapes/any-usage.ts';
import type { CustomLog, CustomLogs } from '../../telemetry/custom-log.ts';
import { text } from '../body-fields.ts';
import { requireWorkspace } from '../common.ts';
import { tenantFields } from '../fields.ts';
import { action } from '../resource.ts';
import { afterCommit, Service } from '../services.ts';

export const CUSTOM_LOGS = new Service<CustomLogs>('journal of requests');

const MOST_ENTRIES = 100;
const MOST_BYTES = 1_048_576;
/** As of the metadata of a request. */
const MOST_KEYS = 64;
const MOST_CHARACTERS = 128;
const DAY_MS = 86_400_000;
const NAMES: ReadonlySet<string> = new Set(['trace_id', 'span_id', 'span_name', 'parent_span_id']);

const json = z.unknown().refine((value) => value !== undefined, 'is required');
const headers = z.record(z.string(), z.string()).optional();
const id = text(MOST_CHARACTERS, 1)
  .refine(isTraceId, 'must consist of letters, digits, . _ : and -, and be no credential')
  .optional();
const name = text(MOST_CHARACTERS, 1)
  .refine(isSpanName, 'must be one line of text without control characters')
  .optional();

const entry = z.strictObject({
  request: z.strictObject({
    url: text(2_048, 1).describe('Its query is not kept.'),
    method: z
      .enum(['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'HEAD'])
      .optional()
      .describe('`POST` when absent.'),
    headers: headers.describe(
      '`x-gateway-provider` names the provider, or with `@` a stored one; `x-gateway-virtual-key` a virtual key. Prices are theirs. `x-gateway-debug: false` keeps no body of the entry. Credentials are masked.',
    ),
    body: json.describe('Any JSON, of which `model` and `stream` are read.'),
  }),
  response: z.strictObject({
    status: z.int().min(100).max(599).optional().describe('200 when absent.'),
    headers: headers.describe('Credentials are masked.'),
    body: json.describe('Any JSON, of which `model`, `usage` and the code of an error are read.'),
    response_time: z.int().min(0).max(DAY_MS).optional().describe('Milliseconds.'),
  }),
  metadata: z
    .object({ trace_id: id, span_id: id, span_name: name, parent_span_id: id })
    .catchall(text(MOST_CHARACTERS))
    .superRefine((value, context) => {
      const keys = Object.keys(value).filter((key) => !NAMES.has(key));
      const problem =
        keys.length > MOST_KEYS
          ? `must have at most ${MOST_KEYS} keys`
          : keys.some((key) => key.length > MOST_CHARACTERS && [...key].length > MOST_CHARACTERS)
            ? `must have keys of at most ${MOST_CHARACTERS} characters`
            : null;
      if (problem !== null) context.addIssue({ code: 'custom', message: problem });
    })
    .optional()
    .describe('`trace_id`, `span_id`, `span_name`, `parent_span_id`, and texts of any names.'),
});
type Entry = z.output<typeof entry>;

export const insertLogs = action({
  id: 'logs.insert',
  method: 'POST',
  path: '/logs',
  summary: 'Record requests that were sent elsewhere',
  description:
    'One entry or a list of up to 100, each of up to 1 MB. Each becomes a record with the source `custom`, priced by its provider, model and usage. It counts under no limit. Bodies are kept where those of requests are (`debug_log`); guardrails do not judge them. All of a list are recorded, or none. An entry with `trace_id` and `span_id` is recorded once in its workspace, however often it is sent. It needs `completions.write` beside `logs.write`.',
  example: {
    body: {
      request: {
        url: 'https://api.openai.com/v1/chat/completions',
        headers: { 'x-gateway-provider': 'openai' },
        body: { model: 'gpt-4o', messages: [{ role: 'user', content: 'Hello' }] },
      },
      response: {
        status: 200,
        body: { model: 'gpt-4o-2024-11-20', usage: { prompt_tokens: 9, completion_tokens: 12 } },
        response_time: 420,
      },
      metadata: { trace_id: 'conversation-17', span_id: 'answer-1', _user: 'ada' },
    },
  },
  tag: 'Logs',
  auth: 'key_or_login',
  scopes: ['logs.write'],
  tenant: 'workspace',
  params: null,
  query: z.strictObject({ ...tenantFields }),
  body: z.union([entry, z.array(entry).min(1).max(MOST_ENTRIES)]),
  entries: { most: MOST_ENTRIES, bytes: MOST_BYTES, keep: reduced },
  response: z.object({ status: z.literal('success') }),
  writes: false,
  readOnly: true,
  audit: null,
  run: async (call) => {
    const { body, principal, tenant } = call;
    const workspaceId = requireWorkspace(call);
    if (!principal.scopes.has('completions.write')) {
      throw new SluiceError('forbidden', 'Recording requests needs the scope completions.write beside logs.write.');
    }
    const caller = {
      organisationId: tenant.organisationId,
      workspaceId,
      keyId: principal.keyId,
      userId: principal.userId,
      defaults: principal.defaults,
    };
    const list = Array.isArray(body);
    return afterCommit({ logs: CUSTOM_LOGS }, async ({ logs }) => {
      const entries = (list ? body : [body]).map((one) => logOf(one, logs.headers));
      await logs.record(caller, entries, (index) => (list ? `[${index}].metadata` : 'metadata'));
      return { status: 'success' as const };
    });
  },
});

/** Names of headers that say whose prices hold. */
const TELLING = /-(?:provider|virtual-key)$/i;

/** A body: what is read of it as an object, and all of it as text with its headers, which are kept or not. */
class GivenPart {
  readonly members: JsonObject;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;

  constructor(members: JsonObject, headers: Readonly<Record<string, string>>, text: string) {
    this.members = members;
    this.headers = headers;
    this.text = text;
  }
}

/** An entry whose bodies are texts: as objects they take several times their bytes. */
function reduced(given: JsonObject): JsonObject {
  const { request, response } = given;
  return {
    ...given,
    ...(isObject(request) ? { request: withTexts(request, ['model', 'stream']) } : {}),
    ...(isObject(response) ? { response: withTexts(response, ['model', 'usage', 'error']) } : {}),
  };
}

function withTexts(part: JsonObject, members: readonly string[]): JsonObject {
  const { headers: given, body } = part;
  const told = isObject(given) ? given : {};
  const texts = Object.entries(told).filter((pair): pair is [string, string] => typeof pair[1] === 'string');
  const kept = (value: JsonValue) =>
    new GivenPart(isObject(value) ? picked(value, members) : {}, Object.fromEntries(texts), JSON.stringify(value));
  return {
    ...part,
    ...(isObject(given) ? { headers: telling(given) } : {}),
    ...(body === undefined ? {} : { body: kept(body) as unknown as JsonValue }),
  };
}

/** The part of an entry that `reduced` has made. */
function partOf(body: unknown): GivenPart {
  if (body instanceof GivenPart) return body;
  throw new TypeError('a body of an entry was not reduced');
}

/** What is no text stays: it is refused. */
const telling = (given: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(given).filter(([key, value]) => TELLING.test(key) || typeof value !== 'string'));

/** These members as far as they are read: names, counts, and the code of an error. */
function picked(body: JsonObject, members: readonly string[]): JsonObject {
  const kept: Record<string, JsonValue> = {};
  for (const member of members) {
    const value = body[member];
    if (member === 'usage') kept.usage = isObject(value) ? readCounts(value) : null;
    else if (member === 'error') kept.error = codeOf(value);
    else if (typeof value === 'boolean' || typeof value === 'string') kept[member] = nameOf(value);
  }
  return kept;
}

const readCounts = (usage: JsonObject): JsonValue => readAnyUsage(usage) as unknown as JsonValue;

/** A name that a record can keep; null for a text that is none. */
const nameOf = (value: string | boolean): JsonValue =>
  typeof value === 'string' && !/^[^\p{C}]{1,255}$/u.test(value) ? null : value;

/** As a provider writes its errors: `{code, type}`, or a text that is a code. */
function codeOf(error: JsonValue | undefined): JsonValue {
  const code = isObject(error) ? (error.code ?? error.type ?? null) : (error ?? null);
  return typeof code === 'string' && /^[A-Za-z0-9_.-]{1,64}$/.test(code) ? code : null;
}

function logOf({ request, response, metadata = {} }: Entry, named: CustomLogs['headers']): CustomLog {
  const { trace_id, span_id, span_name, parent_span_id, ...more } = metadata;
  const [sent, came] = [partOf(request.body), partOf(response.body)];
  const [asked, answered] = [sent.members, came.members];
  const { status = 200 } = response;
  return {
    url: withoutQuery(request.url),
    method: request.method ?? 'POST',
    provider: providerOf(request.headers ?? {}, named),
    modelRequested: textOf(asked.model),
    modelAnswered: textOf(answered.model),
    stream: asked.stream === true,
    status,
    errorCode: status < 400 ? null : textOf(answered.error),
    usage: (answered.usage ?? null) as CustomLog['usage'],
    latencyMs: response.response_time ?? 0,
    traceId: trace_id ?? null,
    spanId: span_id ?? null,
    parentSpanId: parent_span_id ?? null,
    spanName: span_name ?? null,
    metadata: Object.fromEntries(
      Object.entries(more).filter((pair): pair is [string, string] => pair[1] !== undefined),
    ),
    request: { headers: sent.headers, body: sent.text },
    answer: { headers: came.headers, body: came.text },
  };
}

const textOf = (value: JsonValue | undefined): string | null => (typeof value === 'string' ? value : null);

/** A query may hold a key, and so may what stands before the host. */
function withoutQuery(url: string): string {
  return url.replace(/[?#].*$/s, '').replace(/^([a-z][a-z0-9+.-]*:\/\/)[^/]*@/i, '$1');
}

function providerOf(given: Readonly<Record<string, string>>, named: CustomLogs['headers']): string | null {
  const of = (names: readonly string[]): string | undefined =>
    Object.entries(given).find(([key]) => names.includes(key.toLowerCase()))?.[1];
  const provider = of(named.provider);
  const virtualKey = of(named.virtualKey);
  const found = provider ?? (virtualKey === undefined ? '' : `@${virtualKey}`);
  return /^@?[A-Za-z0-9][A-Za-z0-9._-]{0,254}$/.test(found) ? found : null;
}
