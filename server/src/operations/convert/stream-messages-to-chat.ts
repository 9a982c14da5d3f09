import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { anthropicErrorStatus, readProviderError } from '../dialects/provider-error.ts';
import { chatUsage } from '../shapes/chat/usage.ts';
import { messagesUsage } from '../shapes/messages/usage.ts';
import { mergeUsage, NO_TOKENS } from '../usage.ts';
import { citationNotes, seconds } from './answers.ts';
import { unnamedCall } from './chat-choice.ts';
import type { ConvertContext } from './conversion.ts';
import { asArray, asObject, asString, givenNumber, givenObject, givenText, invalidAnswer, needed } from './fields.ts';
import { Kept } from './kept.ts';
import { SCHEMA_TOOL_PREFIX } from './request-chat-to-messages.ts';
import { finishReason } from './stop-reasons.ts';
import { ConvertingStream, type Emit, streamCut } from './stream-base.ts';

interface OpenBlock {
  readonly type: string;
  /** Running number of the call; null for blocks that are no call. */
  call: number | null;
  /** The block stands for `response_format`: its pieces are the content. */
  unwrap: boolean;
  /** Whole input given at the start, for servers that send no pieces. */
  input: string | null;
  pieces: boolean;
  /** Where its text begins in the whole text, and the sources of it. */
  readonly from: number;
  readonly notes: JsonValue[];
}

const indexOf = (data: JsonObject): number => needed(givenNumber(data, 'index'), 'index');

/** Messages events as chat chunks. */
export class MessagesToChatStream extends ConvertingStream {
  readonly #context: ConvertContext;
  readonly #created: number;
  readonly #blocks = new Map<number, OpenBlock>();
  readonly #includeUsage: boolean;
  readonly #kept = new Kept();
  #id = '';
  #model: string;
  #usage: JsonObject | null = null;
  #calls = 0;
  /** Length of the text so far. */
  #length = 0;
  #unwrapped = false;
  #started = false;
  #finished = false;

  constructor(context: ConvertContext) {
    super('openai');
    this.#context = context;
    this.#created = seconds(context);
    this.#model = context.model;
    this.#includeUsage = context.includeUsage ?? asObject(context.body?.stream_options).include_usage === true;
  }

  #chunk(choices: JsonObject[], emit: Emit, more?: JsonObject): void {
    const chunk: JsonObject = {
      id: this.#id,
      object: 'chat.completion.chunk',
      created: this.#created,
      model: this.#model,
      choices,
      ...more,
    };
    // Callers who asked for usage see the key on every chunk, null before the last.
    if (this.#includeUsage && chunk.usage === undefined) chunk.usage = null;
    emit({ event: null, data: JSON.stringify(chunk) });
  }

  #delta(delta: JsonObject, emit: Emit): void {
    this.#chunk([{ index: 0, delta, logprobs: null, finish_reason: null }], emit);
  }

  #arguments(call: number, text: string, emit: Emit): void {
    this.#delta({ tool_calls: [{ index: call, function: { arguments: text } }] }, emit);
  }

  protected override read(data: JsonObject, emit: Emit): void {
    switch (needed(givenText(data, 'type'), 'type')) {
      case 'message_start':
        this.#start(needed(givenObject(data, 'message'), 'message'), emit);
        break;
      case 'content_block_start':
        this.#open(indexOf(data), needed(givenObject(data, 'content_block'), 'content_block'), emit);
        break;
      case 'content_block_delta':
        this.#piece(indexOf(data), needed(givenObject(data, 'delta'), 'delta'), emit);
        break;
      case 'content_block_stop':
        this.#close(indexOf(data), emit);
        break;
      case 'message_delta':
        this.#stop(data, emit);
        break;
      case 'message_stop':
        this.#end(emit);
        break;
      case 'error': {
        const type = asString(asObject(data.error).type) ?? 'api_error';
        this.fail(readProviderError(anthropicErrorStatus(type), data), emit);
        break;
      }
      default:
      // `ping` and event types of the future say nothing a chat caller could use.
    }
  }

  #start(message: JsonObject, emit: Emit): void {
    this.#started = true;
    this.#id = asString(message.id) ?? '';
    this.#model = asString(message.model) ?? this.#model;
    if (isObject(message.usage)) this.#usage = mergeUsage(this.#usage, message.usage);
    this.#delta({ role: 'assistant', content: '' }, emit);
  }

  #open(index: number, block: JsonObject, emit: Emit): void {
    const type = needed(givenText(block, 'type'), 'type');
    this.#kept.add(JSON.stringify(block).length);
    const open: OpenBlock = {
      type,
      call: null,
      unwrap: false,
      input: null,
      pieces: false,
      from: this.#length,
      notes: [],
    };
    if (type === 'tool_use') {
      const name = givenText(block, 'name') || unnamedCall();
      const input = givenObject(block, 'input');
      if (input !== null && Object.keys(input).length > 0) open.input = JSON.stringify(input);
      open.unwrap = name.startsWith(SCHEMA_TOOL_PREFIX);
      if (open.unwrap) this.#unwrapped = true;
      else {
        open.call = this.#calls++;
        const id = needed(givenText(block, 'id'), 'id');
        const called = { index: open.call, id, type: 'function', function: { name, arguments: '' } };
        this.#delta({ tool_calls: [called] }, emit);
      }
    } else if (type === 'text') {
      this.#say(givenText(block, 'text') ?? '', emit);
      open.notes.push(...asArray(block.citations));
    } else if (this.#context.strict === false) {
      this.#delta({ content_blocks: [{ index, content_block: block }] }, emit);
    }
    this.#blocks.set(index, open);
  }

  #say(text: string, emit: Emit): void {
    if (text === '') return;
    this.#length += text.length;
    this.#delta({ content: text }, emit);
  }

  #piece(index: number, delta: JsonObject, emit: Emit): void {
    const block = this.#blocks.get(index);
    const type = needed(givenText(delta, 'type'), 'type');
    // Its text would be shown, its input be lost, and whose it is nobody could tell.
    if (block === undefined) throw invalidAnswer('The provider sent a piece of a block that never began.');
    if (type === 'text_delta') this.#say(needed(givenText(delta, 'text'), 'text'), emit);
    else if (type === 'input_json_delta') {
      const piece = needed(givenText(delta, 'partial_json'), 'partial_json');
      if (piece === '') return;
      block.pieces = true;
      if (block.unwrap) this.#say(piece, emit);
      else if (block.call !== null) this.#arguments(block.call, piece, emit);
    } else if (type === 'citations_delta') {
      this.#kept.add(JSON.stringify(delta).length);
      block.notes.push(delta.citation ?? null);
    } else if (this.#context.strict === false) {
      const out: JsonObject = { content_blocks: [{ index, delta }] };
      if (typeof delta.thinking === 'string' && delta.thinking !== '') out.reasoning_content = delta.thinking;
      this.#delta(out, emit);
    }
  }

  #close(index: number, emit: Emit): void {
    const block = this.#blocks.get(index);
    this.#blocks.delete(index);
    if (block === undefined) return;
    const annotations = citationNotes(block.notes, block.from, this.#length);
    if (annotations.length > 0) this.#delta({ annotations }, emit);
    if (block.pieces || block.type !== 'tool_use') return;
    const text = block.input ?? '{}';
    if (block.unwrap) this.#say(text, emit);
    else if (block.call !== null) this.#arguments(block.call, text, emit);
  }

  #stop(data: JsonObject, emit: Emit): void {
    if (isObject(data.usage)) this.#usage = mergeUsage(this.#usage, data.usage);
    const native = givenText(needed(givenObject(data, 'delta'), 'delta'), 'stop_reason');
    if (this.#finished || native === null) return;
    this.#closeAll(emit);
    this.#finished = true;
    const finish = this.#unwrapped && native === 'tool_use' ? 'stop' : finishReason(native);
    const choice: JsonObject = { index: 0, delta: {}, logprobs: null, finish_reason: finish };
    if (this.#context.strict === false) choice.native_finish_reason = native;
    this.#chunk([choice], emit);
  }

  /** Blocks whose end was left out: a call among them still needs its arguments. */
  #closeAll(emit: Emit): void {
    for (const index of [...this.#blocks.keys()]) this.#close(index, emit);
  }

  #end(emit: Emit): void {
    if (!this.#started) throw streamCut();
    if (!this.#finished) {
      this.#closeAll(emit);
      this.#finished = true;
      this.#chunk([{ index: 0, delta: {}, logprobs: null, finish_reason: 'stop' }], emit);
    }
    if (this.#includeUsage) {
      const usage = this.#usage === null ? null : messagesUsage.read(this.#usage);
      this.#chunk([], emit, { usage: chatUsage.write(usage ?? NO_TOKENS) });
    }
    this.closed = true;
    emit({ event: null, data: '[DONE]' });
  }

  protected override finish(): void {
    throw streamCut();
  }
}
