/** Events of ConverseStream as chat chunks. Each is an object whose one key names it. */
import type { JsonObject } from '../../kernel/json.ts';
import { unnamedCall } from '../../operations/convert/chat-choice.ts';
import { givenNumber, givenObject, givenText, invalidAnswer, needed } from '../../operations/convert/fields.ts';
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
    // The one member names the event; those of the future say nothing that chat could show.
    for (const name of Object.keys(data)) {
      const event = (): JsonObject => needed(givenObject(data, name), name);
      if (name === 'contentBlockDelta') this.#piece(event(), emit);
      else if (name === 'messageStart') this.#delta({ role: 'assistant', content: '' }, emit);
      else if (name === 'contentBlockStart') this.#open(event(), emit);
      else if (name === 'contentBlockStop') this.#close(indexOf(event()), emit);
      else if (name === 'messageStop') this.#stop = event();
      else if (name === 'metadata') this.#end(event(), emit);
    }
  }

  #open(block: JsonObject, emit: Emit): void {
    const toolUse = givenObject(givenObject(block, 'start') ?? {}, 'toolUse');
    if (toolUse === null) return;
    const name = givenText(toolUse, 'name') || unnamedCall();
    if (name.startsWith(SCHEMA_TOOL_PREFIX)) {
      this.#unwrapped = true;
      this.#calls.set(indexOf(block), { call: null, pieces: false });
      return;
    }
    const call = this.#callCount++;
    this.#calls.set(indexOf(block), { call, pieces: false });
    const id = needed(givenText(toolUse, 'toolUseId'), 'toolUseId');
    this.#delta({ tool_calls: [{ index: call, id, type: 'function', function: { name, arguments: '' } }] }, emit);
  }

  #piece(block: JsonObject, emit: Emit): void {
    const delta = needed(givenObject(block, 'delta'), 'delta');
    const [toolUse, thought] = [givenObject(delta, 'toolUse'), givenObject(delta, 'reasoningContent')];
    this.#say(givenText(delta, 'text') ?? '', emit);
    if (toolUse !== null) this.#input(indexOf(block), needed(givenText(toolUse, 'input'), 'input'), emit);
    if (thought !== null) this.#think(indexOf(block), thought, emit);
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

  #close(index: number, emit: Emit): void {
    const open = this.#calls.get(index);
    this.#calls.delete(index);
    if (open === undefined || open.pieces) return;
    // A call without arguments.
    if (open.call === null) this.#say('{}', emit);
    else this.#delta({ tool_calls: [{ index: open.call, function: { arguments: '{}' } }] }, emit);
  }

  /** Usage comes after the stop reason, and is the end: without it the stream was cut. */
  #end(metadata: JsonObject, emit: Emit): void {
    if (this.#stop === null) throw streamCut();
    // A call whose end was left out still needs its arguments.
    for (const index of [...this.#calls.keys()]) this.#close(index, emit);
    const { strict, includeUsage } = this.#about;
    const reason = needed(givenText(this.#stop, 'stopReason'), 'stopReason');
    const held = { text: this.#text, calls: this.#callCount, unwrapped: this.#unwrapped };
    const choice: JsonObject = { index: 0, delta: {}, logprobs: null, finish_reason: finishOf(reason, held) };
    if (!strict) choice.native_finish_reason = reason;
    this.#chunk([choice], emit, extras({ ...this.#stop, ...metadata }, strict));
    if (includeUsage) this.#chunk([], emit, { usage: converseUsage(metadata.usage) });
    this.closed = true;
    emit({ event: null, data: '[DONE]' });
  }

  protected override finish(): void {
    throw streamCut();
  }
}

const indexOf = (block: JsonObject): number => needed(givenNumber(block, 'contentBlockIndex'), 'contentBlockIndex');
