/** Events of ConverseStream as chat chunks (providers §13.3). Each is an object whose one key names it. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asObject, asString, invalidAnswer } from '../../operations/convert/fields.ts';
import { SCHEMA_TOOL_PREFIX } from '../../operations/convert/request-chat-to-messages.ts';
import { ConvertingStream, type Emit, streamCut } from '../../operations/convert/stream-base.ts';
import { converseUsage, extras, finishOf } from './converse-answer.ts';

export interface StreamAbout {
  readonly id: string;
  readonly model: string;
  /** Unix seconds. */
  readonly created: number;
  readonly strict: boolean;
  readonly includeUsage: boolean;
}

interface OpenCall {
  /** Running number of the call; null where it stands for the format of the answer and its input is the text. */
  readonly call: number | null;
  pieces: boolean;
}

export class ConverseToChatStream extends ConvertingStream {
  readonly #about: StreamAbout;
  readonly #calls = new Map<number, OpenCall>();
  /** Blocks of thought that were announced. */
  readonly #thoughts = new Set<number>();
  #callCount = 0;
  #text = false;
  #unwrapped = false;
  #stop: JsonObject | null = null;

  constructor(about: StreamAbout) {
    super('openai');
    this.#about = about;
  }

  #chunk(choices: JsonObject[], emit: Emit, more?: JsonObject): void {
    const { id, created, model, includeUsage } = this.#about;
    const chunk: JsonObject = { id, object: 'chat.completion.chunk', created, model, choices, ...more };
    // Callers who asked for usage see the key on every chunk, null before the last.
    if (includeUsage && chunk.usage === undefined) chunk.usage = null;
    emit({ event: null, data: JSON.stringify(chunk) });
  }

  #delta(delta: JsonObject, emit: Emit): void {
    this.#chunk([{ index: 0, delta, logprobs: null, finish_reason: null }], emit);
  }

  protected override read(data: JsonObject, emit: Emit): void {
    if (isObject(data.contentBlockDelta)) this.#piece(data.contentBlockDelta, emit);
    else if (isObject(data.messageStart)) this.#delta({ role: 'assistant', content: '' }, emit);
    else if (isObject(data.contentBlockStart)) this.#open(data.contentBlockStart, emit);
    else if (isObject(data.contentBlockStop)) this.#close(data.contentBlockStop, emit);
    else if (isObject(data.messageStop)) this.#stop = data.messageStop;
    else if (isObject(data.metadata)) this.#end(data.metadata, emit);
  }

  #open(block: JsonObject, emit: Emit): void {
    const { toolUse } = asObject(block.start);
    if (!isObject(toolUse)) return;
    const name = asString(toolUse.name) ?? '';
    if (name.startsWith(SCHEMA_TOOL_PREFIX)) {
      this.#unwrapped = true;
      this.#calls.set(indexOf(block), { call: null, pieces: false });
      return;
    }
    const call = this.#callCount++;
    this.#calls.set(indexOf(block), { call, pieces: false });
    const id = asString(toolUse.toolUseId) ?? '';
    this.#delta({ tool_calls: [{ index: call, id, type: 'function', function: { name, arguments: '' } }] }, emit);
  }

  #piece(block: JsonObject, emit: Emit): void {
    const delta = asObject(block.delta);
    if (typeof delta.text === 'string') this.#say(delta.text, emit);
    else if (isObject(delta.toolUse)) this.#input(indexOf(block), asString(delta.toolUse.input) ?? '', emit);
    else if (isObject(delta.reasoningContent)) this.#think(indexOf(block), delta.reasoningContent, emit);
  }

  #say(text: string, emit: Emit): void {
    if (text === '') return;
    this.#text = true;
    this.#delta({ content: text }, emit);
  }

  #input(index: number, text: string, emit: Emit): void {
    const open = this.#calls.get(index);
    if (open === undefined) throw invalidAnswer('The provider sent a piece of a call that never began.');
    if (text === '') return;
    open.pieces = true;
    if (open.call === null) this.#say(text, emit);
    else this.#delta({ tool_calls: [{ index: open.call, function: { arguments: text } }] }, emit);
  }

  /** Thinking is shown outside strict shape only, as the events of Messages show it. */
  #think(index: number, content: JsonObject, emit: Emit): void {
    if (this.#about.strict) return;
    const show = (block: JsonObject, more?: JsonObject): void =>
      this.#delta({ content_blocks: [{ index, ...block }], ...more }, emit);
    if (typeof content.redactedContent === 'string') {
      show({ content_block: { type: 'redacted_thinking', data: content.redactedContent } });
      return;
    }
    if (!this.#thoughts.has(index)) {
      this.#thoughts.add(index);
      show({ content_block: { type: 'thinking', thinking: '', signature: '' } });
    }
    const { text, signature } = content;
    if (typeof text === 'string' && text !== '') {
      show({ delta: { type: 'thinking_delta', thinking: text } }, { reasoning_content: text });
    }
    if (typeof signature === 'string' && signature !== '') show({ delta: { type: 'signature_delta', signature } });
  }

  #close(block: JsonObject, emit: Emit): void {
    const index = indexOf(block);
    const open = this.#calls.get(index);
    this.#calls.delete(index);
    if (open === undefined || open.pieces) return;
    // A call without arguments.
    if (open.call === null) this.#say('{}', emit);
    else this.#delta({ tool_calls: [{ index: open.call, function: { arguments: '{}' } }] }, emit);
  }

  /** Usage comes after the stop reason, and is the end: without it the stream was cut (RULE 10). */
  #end(metadata: JsonObject, emit: Emit): void {
    if (this.#stop === null) throw streamCut();
    const { strict, includeUsage } = this.#about;
    const reason = asString(this.#stop.stopReason) ?? '';
    const held = { text: this.#text, calls: this.#callCount, unwrapped: this.#unwrapped };
    const choice: JsonObject = { index: 0, delta: {}, logprobs: null, finish_reason: finishOf(reason, held) };
    if (!strict && reason !== '') choice.native_finish_reason = reason;
    this.#chunk([choice], emit, extras({ ...this.#stop, ...metadata }, strict));
    if (includeUsage) this.#chunk([], emit, { usage: converseUsage(metadata.usage) });
    this.closed = true;
    emit({ event: null, data: '[DONE]' });
  }

  protected override finish(): void {
    throw streamCut();
  }
}

function indexOf(block: JsonObject): number {
  const index: JsonValue | undefined = block.contentBlockIndex;
  return typeof index === 'number' ? index : 0;
}
