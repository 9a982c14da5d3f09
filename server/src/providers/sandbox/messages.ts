import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { messagesUsage } from '../../operations/shapes/messages/usage.ts';
import { NO_TOKENS } from '../../operations/usage.ts';
import {
  type Answer,
  type Event,
  groupOf,
  inBody,
  jsonAnswer,
  streamAnswer,
  textAnswer,
  wholeAnswer,
} from './answer.ts';
import { type Ask, type Choice, type Format, promptTokens, schemaOf, type Tool, type Turn } from './ask.ts';
import type { Input } from './chat.ts';
import { Fields } from './fields.ts';
import { parseModelName } from './model.ts';
import { invalid, missing } from './problem.ts';
import { compose, type Reply } from './reply.ts';

interface Blocks {
  readonly texts: string[];
  readonly media: string[];
  readonly result: boolean;
}

/** Blocks whose kind is known are checked; others are accepted and counted as media. */
function readBlocks(value: JsonValue | undefined, path: string): Blocks {
  if (typeof value === 'string') return { texts: [value], media: [], result: false };
  if (!Array.isArray(value)) throw invalid(`${path}: Input should be a valid string or list of content blocks.`, path);
  const texts: string[] = [];
  const media: string[] = [];
  let result = false;
  for (const [i, item] of value.entries()) {
    const block = Fields.of(item, `${path}.${i}`);
    const type = block.needText('type');
    switch (type) {
      case 'text':
        texts.push(block.needText('text'));
        break;
      case 'thinking':
        texts.push(block.needText('thinking'));
        break;
      case 'tool_use':
        block.needText('id');
        texts.push(block.needText('name'), JSON.stringify(block.object('input')?.value ?? {}));
        break;
      case 'tool_result':
        block.needText('tool_use_id');
        result = true;
        if (block.has('content')) {
          const inner = readBlocks(block.raw('content'), block.at('content'));
          texts.push(...inner.texts);
          media.push(...inner.media);
        }
        break;
      case 'redacted_thinking':
        break;
      default:
        media.push(type.slice(0, 40));
    }
  }
  return { texts, media, result };
}

function readTurns(fields: Fields): Turn[] {
  const turns: Turn[] = [];
  if (fields.has('system')) {
    const { texts } = readBlocks(fields.raw('system'), 'system');
    turns.push({ role: 'system', texts, media: [] });
  }
  for (const [i, item] of fields.needList('messages').entries()) {
    const message = Fields.of(item, `messages.${i}`);
    const role = message.oneOf('role', ['user', 'assistant', 'system']);
    if (role === undefined) throw missing(message.at('role'));
    if (!message.has('content')) throw missing(message.at('content'));
    const { texts, media, result } = readBlocks(message.raw('content'), message.at('content'));
    turns.push({ role: result ? 'tool' : role, texts, media });
  }
  return turns;
}

/** Tools with a schema; those the provider itself runs have none and are not called here. */
function readTools(fields: Fields): Tool[] {
  return fields.tools('tools').flatMap((value, i): Tool[] => {
    const tool = Fields.of(value, `tools.${i}`);
    const type = tool.text('type');
    if (type !== undefined && type !== 'custom') return [];
    const name = tool.needText('name');
    if (!/^[a-zA-Z0-9_-]{1,128}$/.test(name)) {
      throw invalid(`${tool.at('name')}: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'`, tool.at('name'));
    }
    const schema = tool.object('input_schema');
    if (schema === undefined) throw missing(tool.at('input_schema'));
    return [{ name, kind: 'function', schema: schemaOf(schema.value) }];
  });
}

function readChoice(choice: Fields | undefined): Choice {
  switch (choice?.oneOf('type', ['auto', 'any', 'tool', 'none'])) {
    case 'any':
      return { kind: 'required' };
    case 'none':
      return { kind: 'none' };
    case 'tool':
      return { kind: 'named', names: [choice.needText('name')] };
    default:
      return { kind: 'auto' };
  }
}

function readFormat(fields: Fields): Format {
  const format = fields.object('output_config')?.object('format') ?? fields.object('output_format');
  if (format?.oneOf('type', ['json_schema']) !== 'json_schema') return { kind: 'text' };
  return { kind: 'json_schema', schema: schemaOf(format.object('schema')?.value) };
}

function wantsThinking(fields: Fields, limit: number): boolean {
  const thinking = fields.object('thinking');
  const type = thinking?.oneOf('type', ['enabled', 'disabled', 'adaptive']);
  if (thinking === undefined || type === undefined || type === 'disabled') return false;
  if (type === 'enabled') {
    const budget = thinking.integer('budget_tokens', 1024, 10_000_000);
    if (budget === undefined) throw missing('thinking.budget_tokens');
    if (budget >= limit) throw invalid('`max_tokens` must be greater than `thinking.budget_tokens`.', 'max_tokens');
  }
  return true;
}

/** `POST /messages/count_tokens`. */
export async function countMessages(input: Input): Promise<Answer> {
  const fields = new Fields(input.body);
  const model = parseModelName(fields.needText('model'));
  const turns = readTurns(fields);
  readTools(fields);
  const tokens = await promptTokens(turns, input.body.tools);
  return wholeAnswer(model, 0, jsonAnswer(200, { input_tokens: tokens, system_fingerprint: 'sandbox' }));
}

/** `POST /messages`. */
export async function messages(input: Input): Promise<Answer> {
  const fields = new Fields(input.body);
  const model = parseModelName(fields.needText('model'));
  const turns = readTurns(fields);
  const limit = fields.integer('max_tokens', 1, 10_000_000);
  if (limit === undefined) throw missing('max_tokens');
  fields.number('temperature', 0, 1);
  fields.number('top_p', 0, 1);
  fields.integer('top_k', 0, Number.MAX_SAFE_INTEGER);
  const choice = fields.object('tool_choice');
  const ask: Ask = {
    model,
    turns,
    tools: readTools(fields),
    choice: readChoice(choice),
    parallel: choice?.bool('disable_parallel_tool_use') !== true,
    format: readFormat(fields),
    bounds: { limit, stops: fields.texts('stop_sequences', 8_192) },
    softLimit: null,
    choices: 1,
    thinking: wantsThinking(fields, limit),
    stream: fields.bool('stream') ?? false,
    hash: input.hash,
  };
  const reply = await compose(ask, 0);
  const prompt = await promptTokens(turns, input.body.tools);
  const usage: JsonObject = {
    ...messagesUsage.write({
      ...NO_TOKENS,
      input: prompt,
      output: reply.tokens,
      reasoning: reply.thinking?.tokens ?? 0,
    }),
    service_tier: 'standard',
  };
  const head: JsonObject = {
    id: `msg_sandbox_${input.hash.slice(0, 20)}`,
    type: 'message',
    role: 'assistant',
    model: model.name,
    system_fingerprint: 'sandbox',
  };
  if (ask.stream) return streamAnswer(model, events(ask, reply, head, usage));
  const body: JsonObject = { ...head, content: contentOf(ask, reply), ...stopOf(reply), usage };
  return textAnswer({ model, tokens: reply.tokens }, body, [reply.text], input.hash);
}

function stopOf(reply: Reply): JsonObject {
  const stop = reply.text?.stop ?? null;
  const reason = { stop: 'end_turn', length: 'max_tokens', tool_calls: 'tool_use' }[reply.finish];
  return { stop_reason: stop === null ? reason : 'stop_sequence', stop_sequence: stop };
}

const signatureOf = (ask: Ask): string => Buffer.from(`sandbox ${ask.hash}`).toString('base64');

/** Arguments that were cut at the limit are no JSON: the block is then empty. */
function inputOf(text: string | null): JsonValue {
  try {
    const value: unknown = parseJson(text ?? '');
    return isObject(value) ? value : {};
  } catch {
    return {};
  }
}

function contentOf(ask: Ask, reply: Reply): JsonObject[] {
  const content: JsonObject[] = [];
  if (reply.thinking !== null) {
    content.push({ type: 'thinking', thinking: reply.thinking.whole ?? '', signature: signatureOf(ask) });
  }
  const text = inBody(reply.text, ask.hash, 0);
  if (text !== null && text !== '') content.push({ type: 'text', text });
  for (const call of reply.calls) {
    content.push({ type: 'tool_use', id: `toolu_${call.id}`, name: call.tool.name, input: inputOf(call.input.whole) });
  }
  return content;
}

function* events(ask: Ask, reply: Reply, head: JsonObject, usage: JsonObject): Generator<Event> {
  const event = (body: JsonObject, tokens = 0, final = false): Event => ({
    bytes: `event: ${body.type}\ndata: ${JSON.stringify(body)}\n\n`,
    tokens,
    final,
  });
  const group = groupOf(ask.model, reply.tokens);
  const delta = (index: number, body: JsonObject, tokens = 0): Event =>
    event({ type: 'content_block_delta', index, delta: body }, tokens);
  yield event({
    type: 'message_start',
    message: { ...head, content: [], stop_reason: null, stop_sequence: null, usage: { ...usage, output_tokens: 1 } },
  });
  yield event({ type: 'ping' });
  let index = 0;
  if (reply.thinking !== null) {
    yield event({
      type: 'content_block_start',
      index,
      content_block: { type: 'thinking', thinking: '', signature: '' },
    });
    for (const { text, tokens } of reply.thinking.pieces(group)) {
      yield delta(index, { type: 'thinking_delta', thinking: text }, tokens);
    }
    yield delta(index, { type: 'signature_delta', signature: signatureOf(ask) });
    yield event({ type: 'content_block_stop', index });
    index += 1;
  }
  if (reply.text !== null) {
    yield event({ type: 'content_block_start', index, content_block: { type: 'text', text: '' } });
    for (const { text, tokens } of reply.text.pieces(group)) yield delta(index, { type: 'text_delta', text }, tokens);
    yield event({ type: 'content_block_stop', index });
    index += 1;
  }
  for (const call of reply.calls) {
    const block = { type: 'tool_use', id: `toolu_${call.id}`, name: call.tool.name, input: {} };
    yield event({ type: 'content_block_start', index, content_block: block });
    yield delta(index, { type: 'input_json_delta', partial_json: '' });
    for (const { text, tokens } of call.input.pieces(group)) {
      yield delta(index, { type: 'input_json_delta', partial_json: text }, tokens);
    }
    yield event({ type: 'content_block_stop', index });
    index += 1;
  }
  yield event({ type: 'message_delta', delta: stopOf(reply), usage }, 0, true);
  yield event({ type: 'message_stop' }, 0, true);
}
