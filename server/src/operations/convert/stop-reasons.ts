/** Stop reasons. Unknown values become the plain stop: never an error. */

const TO_CHAT: Readonly<Record<string, string>> = {
  end_turn: 'stop',
  stop_sequence: 'stop',
  pause_turn: 'stop',
  max_tokens: 'length',
  model_context_window_exceeded: 'length',
  tool_use: 'tool_calls',
  refusal: 'content_filter',
};

const TO_MESSAGES: Readonly<Record<string, string>> = {
  stop: 'end_turn',
  length: 'max_tokens',
  tool_calls: 'tool_use',
  function_call: 'tool_use',
  content_filter: 'refusal',
};

const lookUp = (table: Readonly<Record<string, string>>, value: unknown): string | undefined =>
  typeof value === 'string' && Object.hasOwn(table, value) ? table[value] : undefined;

/** Messages `stop_reason` as chat `finish_reason`. */
export function finishReason(stopReason: unknown): string {
  return lookUp(TO_CHAT, stopReason) ?? 'stop';
}

/**
 * Chat `finish_reason` as messages `stop_reason`. Some servers finish with `stop` although calls were made: calls make
 * it `tool_use`. A refusal text makes it `refusal`.
 */
export function stopReason(finish: unknown, hasCalls: boolean, refused = false): string {
  if (refused) return 'refusal';
  const known = lookUp(TO_MESSAGES, finish) ?? 'end_turn';
  return known === 'end_turn' && hasCalls ? 'tool_use' : known;
}
