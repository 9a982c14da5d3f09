import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { chatUsage } from '../../operations/shapes/chat/usage.ts';
import { NO_TOKENS } from '../../operations/usage.ts';
import { type Answer, type Event, groupOf, inBody, streamAnswer, textAnswer } from './answer.ts';
import { type Ask, type Choice, type Format, promptTokens, schemaOf, type Tool, type Turn } from './ask.ts';
import { Fields } from './fields.ts';
import { parseModelName } from './model.ts';
import { invalid } from './problem.ts';
import { compose, type Reply } from './reply.ts';

/** The request body and what is derived from it before anything is read. */
export interface Input {
  readonly body: JsonObject;
  /** Hexadecimal SHA-256 of the bytes. */
  readonly hash: string;
  /** Seconds since the epoch. */
  readonly created: number;
}

const ROLES = ['system', 'developer', 'user', 'assistant', 'tool', 'function'] as const;
const MAX_LIMIT = 10_000_000;

function readContent(message: Fields, required: boolean): { texts: string[]; media: string[] } {
  const content = message.raw('content');
  const texts: string[] = [];
  const media: string[] = [];
  if (content === undefined) {
    if (required) message.wrong('content', 'one of a string or array of objects');
  } else if (typeof content === 'string') texts.push(content);
  else if (!Array.isArray(content)) message.wrong('content', 'one of a string or array of objects');
  else {
    for (const [i, item] of content.entries()) {
      const part = Fields.of(item, `${message.at('content')}[${i}]`);
      const type = part.oneOf('type', ['text', 'image_url', 'input_audio', 'file', 'refusal']);
      if (type === undefined) part.needText('type');
      if (type === 'text') texts.push(part.needText('text'));
      else if (type === 'refusal') texts.push(part.needText('refusal'));
      else if (type === 'image_url') {
        const image = part.object('image_url');
        if (image === undefined) part.wrong('image_url', 'an object');
        else image.needText('url');
        media.push('image');
      } else media.push(type === 'input_audio' ? 'audio' : 'file');
    }
  }
  return { texts, media };
}

function readTurn(value: JsonValue, i: number): Turn {
  const message = Fields.of(value, `messages[${i}]`);
  const role = message.oneOf('role', ROLES);
  if (role === undefined) return { role: message.needText('role'), texts: [], media: [] };
  const calls = message.list('tool_calls');
  const { texts, media } = readContent(
    message,
    role !== 'assistant' ||
      (calls === undefined && !message.has('function_call') && !message.has('refusal') && !message.has('audio')),
  );
  for (const [at, item] of (calls ?? []).entries()) {
    const call = Fields.of(item, `${message.at('tool_calls')}[${at}]`);
    call.needText('id');
    const inner = call.object(call.text('type') === 'custom' ? 'custom' : 'function');
    if (inner === undefined) return call.wrong('function', 'an object');
    texts.push(inner.needText('name'), inner.text('arguments') ?? inner.text('input') ?? '');
  }
  if (role === 'tool') message.needText('tool_call_id');
  const name = message.text('name');
  return { role, texts, media, ...(name === undefined ? null : { name }) };
}

function readTools(fields: Fields): Tool[] {
  const tools = fields.tools('tools').map((value, i): Tool => {
    const tool = Fields.of(value, `tools[${i}]`);
    const kind = tool.oneOf('type', ['function', 'custom']) ?? (tool.needText('type') as 'function');
    const inner = tool.object(kind);
    if (inner === undefined) return tool.wrong(kind, 'an object');
    const name = inner.needName();
    const parameters = inner.object('parameters');
    return { name, kind, schema: schemaOf(parameters?.value) };
  });
  const functions = fields.tools('functions').map((value, i): Tool => {
    const inner = Fields.of(value, `functions[${i}]`);
    return { name: inner.needName(), kind: 'function', schema: schemaOf(inner.object('parameters')?.value) };
  });
  return [...tools, ...functions];
}

function named(fields: Fields, value: JsonValue, path: string): Choice {
  const choice = Fields.of(value, path);
  const type = choice.oneOf('type', ['function', 'custom', 'allowed_tools']);
  if (type === 'allowed_tools') {
    const allowed = choice.object('allowed_tools');
    return { kind: allowed?.oneOf('mode', ['auto', 'required']) ?? 'auto' };
  }
  const inner = type === undefined ? choice : choice.object(type);
  if (inner === undefined) return fields.wrong(path, 'a tool choice with a function name');
  return { kind: 'named', names: [inner.needText('name')] };
}

function readChoice(fields: Fields): Choice {
  const choice = fields.raw('tool_choice') ?? fields.raw('function_call');
  const path = fields.has('tool_choice') ? 'tool_choice' : 'function_call';
  if (choice === undefined) return { kind: 'auto' };
  if (typeof choice === 'string') {
    return { kind: fields.oneOf(path, ['auto', 'none', 'required']) ?? 'auto' };
  }
  return named(fields, choice, path);
}

/** Only the tools an `allowed_tools` choice lists. */
function allowedTools(fields: Fields, tools: readonly Tool[]): readonly Tool[] {
  const choice = fields.raw('tool_choice');
  if (!isObject(choice) || choice.type !== 'allowed_tools' || !isObject(choice.allowed_tools)) return tools;
  const list = choice.allowed_tools.tools;
  if (!Array.isArray(list)) return tools;
  const names = new Set(list.map((item) => (isObject(item) && isObject(item.function) ? item.function.name : null)));
  return tools.filter((tool) => names.has(tool.name));
}

function readFormat(fields: Fields): Format {
  const format = fields.object('response_format');
  if (format === undefined) return { kind: 'text' };
  const kind = format.oneOf('type', ['text', 'json_object', 'json_schema']);
  if (kind === undefined) format.needText('type');
  if (kind !== 'json_schema') return { kind: kind ?? 'text' };
  const schema = format.object('json_schema');
  if (schema === undefined) return format.wrong('json_schema', 'an object');
  schema.needText('name');
  return { kind, schema: schemaOf(schema.object('schema')?.value) };
}

/** Refuses what the sandbox cannot do, and wrong ranges. */
function checkChat(fields: Fields): void {
  fields.number('temperature', 0, 2);
  fields.number('top_p', 0, 1);
  fields.number('frequency_penalty', -2, 2);
  fields.number('presence_penalty', -2, 2);
  fields.integer('seed', Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
  fields.object('logit_bias');
  if (fields.bool('logprobs') === true || fields.has('top_logprobs')) {
    throw invalid(
      "The sandbox has no log probabilities: leave out 'logprobs' and 'top_logprobs'.",
      'logprobs',
      'unsupported_parameter',
    );
  }
  if (fields.has('audio')) {
    throw invalid("The sandbox does not answer in audio: leave out 'audio'.", 'audio', 'unsupported_parameter');
  }
}

function readChat(input: Input): { ask: Ask; includeUsage: boolean } {
  const fields = new Fields(input.body);
  const model = parseModelName(fields.needText('model'));
  const turns = fields.needList('messages').map(readTurn);
  checkChat(fields);
  const tools = readTools(fields);
  if (fields.has('tool_choice') && tools.length === 0) {
    throw invalid(
      "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
      'tool_choice',
      'invalid_value',
    );
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
  const limit =
    fields.integer('max_completion_tokens', 1, MAX_LIMIT) ?? fields.integer('max_tokens', 1, MAX_LIMIT) ?? null;
  return {
    ask: {
      model,
      turns,
      tools: allowedTools(fields, tools),
      choice: readChoice(fields),
      parallel: fields.bool('parallel_tool_calls') ?? true,
      format: readFormat(fields),
      bounds: { limit, stops: fields.texts('stop', 4) },
      softLimit: null,
      choices: fields.integer('n', 1, 128) ?? 1,
      thinking: false,
      stream,
      hash: input.hash,
    },
    includeUsage: options?.bool('include_usage') ?? false,
  };
}

function callOf(call: Reply['calls'][number]): JsonObject {
  const { tool, input } = call;
  return tool.kind === 'custom'
    ? { id: `call_${call.id}`, type: 'custom', custom: { name: tool.name, input: input.whole ?? '' } }
    : { id: `call_${call.id}`, type: 'function', function: { name: tool.name, arguments: input.whole ?? '' } };
}

/** The old `functions` field is answered with the old `function_call`. */
const isLegacy = (body: JsonObject): boolean => Array.isArray(body.functions) && !Array.isArray(body.tools);

function messageOf(reply: Reply, content: string | null, legacy: boolean): JsonObject {
  const message: JsonObject = { role: 'assistant', content, refusal: null, annotations: [] };
  const [first] = reply.calls;
  if (first === undefined) return message;
  if (legacy) return { ...message, function_call: { name: first.tool.name, arguments: first.input.whole ?? '' } };
  return { ...message, tool_calls: reply.calls.map(callOf) };
}

function finishOf(reply: Reply, legacy: boolean): string {
  return legacy && reply.finish === 'tool_calls' ? 'function_call' : reply.finish;
}

/** `POST /chat/completions`. */
export async function chat(input: Input): Promise<Answer> {
  const { ask, includeUsage } = readChat(input);
  const replies: Reply[] = [];
  for (let i = 0; i < ask.choices; i++) replies.push(await compose(ask, i));
  const completion = replies.reduce((sum, reply) => sum + reply.tokens, 0);
  const prompt = await promptTokens(ask.turns, input.body.tools ?? input.body.functions);
  const usage = chatUsage.write({ ...NO_TOKENS, input: prompt, output: completion });
  const legacy = isLegacy(input.body);
  const head = {
    id: `chatcmpl-${ask.hash.slice(0, 29)}`,
    object: ask.stream ? 'chat.completion.chunk' : 'chat.completion',
    created: input.created,
    model: ask.model.name,
  };
  const foot = { service_tier: 'default', system_fingerprint: 'sandbox' };
  if (ask.stream) {
    const events = chunks({
      ask,
      replies,
      completion,
      legacy,
      head: { ...head, ...foot },
      usage: includeUsage ? usage : null,
    });
    return streamAnswer(ask.model, events);
  }
  const body: JsonObject = {
    ...head,
    choices: replies.map((reply, index) => ({
      index,
      message: messageOf(reply, inBody(reply.text, ask.hash, index), legacy),
      logprobs: null,
      finish_reason: finishOf(reply, legacy),
    })),
    usage,
    ...foot,
  };
  return textAnswer(
    { model: ask.model, tokens: completion },
    body,
    replies.map((reply) => reply.text),
    ask.hash,
  );
}

interface Chunks {
  readonly ask: Ask;
  readonly replies: readonly Reply[];
  readonly completion: number;
  readonly legacy: boolean;
  readonly head: JsonObject;
  /** Null: not asked for. */
  readonly usage: JsonObject | null;
}

function* chunks({ ask, replies, completion, legacy, head, usage }: Chunks): Generator<Event> {
  const base = JSON.stringify(head).slice(0, -1);
  const end = usage === null ? '}\n\n' : ',"usage":null}\n\n';
  const group = groupOf(ask.model, completion);
  const chunk = (index: number, delta: JsonObject, finish: string | null, tokens = 0): Event => ({
    bytes: `data: ${base},"choices":[${JSON.stringify({ index, delta, logprobs: null, finish_reason: finish })}]${end}`,
    tokens,
    final: finish !== null,
  });
  for (const [index, reply] of replies.entries()) {
    yield chunk(index, { role: 'assistant', content: reply.calls.length > 0 ? null : '', refusal: null }, null);
    if (reply.text !== null) {
      const open = `data: ${base},"choices":[{"index":${index},"delta":{"content":`;
      const close = `},"logprobs":null,"finish_reason":null}]${end}`;
      for (const { text, tokens } of reply.text.pieces(group)) {
        yield { bytes: open + JSON.stringify(text) + close, tokens };
      }
    }
    for (const [at, call] of reply.calls.entries()) yield* callChunks(call, at, legacy, group, index, chunk);
    yield chunk(index, {}, finishOf(reply, legacy));
  }
  if (usage !== null) {
    yield { bytes: `data: ${base},"choices":[],"usage":${JSON.stringify(usage)}}\n\n`, tokens: 0, final: true };
  }
  yield { bytes: 'data: [DONE]\n\n', tokens: 0, final: true };
}

function* callChunks(
  call: Reply['calls'][number],
  at: number,
  legacy: boolean,
  group: number,
  index: number,
  chunk: (index: number, delta: JsonObject, finish: string | null, tokens?: number) => Event,
): Generator<Event> {
  const { tool, input } = call;
  if (legacy) {
    if (at > 0) return;
    yield chunk(index, { function_call: { name: tool.name, arguments: '' } }, null);
    for (const { text, tokens } of input.pieces(group)) {
      yield chunk(index, { function_call: { arguments: text } }, null, tokens);
    }
    return;
  }
  const custom = tool.kind === 'custom';
  const opening: JsonObject = custom
    ? { index: at, id: `call_${call.id}`, type: 'custom', custom: { name: tool.name, input: '' } }
    : { index: at, id: `call_${call.id}`, type: 'function', function: { name: tool.name, arguments: '' } };
  yield chunk(index, { tool_calls: [opening] }, null);
  for (const { text, tokens } of input.pieces(group)) {
    const piece: JsonObject = custom
      ? { index: at, custom: { input: text } }
      : { index: at, function: { arguments: text } };
    yield chunk(index, { tool_calls: [piece] }, null, tokens);
  }
}
