/** Streams as providers send them, event by event, of pieces of text. */

const TOKENS = { prompt_tokens: 9, completion_tokens: 5, total_tokens: 14 };

export const chunk = (delta: object, index = 0, finish: string | null = null) =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'gpt-4o', choices: [{ index, delta, finish_reason: finish }] })}\n\n`;
export const USAGE = `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'gpt-4o', choices: [], usage: TOKENS })}\n\n`;
export const chatStream = (...pieces: string[]) => [
  chunk({ role: 'assistant', content: '' }),
  ...pieces.map((content) => chunk({ content })),
  chunk({}, 0, 'stop'),
  USAGE,
  'data: [DONE]\n\n',
];
export const completionStream = (...pieces: string[]) => [
  ...pieces.map(
    (text) =>
      `data: ${JSON.stringify({ id: 'c', object: 'text_completion', created: 1, model: 'm', choices: [{ index: 0, text, finish_reason: null }] })}\n\n`,
  ),
  `data: ${JSON.stringify({ id: 'c', object: 'text_completion', created: 1, model: 'm', choices: [{ index: 0, text: '', finish_reason: 'stop' }], usage: TOKENS })}\n\n`,
  'data: [DONE]\n\n',
];
const named = (event: { type: string }) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
export const messageStream = (...pieces: string[]) =>
  [
    {
      type: 'message_start',
      message: {
        id: 'm',
        type: 'message',
        role: 'assistant',
        model: 'claude',
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: { input_tokens: 9, output_tokens: 1 },
      },
    },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    ...pieces.map((text) => ({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })),
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: { output_tokens: 5 } },
    { type: 'message_stop' },
  ].map(named);
export const responseStream = (...pieces: string[]) => {
  const text = pieces.join('');
  const part = { type: 'output_text', text, annotations: [] };
  const item = { id: 'i', type: 'message', role: 'assistant', status: 'completed', content: [part] };
  const response = { id: 'r', object: 'response', created_at: 1, status: 'in_progress', model: 'm', output: [] };
  const at = { item_id: 'i', output_index: 0, content_index: 0 };
  const usage = { input_tokens: 9, output_tokens: 5, total_tokens: 14 };
  return [
    { type: 'response.created', response },
    { type: 'response.output_item.added', output_index: 0, item: { ...item, status: 'in_progress', content: [] } },
    { type: 'response.content_part.added', ...at, part: { ...part, text: '' } },
    ...pieces.map((delta) => ({ type: 'response.output_text.delta', ...at, delta })),
    { type: 'response.output_text.done', ...at, text },
    { type: 'response.content_part.done', ...at, part },
    { type: 'response.output_item.done', output_index: 0, item },
    { type: 'response.completed', response: { ...response, status: 'completed', output: [item], usage } },
  ].map((event, sequence_number) => named({ ...event, ...{ sequence_number } }));
};
