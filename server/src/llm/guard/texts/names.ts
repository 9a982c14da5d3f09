/** Which members of bodies are settings, who says what, and how places are written. */
import type { TextPart } from '../../../guardrails/check.ts';

export type Role = TextPart['role'];

const words = (...lines: readonly string[]): ReadonlySet<string> => new Set(lines.flatMap((line) => line.split(' ')));

const ROLES: ReadonlyMap<unknown, Role> = new Map<unknown, Role>([
  ['system', 'system'],
  ['developer', 'system'],
  ['user', 'user'],
  ['assistant', 'assistant'],
  ['model', 'assistant'],
  ['tool', 'tool'],
  ['function', 'tool'],
]);

/** Whose words an object of a conversation holds; undefined: those of the object around it. */
export function roleOf(role: unknown, type: unknown): Role | undefined {
  if (typeof role === 'string') return ROLES.get(role) ?? null;
  if (typeof type !== 'string') return undefined;
  if (type.endsWith('_output') || type.endsWith('_result')) return 'tool';
  if (isToolCall(type) || type === 'reasoning' || type === 'thinking') return 'assistant';
  return undefined;
}

/** `tool_use`, `server_tool_use`, `function_call`, `custom_tool_call`, `web_search_call`. */
export const isToolCall = (type: string): boolean => type.endsWith('tool_use') || type.endsWith('_call');

/** Members that speak for the operator wherever they stand, and those of a request's root that speak for the user. */
export const SYSTEM = words(
  'system instructions tools functions response_format output_config output_format tool_choice system_instruction systemInstruction',
);
export const USER = words('input prompt query documents suffix texts');

/** Lists of numbers that are a text, wherever they stand. */
export const TOKEN_IDS = words('prompt_token_ids input_token_ids token_ids input_ids prompt_tokens tokens context');

/** Members with words of an enumeration or ids of things: no text while they look like one. */
export const SETTINGS = words(
  'role type id object model status tool_call_id call_id tool_use_id item_id response_id previous_response_id message_id',
  'approval_request_id container_id file_id server_label detail media_type mime_type format encoding_format service_tier',
  'finish_reason stop_reason system_fingerprint native_finish_reason provider quality size voice background output_format',
  'response_format tool_choice reasoning_effort effort verbosity truncation ttl phase caller conversation input_type',
  'timestamp_granularities include modalities prompt_cache_key prompt_cache_retention syntax',
);

/** Members of an answer that repeat what the request said. */
export const ECHOES = words(
  'instructions tools tool_choice text metadata user prompt reasoning safety_identifier prompt_cache_key',
);

/** Members with a caller's or model's own JSON: every text and name in it counts. */
export const OWN = words('arguments args metadata variables structured_content structuredContent');
export const SCHEMAS = words('parameters input_schema schema inputSchema');
export const SCHEMA_NAMES = words(
  'type properties required items enum const description title default examples format pattern anyOf allOf oneOf not $ref',
  '$defs definitions additionalProperties minimum maximum minLength maxLength minItems maxItems uniqueItems nullable',
  'exclusiveMinimum exclusiveMaximum multipleOf prefixItems $schema $id strict',
);
export const SCHEMA_WORDS = words('type format $ref $schema required');

/** Numbers here are digits of a text: a card number is one as a number, too. */
export const SPOKEN = words('content text input prompt query name value');
const COUNTS = /(?:_at|_time|_tokens|_bytes|_id|^id|^created|^bytes|^index|^seed|time|timestamp)$/i;
export const isCount = (key: string | number): boolean => typeof key === 'string' && COUNTS.test(key);

/** `gpt-4o`, `@openai/gpt-4o`, `claude-sonnet-4@20250514`, `@sandbox/slow?ttft_ms=200&tokens_per_s=10`. */
const MODEL = /^@?[\w.:/+-]*(?:@(?:\d{1,8}|default|latest))?(?:\?[\w.=&,+-]*)?$/;

export const isWord = (text: string, key: string): boolean =>
  key === 'model' ? text.length <= 2_048 && MODEL.test(text) : text.length <= 64 && /^[\w.:/+-]*$/.test(text);

const PLAIN = /^[A-Za-z_$][A-Za-z_]{0,39}$/;

export const isPlain = (name: string): boolean => PLAIN.test(name);

/**
 * `path.name`, or `path{3}` for the fourth member where the name is not one that programs give: names may hold what must
 * not be recorded.
 */
export const memberPath = (path: string, name: string, position: number): string =>
  PLAIN.test(name) ? (path === '' ? name : `${path}.${name}`) : `${path}{${position}}`;
