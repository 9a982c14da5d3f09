import type { JsonObject, JsonValue } from '../../kernel/json.ts';
import { chatUsage } from '../../operations/shapes/chat/usage.ts';
import { countTokens } from '../../operations/tokens.ts';
import { NO_TOKENS } from '../../operations/usage.ts';
import { type Answer, type Event, groupOf, inBody, streamAnswer, textAnswer } from './answer.ts';
import type { Ask } from './ask.ts';
import type { Input } from './chat.ts';
import { Fields } from './fields.ts';
import { parseModelName } from './model.ts';
import { invalid } from './problem.ts';
import { compose, type Reply } from './reply.ts';

/** What OpenAI generates when a completion does not say how much. */
const DEFAULT_TOKENS = 16;
const MAX_CHOICES = 512;

interface Prompt {
  readonly text: string;
  /** Set when the prompt came as tokens, which are counted and not read. */
  readonly tokens: readonly number[] | null;
}

const isTokens = (value: JsonValue): value is number[] =>
  Array.isArray(value) && value.length > 0 && value.every((item) => Number.isInteger(item));

/** One text, one list of tokens, or a list of either. */
export function readPrompts(fields: Fields, name: string): Prompt[] {
  const value = fields.raw(name);
  const one = (item: JsonValue): Prompt | null => {
    if (typeof item === 'string') return { text: item, tokens: null };
    return isTokens(item) ? { text: `[${item.length} tokens]`, tokens: item } : null;
  };
  if (value === undefined) return [];
  const single = one(value);
  if (single !== null) return [single];
  if (!Array.isArray(value) || value.length === 0)
    return fields.wrong(name, 'a string, or an array of strings or tokens');
  return value.map((item) => one(item) ?? fields.wrong(name, 'a string, or an array of strings or tokens'));
}

export function promptCost(prompt: Prompt): Promise<number> {
  return prompt.tokens === null ? countTokens(prompt.text) : Promise.resolve(prompt.tokens.length);
}

/** `POST /completions`. */
export async function completions(input: Input): Promise<Answer> {
  const fields = new Fields(input.body);
  const model = parseModelName(fields.needText('model'));
  const prompts = fields.has('prompt') ? readPrompts(fields, 'prompt') : [{ text: '', tokens: null }];
  const limit = fields.integer('max_tokens', 0, 10_000_000) ?? null;
  const n = fields.integer('n', 1, 128) ?? 1;
  const echo = fields.bool('echo') ?? false;
  fields.integer('best_of', 0, 20);
  fields.number('temperature', 0, 2);
  fields.number('top_p', 0, 1);
  if (fields.has('logprobs')) {
    throw invalid("The sandbox has no log probabilities: leave out 'logprobs'.", 'logprobs', 'unsupported_parameter');
  }
  if (prompts.length * n > MAX_CHOICES) {
    throw invalid(`The sandbox makes at most ${MAX_CHOICES} choices in one answer.`, 'n', 'invalid_value');
  }
  const stream = fields.bool('stream') ?? false;
  const options = fields.object('stream_options');
  if (options !== undefined && !stream) {
    throw invalid(
      "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
      'stream_options',
      'invalid_value',
    );
  }
  const stops = fields.texts('stop', 4);
  const replies: Reply[] = [];
  let asked = 0;
  for (const prompt of prompts) {
    asked += await promptCost(prompt);
    const ask: Ask = {
      model,
      turns: [{ role: 'user', texts: [prompt.text], media: [] }],
      tools: [],
      choice: { kind: 'none' },
      parallel: false,
      format: { kind: 'text' },
      bounds: { limit, stops },
      softLimit: DEFAULT_TOKENS,
      choices: n,
      thinking: false,
      stream,
      hash: input.hash,
    };
    for (let i = 0; i < n; i++) replies.push(await compose(ask, i));
  }
  const before = replies.map((_, i) => (echo ? (prompts[Math.floor(i / n)]?.text ?? '') : ''));
  const completion = replies.reduce((sum, reply) => sum + reply.tokens, 0);
  const usage = chatUsage.write({ ...NO_TOKENS, input: asked, output: completion });
  const head = {
    id: `cmpl-${input.hash.slice(0, 29)}`,
    object: 'text_completion',
    created: input.created,
    model: model.name,
    system_fingerprint: 'sandbox',
  };
  if (stream) {
    const wanted = options?.bool('include_usage') === true ? usage : null;
    return streamAnswer(model, chunks(head, replies, before, groupOf(model, completion), wanted));
  }
  const body: JsonObject = {
    ...head,
    choices: replies.map((reply, index) => ({
      text: (before[index] ?? '') + (inBody(reply.text, input.hash, index) ?? ''),
      index,
      logprobs: null,
      finish_reason: reply.finish,
    })),
    usage,
  };
  return textAnswer(
    { model, tokens: completion },
    body,
    replies.map((reply) => reply.text),
    input.hash,
  );
}

function* chunks(
  head: JsonObject,
  replies: readonly Reply[],
  before: readonly string[],
  group: number,
  usage: JsonObject | null,
): Generator<Event> {
  const base = JSON.stringify(head).slice(0, -1);
  const end = usage === null ? '}\n\n' : ',"usage":null}\n\n';
  const chunk = (index: number, text: string, finish: string | null): string =>
    `data: ${base},"choices":[${JSON.stringify({ text, index, logprobs: null, finish_reason: finish })}]${end}`;
  for (const [index, reply] of replies.entries()) {
    const prompt = before[index] ?? '';
    if (prompt !== '') yield { bytes: chunk(index, prompt, null), tokens: 0 };
    for (const { text, tokens } of reply.text?.pieces(group) ?? []) yield { bytes: chunk(index, text, null), tokens };
    yield { bytes: chunk(index, '', reply.finish), tokens: 0, final: true };
  }
  if (usage !== null) {
    yield { bytes: `data: ${base},"choices":[],"usage":${JSON.stringify(usage)}}\n\n`, tokens: 0, final: true };
  }
  yield { bytes: 'data: [DONE]\n\n', tokens: 0, final: true };
}
