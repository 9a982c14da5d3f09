/** Where requests and answers of each operation say something, for the matrix of guardrails. */
import type { OperationId } from '../../src/operations/operation.ts';
import { LINES, type Line } from '../limits/calls.ts';
import { chatStream, chunk, completionStream, messageStream, responseStream } from '../support/streams.ts';

type Json = Record<string, unknown>;

/** An answer of the upstream: JSON, the events of a stream, or a file. */
export type Answer = { readonly json: unknown } | { readonly events: readonly string[] } | { readonly file: string };

export interface Said {
  /** Members of the body that say the text, each time in another place; or why nothing is said. */
  readonly asks: readonly ((text: string) => Json)[] | string;
  /** Answers that say it; or why nothing is said. */
  readonly answers: readonly ((text: string, stream: boolean) => Answer)[] | string;
  /** Members of a body that name a picture by its URL. */
  readonly picture?: (url: string) => Json;
}

const user = (content: unknown) => ({ role: 'user', content });
const talk = (...messages: object[]): Json => ({ messages });
const tool = (description: string) => ({ type: 'function', function: { name: 'look', description, parameters: {} } });
const call = (text: string) => ({
  id: 'call_1',
  type: 'function',
  function: { name: 'look', arguments: JSON.stringify({ about: text }) },
});
/** Pieces as models write them: no event holds the text. */
const pieces = (text: string) => ['Well, ', text.slice(0, 4), text.slice(4), ', that is it.'];

const completion = (message: object) => ({
  id: 'c',
  object: 'chat.completion',
  created: 1,
  model: 'gpt-4o',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Well', ...message }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
});
const chatAnswers: Said['answers'] = [
  (text, stream) =>
    stream ? { events: chatStream(...pieces(text)) } : { json: completion({ content: `Well, ${text}` }) },
  (text, stream) => {
    const { function: asked, ...rest } = call(text);
    const [first, second] = [asked.arguments.slice(0, 14), asked.arguments.slice(14)];
    const part = (more: object) => chunk({ tool_calls: [{ index: 0, ...more }] });
    const start = part({ ...rest, function: { name: 'look', arguments: first } });
    return stream
      ? { events: [start, part({ function: { arguments: second } }), chunk({}, 0, 'tool_calls'), 'data: [DONE]\n\n'] }
      : { json: completion({ content: null, tool_calls: [call(text)] }) };
  },
];
/** Of a provider that speaks Messages. */
const messageAnswers: Said['answers'] = [
  (text, stream) =>
    stream
      ? { events: messageStream(...pieces(text)) }
      : {
          json: {
            id: 'm',
            type: 'message',
            role: 'assistant',
            model: 'claude-sonnet-4-5',
            content: [{ type: 'text', text: `Well, ${text}` }],
            stop_reason: 'end_turn',
            stop_sequence: null,
            usage: { input_tokens: 5, output_tokens: 2 },
          },
        },
];
const response = (text: string) => ({
  id: 'resp_1',
  object: 'response',
  created_at: 1,
  status: 'completed',
  model: 'gpt-4o',
  output: [
    {
      id: 'i',
      type: 'message',
      role: 'assistant',
      status: 'completed',
      content: [{ type: 'output_text', text: `Well, ${text}`, annotations: [] }],
    },
  ],
  usage: { input_tokens: 5, output_tokens: 2, total_tokens: 7 },
});
const responseAnswer: readonly ((text: string, stream: boolean) => Answer)[] = [
  (text, stream) => (stream ? { events: responseStream(...pieces(text)) } : { json: response(text) }),
];
const event = (data: { readonly type: string }): string => `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
const image = (text: string, stream: boolean): Answer =>
  stream
    ? { events: [event({ type: 'image_generation.completed', ...{ b64_json: 'aGk=', revised_prompt: text } })] }
    : { json: { created: 1, data: [{ b64_json: 'aGk=', revised_prompt: `Well, ${text}` }] } };
const heard = (text: string, stream: boolean): Answer =>
  stream
    ? { events: [event({ type: 'transcript.text.done', ...{ text } })] }
    : { json: { text: `Well, ${text}`, segments: [{ id: 0, text }] } };
const lines = (text: string) => new Blob([`{"custom_id":"1","body":{"messages":[{"content":"${text}"}]}}\n`]);

const NUMBERS = 'answers numbers';
const TELLS = 'answers what is known of a file, batch or job';
const ASKS = 'only reads';
const STOPS = 'names what to stop, resume or remove';

/** An operation without a line here fails to compile. */
export const SAID: Readonly<Record<OperationId, Said>> = {
  chat: {
    asks: [
      (text) => talk({ role: 'system', content: 'Be kind.' }, user(text)),
      (text) => talk({ role: 'system', content: text }, user('Hello')),
      (text) => talk(user(text), { role: 'assistant', content: 'Hi' }, user('Hello')),
      (text) =>
        talk(
          user([
            { type: 'text', text: 'Hello' },
            { type: 'text', text },
          ]),
        ),
      (text) =>
        talk(
          user('Hello'),
          { role: 'assistant', content: null, tool_calls: [call('a')] },
          { role: 'tool', tool_call_id: 'call_1', content: text },
        ),
      (text) => ({ tools: [tool(text)] }),
    ],
    answers: chatAnswers,
    picture: (url) => talk(user([{ type: 'image_url', image_url: { url } }])),
  },
  completions: {
    asks: [(prompt) => ({ prompt }), (text) => ({ prompt: ['Hello', text] }), (suffix) => ({ suffix })],
    answers: [
      (text, stream) =>
        stream
          ? { events: completionStream(...pieces(text)) }
          : {
              json: {
                id: 'c',
                object: 'text_completion',
                created: 1,
                model: 'gpt-3.5-turbo-instruct',
                choices: [{ index: 0, text: `Well, ${text}`, finish_reason: 'stop' }],
              },
            },
    ],
  },
  embeddings: { asks: [(input) => ({ input }), (text) => ({ input: ['Hello', text] })], answers: NUMBERS },
  messages: {
    asks: [
      (text) => talk(user(text)),
      (system) => ({ system }),
      (text) =>
        talk(
          user('Hello'),
          { role: 'assistant', content: [{ type: 'tool_use', id: 't1', name: 'look', input: {} }] },
          user([{ type: 'tool_result', tool_use_id: 't1', content: [{ type: 'text', text }] }]),
        ),
    ],
    answers: chatAnswers,
    picture: (url) => talk(user([{ type: 'image', source: { type: 'url', url } }])),
  },
  count_tokens: {
    asks: [(text) => talk(user(text)), (system) => ({ system })],
    answers: NUMBERS,
    picture: (url) => talk(user([{ type: 'image', source: { type: 'url', url } }])),
  },
  responses: {
    asks: [
      (input) => ({ input }),
      (instructions) => ({ instructions }),
      (text) => ({ input: [{ role: 'user', content: [{ type: 'input_text', text }] }] }),
      (output) => ({
        input: [user('Hello'), { type: 'function_call_output', call_id: 'call_1', output }],
      }),
    ],
    answers: responseAnswer,
    picture: (image_url) => ({ input: [user([{ type: 'input_image', image_url }])] }),
  },
  response: { asks: ASKS, answers: responseAnswer },
  response_delete: { asks: STOPS, answers: 'answers whether it was removed' },
  response_items: {
    asks: ASKS,
    answers: [
      (text) => ({
        json: {
          object: 'list',
          data: [{ id: 'i', type: 'message', role: 'user', content: [{ type: 'input_text', text: `Well, ${text}` }] }],
          has_more: false,
        },
      }),
    ],
  },
  moderations: { asks: [(input) => ({ input }), (text) => ({ input: ['Hello', text] })], answers: NUMBERS },
  images_generate: { asks: [(prompt) => ({ prompt })], answers: [image] },
  images_edit: { asks: [(prompt) => ({ prompt })], answers: [image] },
  images_vary: { asks: 'sends a picture', answers: [image] },
  speech: {
    asks: [(input) => ({ input }), (instructions) => ({ instructions })],
    answers: [
      (text, stream) =>
        stream ? { events: [event({ type: 'speech.audio.delta', ...{ audio: text } })] } : { file: text },
    ],
  },
  transcribe: { asks: [(prompt) => ({ prompt })], answers: [heard] },
  translate: { asks: [(prompt) => ({ prompt })], answers: [heard] },
  rerank: {
    asks: [(query) => ({ query }), (text) => ({ documents: ['Hello', text] }), (text) => ({ documents: [{ text }] })],
    answers: [
      (text) => ({
        // Rows come back as the caller knows them; what else an answer says passes.
        json: { id: 'r', results: [{ index: 0, relevance_score: 0.9 }], meta: { warnings: [`Well, ${text}`] } },
      }),
    ],
  },
  models: { asks: ASKS, answers: 'answers names of models' },
  model: { asks: ASKS, answers: 'answers names of models' },
  model_delete: { asks: STOPS, answers: 'answers whether it was removed' },
  files_upload: { asks: [(text) => ({ file: lines(text) })], answers: TELLS },
  files: { asks: ASKS, answers: TELLS },
  file: { asks: ASKS, answers: TELLS },
  file_delete: { asks: STOPS, answers: TELLS },
  file_content: { asks: ASKS, answers: [(text) => ({ file: `{"said":"${text}"}\n` })] },
  batch_create: { asks: [() => ({})], answers: TELLS },
  batches: { asks: ASKS, answers: TELLS },
  batch: { asks: ASKS, answers: TELLS },
  batch_cancel: { asks: STOPS, answers: TELLS },
  batch_output: { asks: ASKS, answers: [(text) => ({ file: `{"said":"${text}"}\n` })] },
  finetune_create: { asks: [() => ({})], answers: TELLS },
  finetune_jobs: { asks: ASKS, answers: TELLS },
  finetune_job: { asks: ASKS, answers: TELLS },
  finetune_cancel: { asks: STOPS, answers: TELLS },
  finetune_pause: { asks: STOPS, answers: TELLS },
  finetune_resume: { asks: STOPS, answers: TELLS },
  finetune_events: { asks: ASKS, answers: TELLS },
  finetune_checkpoints: { asks: ASKS, answers: TELLS },
  proxy: {
    asks: [(input) => ({ input }), (text) => ({ deep: [{ anything: { at: 'all', note: text } }] })],
    answers: [
      (text, stream) =>
        stream
          ? { events: [`data: ${JSON.stringify({ text })}\n\n`] }
          : { json: { deep: [{ note: `Well, ${text}` }] } },
    ],
    picture: (url) => talk(user([{ type: 'image_url', image_url: { url } }])),
  },
};

const whole = LINES.find(({ operation }) => operation.id === 'response') as Line;

/** Chat and messages of a provider that speaks Messages: the one converted, the other as it is. */
const CLAUDE: readonly Line[] = LINES.filter(({ title }) => /^(?:chat|messages)\b/.test(title)).map((line) => ({
  ...line,
  title: line.title.replace(/^\w+/, '$& of Anthropic'),
  base: 'anthropic',
  fields: { ...line.fields, model: 'claude-sonnet-4-5' },
}));

/** Lines of the matrix of limits, streams that only reading gives, and conversions. */
export const ROWS: readonly Line[] = LINES.filter(({ title }) => title !== 'proxy POST, cancels')
  .flatMap((line) =>
    line === whole ? [line, { ...line, title: 'response, streamed', path: `${line.path}?stream=true` }] : [line],
  )
  .concat(CLAUDE);

export const saidBy = (line: Line): Said => {
  const said = SAID[line.operation.id];
  if (CLAUDE.includes(line)) return { ...said, answers: messageAnswers };
  return line.fields === null && typeof said.asks !== 'string' ? { ...said, asks: 'has no body' } : said;
};

/** What the upstream gives where nobody looks at it; null: as for every operation. */
export const plainAnswer = (line: Line): Answer | null =>
  CLAUDE.includes(line) ? (messageAnswers[0]?.('Hi', isStream(line)) ?? null) : null;

export const isStream = ({ title }: Line): boolean => title.endsWith(', streamed');
