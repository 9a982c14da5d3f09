import { isObject, type JsonObject } from '../../kernel/json.ts';
import { anthropicErrorStatus, readProviderError } from '../dialects/provider-error.ts';
import { chatUsage, mergeUsage, NO_TOKENS, readUsage } from '../usage.ts';
import { seconds } from './answers.ts';
import type { ConvertContext } from './conversion.ts';
import { asObject, asString } from './fields.ts';
import { SCHEMA_TOOL_PREFIX } from './request-chat-to-messages.ts';
import { finishReason } from './stop-reasons.ts';
import { ConvertingStream, type Emit, streamCut } from './stream-base.ts';

interface OpenBlock {
  readonly type: string;
  /** Running number of the call; null for blocks that are no call. */
  readonly call: number | null;
  /** The block stands for `response_format`: its pieces are the content. */
  readonly unwrap: boolean;
  /** Whole input given at the start, for servers that send no pieces. */
  readonly input: string | null;
  pieces: boolean;
}

/** Messages events as chat chunks (providers §18.7). */
export class MessagesToChatStream extends ConvertingStream {
  readonly #context: ConvertContext;
  readonly #created: number;
  readonly #blocks = new Map<number, OpenBlock>();
  readonly #includeUsage: boolean;
  #id = '';
  #model: string;
  #usage: JsonObject | null = null;
  #calls = 0;
  #unwrapped = false;
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
    switch (data.type) {
      case 'message_start':
        this.#start(asObject(data.message), emit);
        break;
      case 'content_block_start':
        this.#open(data, asObject(data.content_block), emit);
        break;
      case 'content_block_delta':
        this.#piece(data, asObject(data.delta), emit);
        break;
      case 'content_block_stop':
        this.#close(data, emit);
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
    this.#id = asString(message.id) ?? '';
    this.#model = asString(message.model) ?? this.#model;
    if (isObject(message.usage)) this.#usage = mergeUsage(this.#usage, message.usage);
    this.#delta({ role: 'assistant', content: '' }, emit);
  }

  #open(data: JsonObject, block: JsonObject, emit: Emit): void {
    const index = typeof data.index === 'number' ? data.index : 0;
    const type = asString(block.type) ?? '';
    let call: number | null = null;
    let unwrap = false;
    let input: string | null = null;
    if (type === 'tool_use') {
      const name = asString(block.name) ?? '';
      if (isObject(block.input) && Object.keys(block.input).length > 0) input = JSON.stringify(block.input);
      unwrap = name.startsWith(SCHEMA_TOOL_PREFIX);
      if (unwrap) this.#unwrapped = true;
      else {
        call = this.#calls++;
        const id = asString(block.id) ?? '';
        this.#delta({ tool_calls: [{ index: call, id, type: 'function', function: { name, arguments: '' } }] }, emit);
      }
    } else if (type === 'text' && typeof block.text === 'string' && block.text !== '') {
      this.#delta({ content: block.text }, emit);
    } else if (type !== 'text' && this.#context.strict === false) {
      this.#delta({ content_blocks: [{ index, content_block: block }] }, emit);
    }
    this.#blocks.set(index, { type, call, unwrap, input, pieces: false });
  }

  #piece(data: JsonObject, delta: JsonObject, emit: Emit): void {
    const index = typeof data.index === 'number' ? data.index : 0;
    const block = this.#blocks.get(index);
    if (delta.type === 'text_delta') {
      if (typeof delta.text === 'string' && delta.text !== '') this.#delta({ content: delta.text }, emit);
    } else if (delta.type === 'input_json_delta') {
      const piece = asString(delta.partial_json) ?? '';
      if (piece === '' || block === undefined) return;
      block.pieces = true;
      if (block.unwrap) this.#delta({ content: piece }, emit);
      else if (block.call !== null) this.#arguments(block.call, piece, emit);
    } else if (this.#context.strict === false) {
      const out: JsonObject = { content_blocks: [{ index, delta }] };
      if (typeof delta.thinking === 'string' && delta.thinking !== '') out.reasoning_content = delta.thinking;
      this.#delta(out, emit);
    }
  }

  #close(data: JsonObject, emit: Emit): void {
    const index = typeof data.index === 'number' ? data.index : 0;
    const block = this.#blocks.get(index);
    this.#blocks.delete(index);
    if (block === undefined || block.pieces || block.type !== 'tool_use') return;
    const text = block.input ?? '{}';
    if (block.unwrap) this.#delta({ content: text }, emit);
    else if (block.call !== null) this.#arguments(block.call, text, emit);
  }

  #stop(data: JsonObject, emit: Emit): void {
    if (isObject(data.usage)) this.#usage = mergeUsage(this.#usage, data.usage);
    const native = asObject(data.delta).stop_reason;
    if (this.#finished || native === null || native === undefined) return;
    this.#finished = true;
    const finish = this.#unwrapped && native === 'tool_use' ? 'stop' : finishReason(native);
    const choice: JsonObject = { index: 0, delta: {}, logprobs: null, finish_reason: finish };
    if (this.#context.strict === false && typeof native === 'string') choice.native_finish_reason = native;
    this.#chunk([choice], emit);
  }

  #end(emit: Emit): void {
    if (!this.#finished) {
      this.#finished = true;
      this.#chunk([{ index: 0, delta: {}, logprobs: null, finish_reason: 'stop' }], emit);
    }
    if (this.#includeUsage) {
      const usage = this.#usage === null ? null : readUsage('messages', this.#usage);
      this.#chunk([], emit, { usage: chatUsage(usage ?? NO_TOKENS) });
    }
    this.closed = true;
    emit({ event: null, data: '[DONE]' });
  }

  protected override finish(): void {
    throw streamCut();
  }
}
