import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { responsesUsage } from '../../operations/shapes/responses/usage.ts';
import { NO_TOKENS } from '../../operations/usage.ts';
import { type Answer, type Event, groupOf, inBody, streamAnswer, textAnswer } from './answer.ts';
import { type Ask, type Choice, type Format, promptTokens, schemaOf, type Tool, type Turn } from './ask.ts';
import type { Input } from './chat.ts';
import { Fields } from './fields.ts';
import { parseModelName } from './model.ts';
import { invalid, missing, Problem } from './problem.ts';
import { type Call, compose, type Reply } from './reply.ts';

function readParts(value: JsonValue | undefined, path: string): { texts: string[]; media: string[] } {
  if (typeof value === 'string') return { texts: [value], media: [] };
  if (!Array.isArray(value))
    throw invalid(`Invalid type for '${path}': expected a string or an array of content parts.`, path, 'invalid_type');
  const texts: string[] = [];
  const media: string[] = [];
  for (const [i, item] of value.entries()) {
    const part = Fields.of(item, `${path}[${i}]`);
    const type = part.needText('type');
    if (type === 'input_text' || type === 'output_text') texts.push(part.needText('text'));
    else if (type === 'refusal') texts.push(part.needText('refusal'));
    else if (type === 'input_image' || type === 'input_file' || type === 'input_audio')
      media.push(type.slice('input_'.length));
    else
      throw invalid(
        `Invalid value: '${type.slice(0, 100)}'. Supported values are: 'input_text', 'input_image', 'input_file', 'output_text' and 'refusal'.`,
        part.at('type'),
        'invalid_value',
      );
  }
  return { texts, media };
}

function readItem(value: JsonValue, i: number): Turn | null {
  const item = Fields.of(value, `input[${i}]`);
  const type = item.text('type') ?? 'message';
  switch (type) {
    case 'message': {
      const role = item.oneOf('role', ['user', 'assistant', 'system', 'developer']);
      if (role === undefined) throw missing(item.at('role'));
      if (!item.has('content')) throw missing(item.at('content'));
      return { role, ...readParts(item.raw('content'), item.at('content')) };
    }
    case 'function_call':
      return { role: 'assistant', texts: [item.needText('name'), item.text('arguments') ?? ''], media: [] };
    case 'custom_tool_call':
      return { role: 'assistant', texts: [item.needText('name'), item.text('input') ?? ''], media: [] };
    case 'function_call_output':
    case 'custom_tool_call_output':
      item.needText('call_id');
      if (!item.has('output')) throw missing(item.at('output'));
      return { role: 'tool', ...readParts(item.raw('output'), item.at('output')) };
    default:
      return null;
  }
}

function readTurns(fields: Fields): Turn[] {
  const turns: Turn[] = [];
  const instructions = fields.text('instructions');
  if (instructions !== undefined) turns.push({ role: 'developer', texts: [instructions], media: [] });
  const input = fields.raw('input');
  if (input === undefined) throw missing('input');
  if (typeof input === 'string') turns.push({ role: 'user', texts: [input], media: [] });
  else {
    if (!Array.isArray(input)) return fields.wrong('input', 'a string or an array of input items');
    for (const [i, value] of input.entries()) {
      const turn = readItem(value, i);
      if (turn !== null) turns.push(turn);
    }
  }
  return turns;
}

/** Functions and custom tools; hosted tools are accepted and not called. */
function readTools(fields: Fields): Tool[] {
  return fields.tools('tools').flatMap((value, i): Tool[] => {
    const tool = Fields.of(value, `tools[${i}]`);
    const kind = tool.needText('type');
    if (kind !== 'function' && kind !== 'custom') return [];
    return [{ name: tool.needName(), kind, schema: schemaOf(tool.object('parameters')?.value) }];
  });
}

function readChoice(fields: Fields): Choice {
  const raw = fields.raw('tool_choice');
  if (raw === undefined) return { kind: 'auto' };
  if (typeof raw === 'string') return { kind: fields.oneOf('tool_choice', ['auto', 'none', 'required']) ?? 'auto' };
  const choice = Fields.of(raw, 'tool_choice');
  const type = choice.needText('type');
  if (type === 'function' || type === 'custom') return { kind: 'named', names: [choice.needText('name')] };
  return { kind: type === 'allowed_tools' ? (choice.oneOf('mode', ['auto', 'required']) ?? 'auto') : 'auto' };
}

function allowedTools(fields: Fields, tools: readonly Tool[]): readonly Tool[] {
  const choice = fields.raw('tool_choice');
  if (!isObject(choice) || choice.type !== 'allowed_tools' || !Array.isArray(choice.tools)) return tools;
  const names = new Set(choice.tools.map((tool) => (isObject(tool) ? tool.name : null)));
  return tools.filter((tool) => names.has(tool.name));
}

function readFormat(fields: Fields): Format {
  const format = fields.object('text')?.object('format');
  const kind = format?.oneOf('type', ['text', 'json_object', 'json_schema']) ?? 'text';
  if (format === undefined || kind !== 'json_schema') return { kind: kind === 'json_schema' ? 'text' : kind };
  format.needText('name');
  const schema = format.object('schema');
  if (schema === undefined) throw missing(format.at('schema'));
  return { kind, schema: schemaOf(schema.value) };
}

/** `POST /responses`. Nothing is stored: a later `GET` or `previous_response_id` finds no response. */
export async function responses(input: Input): Promise<Answer> {
  const fields = new Fields(input.body);
  const model = parseModelName(fields.needText('model'));
  const turns = readTurns(fields);
  const previous = fields.text('previous_response_id');
  if (previous !== undefined) {
    throw new Problem(
      404,
      `Previous response with id '${previous.slice(0, 100)}' not found: the sandbox stores no responses.`,
      {
        param: 'previous_response_id',
        code: 'previous_response_not_found',
      },
    );
  }
  for (const name of ['background', 'conversation', 'prompt']) {
    if (fields.has(name) && fields.raw(name) !== false) {
      throw invalid(`The sandbox does not offer '${name}': leave it out.`, name, 'unsupported_parameter');
    }
  }
  fields.number('temperature', 0, 2);
  fields.number('top_p', 0, 1);
  const stream = fields.bool('stream') ?? false;
  const ask: Ask = {
    model,
    turns,
    tools: allowedTools(fields, readTools(fields)),
    choice: readChoice(fields),
    parallel: fields.bool('parallel_tool_calls') ?? true,
    format: readFormat(fields),
    bounds: { limit: fields.integer('max_output_tokens', 16, 10_000_000) ?? null, stops: [] },
    softLimit: null,
    choices: 1,
    thinking: fields.object('reasoning')?.has('summary') ?? false,
    stream,
    hash: input.hash,
  };
  const reply = await compose(ask, 0);
  if (stream && reply.text?.whole === null) {
    throw invalid(
      'The last events of a Responses stream repeat the whole text, so the sandbox streams at most 16384 tokens here; use /chat/completions for more.',
      'model',
      'invalid_value',
    );
  }
  const prompt = await promptTokens(turns, input.body.tools);
  const usage = responsesUsage.write({
    ...NO_TOKENS,
    input: prompt,
    output: reply.tokens,
    reasoning: reply.thinking?.tokens ?? 0,
  });
  const shell = shellOf(input, model.name);
  const ids = idsOf(input.hash);
  if (stream) return streamAnswer(model, events(ask, reply, shell, usage, ids));
  const body = { ...shell, ...endOf(reply), output: outputOf(reply, inBody(reply.text, input.hash, 0), ids), usage };
  return textAnswer({ model, tokens: reply.tokens }, body, [reply.text], input.hash);
}

/** The response object without what only its end decides. */
function shellOf({ body, hash, created }: Input, model: string): JsonObject {
  return {
    id: `resp_${hash.slice(0, 48)}`,
    object: 'response',
    created_at: created,
    status: 'in_progress',
    background: false,
    error: null,
    incomplete_details: null,
    instructions: body.instructions ?? null,
    max_output_tokens: body.max_output_tokens ?? null,
    model,
    output: [],
    parallel_tool_calls: body.parallel_tool_calls ?? true,
    previous_response_id: null,
    reasoning: body.reasoning ?? { effort: null, summary: null },
    service_tier: 'default',
    store: body.store ?? true,
    temperature: body.temperature ?? 1,
    text: body.text ?? { format: { type: 'text' } },
    tool_choice: body.tool_choice ?? 'auto',
    tools: body.tools ?? [],
    top_p: body.top_p ?? 1,
    truncation: body.truncation ?? 'disabled',
    usage: null,
    user: body.user ?? null,
    metadata: body.metadata ?? {},
    system_fingerprint: 'sandbox',
  };
}

function endOf(reply: Reply): JsonObject {
  return reply.finish === 'length'
    ? { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } }
    : { status: 'completed' };
}

interface Ids {
  readonly message: string;
  readonly reasoning: string;
}

const idsOf = (hash: string): Ids => ({ message: `msg_${hash.slice(0, 40)}`, reasoning: `rs_${hash.slice(0, 40)}` });

function reasoningItem(ids: Ids, text: string): JsonObject {
  return { id: ids.reasoning, type: 'reasoning', summary: [{ type: 'summary_text', text }] };
}

function messageItem(ids: Ids, reply: Reply, text: string): JsonObject {
  return {
    id: ids.message,
    type: 'message',
    status: reply.finish === 'length' ? 'incomplete' : 'completed',
    role: 'assistant',
    content: [{ type: 'output_text', text, annotations: [], logprobs: [] }],
  };
}

function callItem(call: Call, status: string, text: string): JsonObject {
  const common = { call_id: `call_${call.id}`, name: call.tool.name, status };
  return call.tool.kind === 'custom'
    ? { id: `ctc_${call.id}`, type: 'custom_tool_call', ...common, input: text }
    : { id: `fc_${call.id}`, type: 'function_call', ...common, arguments: text };
}

const statusOf = (call: Call): string => (call.input.truncated ? 'incomplete' : 'completed');

function outputOf(reply: Reply, text: string | null, ids: Ids): JsonObject[] {
  const output: JsonObject[] = [];
  if (reply.thinking !== null) output.push(reasoningItem(ids, reply.thinking.whole ?? ''));
  if (text !== null) output.push(messageItem(ids, reply, text));
  for (const call of reply.calls) output.push(callItem(call, statusOf(call), call.input.whole ?? ''));
  return output;
}

function* events(ask: Ask, reply: Reply, shell: JsonObject, usage: JsonObject, ids: Ids): Generator<Event> {
  let sequence = 0;
  const event = (type: string, body: JsonObject, tokens = 0, final = false): Event => ({
    bytes: `event: ${type}\ndata: ${JSON.stringify({ type, sequence_number: sequence++, ...body })}\n\n`,
    tokens,
    final,
  });
  const group = groupOf(ask.model, reply.tokens);
  yield event('response.created', { response: shell });
  yield event('response.in_progress', { response: shell });
  let output_index = 0;
  if (reply.thinking !== null) {
    const at = { item_id: ids.reasoning, output_index, summary_index: 0 };
    const whole = reply.thinking.whole ?? '';
    yield event('response.output_item.added', {
      output_index,
      item: { id: ids.reasoning, type: 'reasoning', summary: [] },
    });
    yield event('response.reasoning_summary_part.added', { ...at, part: { type: 'summary_text', text: '' } });
    for (const { text, tokens } of reply.thinking.pieces(group)) {
      yield event('response.reasoning_summary_text.delta', { ...at, delta: text }, tokens);
    }
    yield event('response.reasoning_summary_text.done', { ...at, text: whole });
    yield event('response.reasoning_summary_part.done', { ...at, part: { type: 'summary_text', text: whole } });
    yield event('response.output_item.done', { output_index, item: reasoningItem(ids, whole) });
    output_index += 1;
  }
  if (reply.text !== null) {
    const at = { item_id: ids.message, output_index, content_index: 0 };
    const whole = reply.text.whole ?? '';
    const empty = { id: ids.message, type: 'message', status: 'in_progress', role: 'assistant', content: [] };
    yield event('response.output_item.added', { output_index, item: empty });
    yield event('response.content_part.added', {
      ...at,
      part: { type: 'output_text', text: '', annotations: [], logprobs: [] },
    });
    for (const { text, tokens } of reply.text.pieces(group)) {
      yield event('response.output_text.delta', { ...at, delta: text, logprobs: [] }, tokens);
    }
    yield event('response.output_text.done', { ...at, text: whole, logprobs: [] });
    yield event('response.content_part.done', {
      ...at,
      part: { type: 'output_text', text: whole, annotations: [], logprobs: [] },
    });
    yield event('response.output_item.done', { output_index, item: messageItem(ids, reply, whole) });
    output_index += 1;
  }
  for (const call of reply.calls) {
    const custom = call.tool.kind === 'custom';
    const name = custom ? 'response.custom_tool_call_input' : 'response.function_call_arguments';
    const item_id = `${custom ? 'ctc' : 'fc'}_${call.id}`;
    const whole = call.input.whole ?? '';
    yield event('response.output_item.added', { output_index, item: callItem(call, 'in_progress', '') });
    for (const { text, tokens } of call.input.pieces(group)) {
      yield event(`${name}.delta`, { item_id, output_index, delta: text }, tokens);
    }
    const done: JsonObject = custom ? { input: whole } : { name: call.tool.name, arguments: whole };
    yield event(`${name}.done`, { item_id, output_index, ...done });
    yield event('response.output_item.done', { output_index, item: callItem(call, statusOf(call), whole) });
    output_index += 1;
  }
  const end = reply.finish === 'length' ? 'response.incomplete' : 'response.completed';
  const text = reply.text === null ? null : (reply.text.whole ?? '');
  yield event(end, { response: { ...shell, ...endOf(reply), output: outputOf(reply, text, ids), usage } }, 0, true);
}
