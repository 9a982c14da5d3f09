/** What a call says beside its messages, under the names of Converse and of the models. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asObject, asString, invalid, refuse } from '../../operations/convert/fields.ts';
import { applyEffort } from '../../operations/convert/request-chat-to-messages.ts';
import { traits } from '../anthropic/models.ts';
import { claudeName } from './families.ts';

export type Header = (name: string) => string | undefined;

const LATENCIES: ReadonlySet<JsonValue | undefined> = new Set(['standard', 'optimized']);
const METADATA = /^[a-zA-Z0-9\s:_@$#=/+,\-.]{0,256}$/;
/** Above any budget: how many tokens a model writes at most is its own default there. */
const NO_LIMIT = 1_000_000;

/** A field under either spelling of its name. */
export function either(body: JsonObject, camel: string, snake: string): JsonValue | null {
  return body[camel] ?? body[snake] ?? null;
}

function objectField(body: JsonObject, camel: string, snake: string): JsonObject | null {
  const value = either(body, camel, snake);
  if (value === null) return null;
  if (!isObject(value)) invalid(body[camel] === undefined ? snake : camel, 'It must be an object.');
  return value;
}

export interface Guardrail {
  readonly id: string;
  readonly version: string;
  readonly trace: string | null;
  readonly mode: string | null;
}

/**
 * The guardrail of Bedrock a call names: in its body, or with the headers of InvokeModel. Null when it names none; 400
 * when only half of the name is there.
 */
export function guardrailOf(body: JsonObject, header: Header): Guardrail | null {
  const given = objectField(body, 'guardrailConfig', 'guardrail_config') ?? {};
  const read = (camel: string, snake: string, name: string | null): string | null =>
    asString(either(given, camel, snake)) ?? (name === null ? null : (header(name) ?? null));
  const id = read('guardrailIdentifier', 'guardrail_identifier', 'x-amzn-bedrock-guardrailidentifier');
  const version = read('guardrailVersion', 'guardrail_version', 'x-amzn-bedrock-guardrailversion');
  if (id === null && version === null) return null;
  if (id === null || version === null) {
    invalid('guardrailConfig', 'A guardrail needs both guardrailIdentifier and guardrailVersion.');
  }
  const trace = read('trace', 'trace', 'x-amzn-bedrock-trace');
  return {
    id,
    version,
    trace: trace === null ? null : trace.toLowerCase(),
    mode: read('streamProcessingMode', 'stream_processing_mode', null),
  };
}

/** `standard` or `optimized`, from the body or from the header of InvokeModel; null when nothing is said. */
export function latencyOf(body: JsonObject, header: Header): string | null {
  const config = objectField(body, 'performanceConfig', 'performance_config');
  const latency = config === null ? header('x-amzn-bedrock-performanceconfig-latency') : config.latency;
  if (latency === undefined || latency === null) return null;
  if (typeof latency !== 'string' || !LATENCIES.has(latency)) {
    invalid('performanceConfig.latency', 'It must be "standard" or "optimized".');
  }
  return latency;
}

/** Features in test that a caller asks a Claude model for: the header has no meaning there, a field of the body has. */
export function betasOf(body: JsonObject, header: Header): string[] {
  const given = body.anthropic_beta ?? header('anthropic-beta') ?? [];
  const list = typeof given === 'string' ? given.split(',') : asArray(given);
  return list.filter((name) => typeof name === 'string').flatMap((name) => (name.trim() === '' ? [] : [name.trim()]));
}

/** Choice of tools as Claude knows it, which can say that it must not call several at once. */
function soloChoice(body: JsonObject): JsonObject {
  const wanted = body.tool_choice ?? null;
  const name = asString(asObject(asObject(wanted ?? undefined).function).name);
  const choice: JsonObject = name !== null ? { type: 'tool', name } : { type: wanted === 'required' ? 'any' : 'auto' };
  return { ...choice, disable_parallel_tool_use: true };
}

/** Whether a request asks a Claude model for one call at a time. Other models know no such wish. */
export function wantsSolo(body: JsonObject, claude: boolean, hasTools: boolean): boolean {
  if (body.parallel_tool_calls !== false) return false;
  if (!claude) refuse('parallel_tool_calls', 'this model decides itself how many functions it calls.');
  return hasTools && body.tool_choice !== 'none';
}

function applyTopK(topK: JsonValue, model: string, out: JsonObject): void {
  if (model.startsWith('amazon.nova')) out.inferenceConfig = { topK };
  else if (model.startsWith('anthropic.') || model.startsWith('mistral.')) out.top_k = topK;
  else if (model.startsWith('cohere.')) out.k = topK;
  else refuse('top_k', 'its name is not known for this model.');
}

function applyReasoning(body: JsonObject, model: string, out: JsonObject): void {
  const { reasoning_effort: effort, thinking } = body;
  const claude = model.startsWith('anthropic.');
  if (isObject(thinking)) {
    // Behind an ARN may be a Claude model: who sends its own field knows.
    if (!claude && !model.startsWith('arn:')) refuse('thinking', 'this model supports no thinking blocks.');
    out.thinking = thinking;
  }
  if (effort === undefined || effort === null) return;
  if (claude) {
    const most = body.max_completion_tokens ?? body.max_tokens ?? NO_LIMIT;
    const { max_tokens: _most, ...fields } = effortFields({ ...out, max_tokens: most }, body, model);
    for (const [name, value] of Object.entries(fields)) out[name] = value;
  } else if (model.startsWith('openai.')) out.reasoning_effort = effort;
  else if (model.startsWith('amazon.nova-2')) {
    out.reasoningConfig =
      effort === 'none'
        ? { type: 'disabled' }
        : { type: 'enabled', maxReasoningEffort: effort === 'minimal' ? 'low' : effort };
  } else refuse('reasoning_effort', 'its name is not known for this model.');
}

function effortFields(fields: JsonObject, body: JsonObject, model: string): JsonObject {
  applyEffort(body, fields, traits(claudeName(model)));
  return fields;
}

/** `additionalModelRequestFields`: the caller's own, and what only some models know, under their own names. */
export function nativeFields(body: JsonObject, model: string, header: Header, solo: boolean): JsonObject {
  const out: JsonObject = {};
  if (body.top_k !== undefined && body.top_k !== null) applyTopK(body.top_k, model, out);
  applyReasoning(body, model, out);
  if (solo) out.tool_choice = soloChoice(body);
  if (model.startsWith('anthropic.') || model.startsWith('arn:')) {
    const betas = betasOf(body, header);
    if (betas.length > 0) out.anthropic_beta = betas;
  }
  const own = objectField(body, 'additionalModelRequestFields', 'additional_model_request_fields') ?? {};
  for (const [name, value] of Object.entries(own)) {
    const before = out[name];
    out[name] = isObject(before) && isObject(value) ? { ...before, ...value } : value;
  }
  return out;
}

export function inferenceConfig(body: JsonObject): JsonObject {
  const out: JsonObject = {};
  const most = body.max_completion_tokens ?? body.max_tokens ?? null;
  if (most !== null) {
    if (typeof most !== 'number' || !Number.isInteger(most) || most < 1) {
      invalid('max_tokens', 'The largest number of tokens is a whole number from 1.');
    }
    out.maxTokens = most;
  }
  for (const [name, target] of [
    ['temperature', 'temperature'],
    ['top_p', 'topP'],
  ] as const) {
    const value = body[name] ?? null;
    if (value === null) continue;
    if (typeof value !== 'number' || value < 0 || value > 1) refuse(name, 'it goes from 0 to 1 there.');
    out[target] = value;
  }
  const stops = typeof body.stop === 'string' ? [body.stop] : asArray(body.stop);
  if (stops.some((stop) => typeof stop !== 'string' || stop === ''))
    invalid('stop', 'Stop sequences are non-empty texts.');
  if (stops.length > 0) out.stopSequences = stops;
  return out;
}

/** Pairs that `requestMetadata` may hold; others change nothing in the answer and are left out. */
export function metadataOf(body: JsonObject): JsonObject | null {
  const given = either(body, 'requestMetadata', 'request_metadata') ?? body.metadata;
  const pairs = Object.entries(asObject(given ?? undefined)).filter(
    ([name, value]) => name !== '' && METADATA.test(name) && typeof value === 'string' && METADATA.test(value),
  );
  return pairs.length === 0 ? null : Object.fromEntries(pairs.slice(0, 16));
}

export function tierOf(body: JsonObject): JsonObject | null {
  const tier = body.service_tier ?? 'auto';
  if (tier === 'auto') return null;
  if (!['priority', 'default', 'flex', 'reserved'].includes(asString(tier) ?? '')) {
    refuse('service_tier', 'only auto, default, flex, priority and reserved have an equivalent there.');
  }
  return { type: tier };
}
