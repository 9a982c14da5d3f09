import { z } from 'zod';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import {
  anthropicErrorStatus,
  type ProviderError,
  readProviderError,
} from '../../operations/dialects/provider-error.ts';
import { account } from '../account.ts';
import { plainBinding } from '../openai-compatible.ts';
import type { CallContext, Provider } from '../provider.ts';
import { textSetting } from '../settings.ts';
import { ANTHROPIC_OPTIONS } from './account.ts';
import { batchesOf } from './batches.ts';
import { claudePrefill, traits } from './models.ts';

/** Sent unless the caller named a version. */
const VERSION = '2023-06-01';
const INSPECT = 'anthropic_inspect_stream_for_overloaded_error';

/** Epoch seconds of an RFC 3339 time; 0 when it cannot be read. */
function epoch(value: unknown): number {
  const ms = typeof value === 'string' ? Date.parse(value) : Number.NaN;
  return Number.isNaN(ms) ? 0 : Math.floor(ms / 1000);
}

function modelEntry(model: JsonObject): JsonObject {
  return { ...model, object: 'model', created: epoch(model.created_at), owned_by: 'anthropic' };
}

/** The list keeps its own keys and gains those of an OpenAI list, so that clients of both kinds can read it. */
function modelList(body: JsonObject): JsonObject {
  if (!Array.isArray(body.data)) return body;
  return { ...body, object: 'list', data: body.data.map((row) => (isObject(row) ? modelEntry(row) : row)) };
}

/** An overload may hide in the first event of a 200 stream. */
function overloadIn(data: string): ProviderError | null {
  if (!data.includes('overloaded_error')) return null;
  try {
    const event: unknown = parseJson(data);
    if (!isObject(event) || event.type !== 'error' || !isObject(event.error)) return null;
    return event.error.type === 'overloaded_error' ? readProviderError(529, event) : null;
  } catch {
    return null;
  }
}

/** The upstream names the error; the name decides where the status says less. */
function error(status: number, body: JsonObject | string): ProviderError {
  const type = isObject(body) && isObject(body.error) ? body.error.type : undefined;
  const named = status === 200 && typeof type === 'string' ? anthropicErrorStatus(type) : status;
  return readProviderError(named, body);
}

function authorize(headers: string[], context: Pick<CallContext, 'credentials' | 'header'>): void {
  const { key } = context.credentials;
  if (key !== null) headers.push('x-api-key', key.reveal());
  const version = context.header('anthropic-version') ?? textSetting(context.credentials, 'anthropic_version');
  headers.push('anthropic-version', version || VERSION);
  const beta = context.header('anthropic-beta') ?? textSetting(context.credentials, 'anthropic_beta');
  if (beta) headers.push('anthropic-beta', beta);
}

export const anthropic: Provider = {
  id: 'anthropic',
  title: 'Anthropic',
  account: account({ ...ANTHROPIC_OPTIONS, [INSPECT]: { schema: z.boolean() } }),
  needsKey: true,
  baseUrl: () => 'https://api.anthropic.com/v1',
  statelessPaths: ['POST complete'],
  authorize,
  bindings: {
    messages: {
      ...plainBinding('messages'),
      prefill: claudePrefill,
      target: { traits },
      inspectFirstEvent: { setting: INSPECT, find: overloadIn },
    },
    count_tokens: plainBinding('count_tokens'),
    models: { ...plainBinding('models'), response: modelList },
    model: { ...plainBinding('model'), response: modelEntry },
    proxy: plainBinding('proxy'),
  },
  passThrough: true,
  error,
  training: {
    batches: batchesOf(
      () => anthropic,
      (context) => {
        const headers: string[] = [];
        authorize(headers, context);
        return headers;
      },
    ),
  },
};
