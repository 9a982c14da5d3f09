/** A chat completion request as a Converse request. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asObject, asString, invalid, isNeutral, refuse } from '../../operations/convert/fields.ts';
import { refuseUnknown, SCHEMA_TOOL_PREFIX } from '../../operations/convert/request-chat-to-messages.ts';
import { traits } from '../anthropic/models.ts';
import { withCachePoint } from './converse-content.ts';
import { historyOf } from './converse-history.ts';
import {
  either,
  guardrailOf,
  type Header,
  inferenceConfig,
  latencyOf,
  metadataOf,
  nativeFields,
  tierOf,
  wantsSolo,
} from './converse-options.ts';
import { claudeName } from './families.ts';

const TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/;

/** Fields that are read, and bookkeeping fields that may be lost. */
const KNOWN: ReadonlySet<string> = new Set([
  'model',
  'messages',
  'max_tokens',
  'max_completion_tokens',
  'temperature',
  'top_p',
  'top_k',
  'stop',
  'tools',
  'tool_choice',
  'parallel_tool_calls',
  'response_format',
  'reasoning_effort',
  'thinking',
  'metadata',
  'service_tier',
  'stream',
  'stream_options',
  'user',
  'safety_identifier',
  'store',
  'prompt_cache_key',
  'prompt_cache_retention',
  'prompt_cache_options',
  'anthropic_beta',
  'anthropic_version',
  'guardrailConfig',
  'guardrail_config',
  'performanceConfig',
  'performance_config',
  'requestMetadata',
  'request_metadata',
  'additionalModelRequestFields',
  'additional_model_request_fields',
  'additionalModelResponseFieldPaths',
  'additional_model_response_field_paths',
]);

function toolSpec(tool: JsonValue, at: string): JsonObject[] {
  const definition = isObject(tool) && tool.type === 'function' ? asObject(tool.function) : null;
  if (!isObject(tool) || definition === null) refuse(at, 'only function tools have an equivalent there.');
  const name = asString(definition.name) ?? '';
  if (!TOOL_NAME.test(name)) invalid(`${at}.function.name`, 'A function name has 1 to 64 letters, digits, "_" or "-".');
  const description = asString(definition.description);
  const spec: JsonObject = {
    name,
    ...(description === null || description === '' ? null : { description }),
    inputSchema: { json: isObject(definition.parameters) ? definition.parameters : { type: 'object', properties: {} } },
    ...(typeof definition.strict === 'boolean' ? { strict: definition.strict } : null),
  };
  return withCachePoint({ toolSpec: spec }, tool);
}

const nameOf = (tool: JsonObject): string | null => asString(asObject(tool.toolSpec).name);

/** The tools a choice of `allowed_tools` leaves, and the choice among them. */
function allowedTools(choice: JsonObject, tools: JsonObject[]): { tools: JsonObject[]; wanted: JsonValue } {
  const allowed = asObject(choice.allowed_tools);
  const names = new Set(asArray(allowed.tools).map((one) => asString(asObject(asObject(one).function).name)));
  const left = tools.filter((tool) => names.has(nameOf(tool)));
  if (left.length === 0) invalid('tool_choice.allowed_tools.tools', 'None of the allowed tools is in "tools".');
  return { tools: left, wanted: allowed.mode === 'required' ? 'required' : 'auto' };
}

function toolConfig(body: JsonObject, called: ReadonlySet<string>, solo: boolean): JsonObject | null {
  let tools = asArray(body.tools).flatMap((tool, i) => toolSpec(tool, `tools[${i}]`));
  // History with calls needs a list of tools: it names what was called, nothing more.
  if (tools.length === 0) {
    tools = [...called].map((name) => ({
      toolSpec: { name, inputSchema: { json: { type: 'object', properties: {} } } },
    }));
  }
  if (tools.length === 0) return null;
  let wanted = body.tool_choice ?? null;
  if (isObject(wanted) && wanted.type === 'allowed_tools') ({ tools, wanted } = allowedTools(wanted, tools));
  if (wanted === 'none') return called.size > 0 ? { tools } : null;
  // A Claude model gets its choice in its own words, see `nativeFields`.
  if (wanted === null || solo) return { tools };
  if (wanted === 'auto') return { tools, toolChoice: { auto: {} } };
  if (wanted === 'required') return { tools, toolChoice: { any: {} } };
  const name = isObject(wanted) ? asString(asObject(wanted.function).name) : null;
  if (name === null) refuse('tool_choice', 'only auto, none, required and functions have an equivalent there.');
  return { tools, toolChoice: { tool: { name } } };
}

/** Models that know no format of their answer and are made to call one function instead. */
function lacksFormat(model: string): boolean {
  return model.startsWith('anthropic.')
    ? !traits(claudeName(model)).structuredOutput
    : model.startsWith('amazon.') || model.startsWith('meta.') || model.startsWith('cohere.');
}

interface Format {
  readonly output: JsonObject | null;
  readonly tool: JsonObject | null;
}

function formatOf(body: JsonObject, model: string): Format {
  const format = body.response_format;
  if (isNeutral('response_format', format)) return { output: null, tool: null };
  const named = asObject(asObject(format).json_schema);
  if (asObject(format).type !== 'json_schema' || !isObject(named.schema)) {
    refuse('response_format', 'only "text" and "json_schema" with a schema have an equivalent there.');
  }
  const name = asString(named.name);
  const description = asString(named.description);
  // Beside tools of the caller's own there is no room for it: the provider says whether the model can do both.
  if (lacksFormat(model) && asArray(body.tools).length === 0) {
    const tool = {
      name: `${SCHEMA_TOOL_PREFIX}${(name ?? 'output').replace(/[^a-zA-Z0-9_-]/g, '_')}`.slice(0, 64),
      ...(description === null || description === '' ? null : { description }),
      inputSchema: { json: named.schema },
    };
    return { output: null, tool };
  }
  const jsonSchema = {
    schema: JSON.stringify(named.schema),
    ...(name === null ? null : { name }),
    ...(description === null ? null : { description }),
  };
  return { output: { textFormat: { type: 'json_schema', structure: { jsonSchema } } }, tool: null };
}

const isEmpty = (value: JsonObject): boolean => Object.keys(value).length === 0;

function guardrailConfig(body: JsonObject, header: Header): JsonObject | null {
  const guardrail = guardrailOf(body, header);
  if (guardrail === null) return null;
  const { id, version, trace, mode } = guardrail;
  return {
    guardrailIdentifier: id,
    guardrailVersion: version,
    ...(trace === null ? null : { trace }),
    // Only a stream knows it.
    ...(mode === null || body.stream !== true ? null : { streamProcessingMode: mode }),
  };
}

/**
 * The body of a Converse call, without the model id, which is in the path or beside it. `model` is the foundation
 * model; `header` gives what a caller may also send as headers.
 */
export function converseRequest(body: JsonObject, model: string, header: Header = () => undefined): JsonObject {
  refuseUnknown(body, KNOWN);
  const { system, turns, called } = historyOf(asArray(body.messages), model);
  const config = inferenceConfig(body);
  const hasTools = asArray(body.tools).length > 0;
  const solo = wantsSolo(body, model.startsWith('anthropic.'), hasTools);
  const format = formatOf(body, model);
  const tools =
    format.tool === null
      ? toolConfig(body, called, solo)
      : { tools: [{ toolSpec: format.tool }], toolChoice: { tool: { name: format.tool.name ?? null } } };
  const native = nativeFields(body, model, header, solo);
  const tier = tierOf(body);
  const metadata = metadataOf(body);
  const guardrail = guardrailConfig(body, header);
  const latency = latencyOf(body, header);
  const paths = either(body, 'additionalModelResponseFieldPaths', 'additional_model_response_field_paths');
  return {
    messages: turns.map(({ role, content }) => ({ role, content })),
    ...(system.length === 0 ? null : { system }),
    ...(isEmpty(config) ? null : { inferenceConfig: config }),
    ...(tools === null ? null : { toolConfig: tools }),
    ...(format.output === null ? null : { outputConfig: format.output }),
    ...(guardrail === null ? null : { guardrailConfig: guardrail }),
    ...(latency === null ? null : { performanceConfig: { latency } }),
    ...(tier === null ? null : { serviceTier: tier }),
    ...(metadata === null ? null : { requestMetadata: metadata }),
    ...(isEmpty(native) ? null : { additionalModelRequestFields: native }),
    ...(paths === null ? null : { additionalModelResponseFieldPaths: paths }),
  };
}
