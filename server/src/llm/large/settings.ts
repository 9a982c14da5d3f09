/** What of a request the stream of its answer depends on, beside the conversation. */
import type { JsonObject } from '../../kernel/json.ts';
import { isTooHeavy } from '../../kernel/json-exact.ts';

/**
 * Members of a caller's body that transforms of streams read, through `CallContext.body`; answers of Responses repeat some. A
 * large body itself stays in the thread that read it.
 */
export const SETTINGS = [
  'instructions',
  'max_output_tokens',
  'metadata',
  'parallel_tool_calls',
  'reasoning',
  'stream_options',
  'temperature',
  'text',
  'thinking',
  'tool_choice',
  'tools',
  'top_p',
] as const;

/** Characters of them, as JSON, and weight: a stream repeats them up to three times. */
export const MAX_SETTINGS = 1024 * 1024;
const MAX_WEIGHT = 50_000;

/** These members as JSON; null where they are more than an event loop should read. */
export function settingsOf(body: JsonObject): string | null {
  const out: JsonObject = {};
  for (const name of SETTINGS) if (body[name] !== undefined) out[name] = body[name];
  const text = JSON.stringify(out);
  return text.length > MAX_SETTINGS || isTooHeavy(text, MAX_WEIGHT) ? null : text;
}
