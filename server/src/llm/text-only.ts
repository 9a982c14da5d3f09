/**
 * Whether all that a request makes its provider read is in its own bytes as text. Then it has no more input tokens
 * than bytes: encodings work on bytes, and JSON writes none of them shorter. Pictures, sound, documents, ids of things
 * kept elsewhere and tools that a provider runs itself (search, code) bring tokens that no byte tells.
 */
import { isObject, type JsonObject } from '../kernel/json.ts';

/** Top-level members that are settings or text. Any other may stand for what is kept elsewhere. */
const MEMBERS = new Set(
  [
    'model messages input instructions system prompt suffix query documents texts',
    'max_tokens max_completion_tokens max_output_tokens n best_of echo stream stream_options stop stop_sequences',
    'temperature top_p top_k min_p seed presence_penalty frequency_penalty repetition_penalty logit_bias logprobs',
    'top_logprobs top_n return_documents encoding_format dimensions output_dimension truncate truncation input_type task',
    'response_format tools tool_choice parallel_tool_calls functions function_call text verbosity reasoning',
    'reasoning_effort thinking output_config include store metadata user safety_identifier service_tier',
    'prompt_cache_key prompt_cache_retention cache_control background',
  ].flatMap((names) => names.split(' ')),
);

/** Members of messages, items and parts. */
const FIELDS = new Set(
  'role content name text type id status phase refusal tool_calls tool_call_id function_call call_id arguments output input tool_use_id is_error summary encrypted_content thinking signature data cache_control annotations citations logprobs reasoning_content reasoning reasoning_details prefix partial'.split(
    ' ',
  ),
);
/** Of these, what holds a caller's or model's own JSON: text in the end, whatever its members are called. */
const OPAQUE = new Set(
  'tool_calls function_call arguments cache_control annotations citations logprobs reasoning_details'.split(' '),
);
/** Types of messages, items and parts that are text. */
const TYPES = new Set(
  'text input_text output_text refusal summary_text reasoning_text message function_call function_call_output custom_tool_call custom_tool_call_output reasoning tool_use tool_result thinking redacted_thinking'.split(
    ' ',
  ),
);
/** Where text that is read stands. */
const READ = ['messages', 'input', 'instructions', 'system', 'prompt', 'query', 'documents', 'texts'];
/** Tools that the caller runs; Anthropic's own type is absent or `custom`. */
const TOOLS = new Set([undefined, 'function', 'custom']);

export function isTextOnly(body: JsonObject): boolean {
  for (const name of Object.keys(body)) if (!MEMBERS.has(name)) return false;
  // A prompt that is an object stands for one the provider keeps.
  if (isObject(body.prompt)) return false;
  for (const name of READ) if (!isText(body[name])) return false;
  const { tools } = body;
  if (tools === undefined || tools === null) return true;
  return Array.isArray(tools) && tools.every((tool) => isObject(tool) && TOOLS.has(tool.type as string | undefined));
}

function isText(value: unknown): boolean {
  if (Array.isArray(value)) {
    for (const item of value) if (!isText(item)) return false;
    return true;
  }
  if (!isObject(value)) return true;
  const { type } = value;
  // An item with nothing but an id is one the provider keeps, and so is reasoning without its text.
  if (type === undefined && value.role === undefined && value.text === undefined) return false;
  if (type === 'reasoning' && typeof value.encrypted_content !== 'string') return false;
  if (type !== undefined && !(typeof type === 'string' && TYPES.has(type))) return false;
  for (const [name, inner] of Object.entries(value)) {
    if (!FIELDS.has(name)) return false;
    // The arguments of a tool call are the model's; elsewhere `input` is a separate item.
    if (OPAQUE.has(name) || (name === 'input' && (type === 'tool_use' || type === 'custom_tool_call'))) continue;
    if (!isText(inner)) return false;
  }
  return true;
}
