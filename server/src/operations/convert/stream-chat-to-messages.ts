import type { JsonObject } from '../../kernel/json.ts';
import { streamedError } from '../dialects/provider-error.ts';
import { messagesUsage } from '../shapes/messages/usage.ts';
import { mergeUsage } from '../usage.ts';
import {
  answeredInput,
  chatUsageObject,
  paintedForMessages,
  readChatUsage,
  reasoningText,
  wantsThinking,
} from './answers.ts';
import { type StreamedCall, StreamedCalls } from './chat-calls.ts';
import { callPieces, contentText, firstDeltas, unnamedCall } from './chat-choice.ts';
import type { ConvertContext, ConvertTarget } from './conversion.ts';
import { asArray, asObject, asString, givenObjects, givenText, invalidAnswer } from './fields.ts';
import { Kept } from './kept.ts';
import { portableItems, signatureOf } from './reasoning-items.ts';
import { stopReason } from './stop-reasons.ts';
import { ConvertingStream, type Emit, streamCut } from './stream-base.ts';

type Open = { readonly kind: 'text' | 'thinking' } | { readonly kind: 'call'; readonly at: number };

/**
 * Chat chunks as Messages events. Blocks may not interleave there: pieces of a later call wait until
 * the call before it is complete.
 */
export class ChatToMessagesStream extends ConvertingStream {
  readonly #context: ConvertContext;
  readonly #target: ConvertTarget;
  readonly #thinking: boolean;
  readonly #calls = new StreamedCalls();
  readonly #kept = new Kept();
  /** Calls before this position have had their block. */
  #nextCall = 0;
  #open: Open | null = null;
  #index = -1;
  #started = false;
  /** Text that came in the middle of a call. */
  #held = '';
  #refused = false;
  /** Of the thinking block that is open. */
  #signature = '';
  #finish: string | null = null;
  #usage: JsonObject | null = null;

  constructor(context: ConvertContext, target: ConvertTarget) {
    super('anthropic');
    this.#context = context;
    this.#target = target;
    this.#thinking = wantsThinking(context);
  }

  #emit(type: string, fields: JsonObject, emit: Emit): void {
    emit({ event: type, data: JSON.stringify({ type, ...fields }) });
  }

  protected override read(chunk: JsonObject, emit: Emit): void {
    const error = streamedError(chunk);
    if (error !== null) {
      this.fail(error, emit);
      return;
    }
    this.#start(chunk, emit);
    const usage = chatUsageObject(chunk, this.#target);
    if (usage !== null) this.#usage = mergeUsage(this.#usage, usage);
    for (const { choice, delta } of firstDeltas(chunk)) {
      this.#delta(delta, emit);
      this.#finish = givenText(choice, 'finish_reason') ?? this.#finish;
    }
  }

  #start(chunk: JsonObject, emit: Emit): void {
    if (this.#started) return;
    this.#started = true;
    const message: JsonObject = {
      id: asString(chunk.id) ?? '',
      type: 'message',
      role: 'assistant',
      model: asString(chunk.model) || this.#context.model,
      content: [],
      stop_reason: null,
      stop_sequence: null,
      // True counts are only known at the end: `message_delta` carries them.
      usage: { input_tokens: 0, output_tokens: 0 },
    };
    this.#emit('message_start', { message }, emit);
  }

  #delta(delta: JsonObject, emit: Emit): void {
    if (this.#thinking) {
      const reasoning = reasoningText(delta, this.#target);
      if (reasoning !== '') this.#think(reasoning, emit);
      if (this.#target.reasoningItems === true) this.#sign(delta, emit);
    }
    const text = contentText(delta);
    if (text !== '') this.#text('text', text, emit);
    const refusal = givenText(delta, 'refusal') ?? '';
    if (refusal !== '') {
      this.#refused = true;
      this.#text('text', refusal, emit);
    }
    if (givenObjects(delta, 'images').length > 0) throw paintedForMessages();
    for (const piece of callPieces(delta)) {
      this.#calls.take(piece);
      this.#flush(false, emit);
    }
  }

  #text(kind: 'text' | 'thinking', text: string, emit: Emit): void {
    if (this.#open?.kind === 'call') {
      const call = this.#calls.all[this.#open.at];
      // The block of a call must stay open until its arguments are complete; thinking then has no place at all.
      if (call !== undefined && !call.end.complete) {
        if (kind === 'text') {
          this.#kept.add(text.length);
          this.#held += text;
        }
        return;
      }
    }
    if (this.#open?.kind !== kind) {
      this.#close(emit);
      const block: JsonObject =
        kind === 'text' ? { type: kind, text: '' } : { type: kind, thinking: '', signature: '' };
      this.#begin({ kind }, block, emit);
    }
    const delta: JsonObject =
      kind === 'text' ? { type: 'text_delta', text } : { type: 'thinking_delta', thinking: text };
    this.#emit('content_block_delta', { index: this.#index, delta }, emit);
  }

  /** Items are told apart by an empty line in chat, and here by separate blocks. */
  #think(text: string, emit: Emit): void {
    const begins = this.#target.reasoningItems === true && this.#open?.kind !== 'thinking';
    const words = begins ? text.replace(/^\n+/, '') : text;
    if (words !== '') this.#text('thinking', words, emit);
  }

  /** A reasoning item has ended: its signature ends the block that showed it, or one that shows nothing. */
  #sign({ content_blocks: blocks }: JsonObject, emit: Emit): void {
    for (const one of asArray(blocks)) {
      for (const item of portableItems([asObject(one).content_block])) {
        if (this.#open?.kind === 'call') continue;
        if (this.#open?.kind !== 'thinking') {
          this.#close(emit);
          this.#begin({ kind: 'thinking' }, { type: 'thinking', thinking: '', signature: '' }, emit);
        }
        this.#signature = signatureOf(item);
        this.#close(emit);
      }
    }
  }

  #begin(open: Open, block: JsonObject, emit: Emit): void {
    this.#open = open;
    this.#index++;
    this.#emit('content_block_start', { index: this.#index, content_block: block }, emit);
  }

  #close(emit: Emit): void {
    if (this.#open === null) return;
    // Signatures cannot be made here; an empty one is dropped when the block comes back.
    if (this.#open.kind === 'thinking') {
      const delta = { type: 'signature_delta', signature: this.#signature };
      this.#signature = '';
      this.#emit('content_block_delta', { index: this.#index, delta }, emit);
    }
    this.#emit('content_block_stop', { index: this.#index }, emit);
    this.#open = null;
  }

  #pieces(call: StreamedCall, emit: Emit): void {
    if (call.waiting === '') return;
    const delta = { type: 'input_json_delta', partial_json: call.waiting };
    call.waiting = '';
    this.#emit('content_block_delta', { index: this.#index, delta }, emit);
  }

  /** Writes what can be written of the calls: the open one, then each that follows a complete one. */
  #flush(all: boolean, emit: Emit): void {
    for (;;) {
      if (this.#open?.kind === 'call') {
        const current = this.#calls.all[this.#open.at];
        if (current !== undefined) {
          this.#pieces(current, emit);
          const more = this.#nextCall < this.#calls.all.length;
          if (!all && !(more && current.end.complete)) return;
        }
        this.#close(emit);
      }
      const next = this.#calls.all[this.#nextCall];
      if (next === undefined) return;
      if (next.name === '' || next.id === '') {
        // The block cannot begin before both are known; at the end it never will.
        if (!all) return;
        if (next.name === '') unnamedCall();
        next.id = `call_${this.#nextCall}`;
      }
      this.#close(emit);
      const at = this.#nextCall++;
      const extra = next.extra === null ? null : { extra_content: next.extra };
      this.#begin({ kind: 'call', at }, { type: 'tool_use', id: next.id, name: next.name, input: {}, ...extra }, emit);
    }
  }

  protected override finish(emit: Emit, done: boolean): void {
    if (!this.#started || (this.#finish === null && !done)) throw streamCut();
    this.#flush(true, emit);
    this.#close(emit);
    if (this.#held !== '') this.#text('text', this.#held, emit);
    this.#close(emit);
    for (const { waiting, text } of this.#calls.all) {
      if (waiting.trim() !== '') throw invalidAnswer('The model continued a call that was already complete.');
      // An answer that ran out of tokens may end inside a call; any other one is broken.
      if (this.#finish !== 'length') answeredInput(text);
    }
    const usage = readChatUsage(this.#usage, this.#target);
    const stop = stopReason(this.#finish ?? 'stop', this.#calls.all.length > 0, this.#refused);
    this.#emit(
      'message_delta',
      { delta: { stop_reason: stop, stop_sequence: null }, usage: messagesUsage.write(usage) },
      emit,
    );
    this.closed = true;
    this.#emit('message_stop', {}, emit);
  }
}
