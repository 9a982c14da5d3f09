import type { JsonObject } from '../../kernel/json.ts';
import { embeddedError } from '../dialects/provider-error.ts';
import { mergeUsage } from '../usage.ts';
import {
  callItem,
  messageItem,
  type Outcome,
  outcomeOf,
  paintedItem,
  reasoningItem,
  responseObject,
  textPart,
  wantsSummary,
} from './answer-chat-to-responses.ts';
import { chatUsageObject, readChatUsage, reasoningText } from './answers.ts';
import { StreamedCalls } from './chat-calls.ts';
import {
  callPieces,
  contentText,
  firstDeltas,
  flatAnnotations,
  paintedData,
  tokensIn,
  unnamedCall,
} from './chat-choice.ts';
import type { ConvertContext, ConvertTarget } from './conversion.ts';
import { asString, givenObjects, givenText, invalidAnswer } from './fields.ts';
import { Kept } from './kept.ts';
import { ConvertingStream, type Emit, streamCut } from './stream-base.ts';

interface Item {
  readonly at: number;
  readonly id: string;
}
interface MessageItem extends Item {
  /** Finished and open parts; only the last is open. */
  readonly parts: JsonObject[];
  kind: 'text' | 'refusal';
  text: string;
  /** Sources and tokens of the open part. */
  notes: JsonObject[];
  tokens: JsonObject[];
}
/** Where the open part of a message lies. */
const placeOf = ({ id, at, parts }: MessageItem): JsonObject => ({
  item_id: `msg_${id}`,
  output_index: at,
  content_index: parts.length,
});

interface ReasoningItem extends Item {
  text: string;
}
interface CallItem extends Item {
  readonly call: number;
  done: boolean;
}

/** Chat chunks as Responses events. Calls may interleave: every event names its item. */
export class ChatToResponsesStream extends ConvertingStream {
  readonly #context: ConvertContext;
  readonly #target: ConvertTarget;
  readonly #summary: boolean;
  readonly #calls = new StreamedCalls();
  /** Items by `output_index`, null until done. */
  readonly #output: (JsonObject | null)[] = [];
  readonly #open: CallItem[] = [];
  readonly #kept = new Kept();
  #message: MessageItem | null = null;
  #reasoning: ReasoningItem | null = null;
  #sequence = 0;
  #id = '';
  #model: string;
  #started = false;
  #finish: string | null = null;
  #usage: JsonObject | null = null;

  constructor(context: ConvertContext, target: ConvertTarget) {
    super('responses');
    this.#context = context;
    this.#target = target;
    this.#summary = wantsSummary(context);
    this.#model = context.model;
  }

  protected override nextSequence(): number {
    return this.#sequence++;
  }

  #emit(type: string, fields: JsonObject, emit: Emit): void {
    emit({ event: type, data: JSON.stringify({ type, sequence_number: this.#sequence++, ...fields }) });
  }

  #response(outcome: Outcome): JsonObject {
    const usage = outcome.status === 'in_progress' ? null : readChatUsage(this.#usage, this.#target);
    const output = this.#output.filter((item) => item !== null);
    return responseObject({ id: this.#id, model: this.#model, outcome, output, usage }, this.#context);
  }

  protected override read(chunk: JsonObject, emit: Emit): void {
    const error = embeddedError(chunk);
    if (error !== null) {
      this.fail(error, emit);
      return;
    }
    if (!this.#started) {
      this.#started = true;
      this.#id = asString(chunk.id) ?? '';
      this.#model = asString(chunk.model) || this.#model;
      const response = this.#response({ status: 'in_progress', reason: null });
      this.#emit('response.created', { response }, emit);
      this.#emit('response.in_progress', { response }, emit);
    }
    const usage = chatUsageObject(chunk, this.#target);
    if (usage !== null) this.#usage = mergeUsage(this.#usage, usage);
    for (const { choice, delta } of firstDeltas(chunk)) {
      this.#delta(delta, tokensIn(choice), emit);
      this.#finish = givenText(choice, 'finish_reason') ?? this.#finish;
    }
  }

  #delta(delta: JsonObject, tokens: JsonObject[], emit: Emit): void {
    if (this.#summary) {
      const reasoning = reasoningText(delta, this.#target);
      if (reasoning !== '') this.#think(reasoning, emit);
      this.#kept.add(reasoning.length);
    }
    const text = contentText(delta);
    this.#kept.add(text.length, tokens.length === 0 ? 0 : JSON.stringify(tokens).length);
    if (text !== '') this.#say('text', text, emit, tokens);
    else if (this.#message?.kind === 'text') this.#message.tokens.push(...tokens);
    for (const note of flatAnnotations(delta)) {
      this.#kept.add(JSON.stringify(note).length);
      this.#note(note, emit);
    }
    const refusal = givenText(delta, 'refusal') ?? '';
    this.#kept.add(refusal.length);
    if (refusal !== '') this.#say('refusal', refusal, emit);
    for (const image of givenObjects(delta, 'images')) {
      const data = paintedData(image);
      this.#kept.add(data.length);
      this.#paint(data, emit);
    }
    for (const piece of callPieces(delta)) this.#call(this.#calls.take(piece), emit);
  }

  #add(item: JsonObject, emit: Emit): number {
    const at = this.#output.push(null) - 1;
    this.#emit('response.output_item.added', { output_index: at, item }, emit);
    return at;
  }

  #done(at: number, item: JsonObject, emit: Emit): void {
    this.#output[at] = item;
    this.#emit('response.output_item.done', { output_index: at, item }, emit);
  }

  /** Ids are unique among the items of one response. */
  #itemId(): string {
    return `${this.#id}_${this.#output.length}`;
  }

  #think(text: string, emit: Emit): void {
    this.#endMessage(emit);
    if (this.#reasoning === null) {
      const id = this.#itemId();
      const at = this.#add(reasoningItem(id, ''), emit);
      this.#reasoning = { at, id, text: '' };
      const part = { type: 'summary_text', text: '' };
      this.#emit(
        'response.reasoning_summary_part.added',
        { item_id: `rs_${id}`, output_index: at, summary_index: 0, part },
        emit,
      );
    }
    const { at, id } = this.#reasoning;
    this.#reasoning.text += text;
    this.#emit(
      'response.reasoning_summary_text.delta',
      { item_id: `rs_${id}`, output_index: at, summary_index: 0, delta: text },
      emit,
    );
  }

  #endReasoning(emit: Emit): void {
    if (this.#reasoning === null) return;
    const { at, id, text } = this.#reasoning;
    this.#reasoning = null;
    const place = { item_id: `rs_${id}`, output_index: at, summary_index: 0 };
    this.#emit('response.reasoning_summary_text.done', { ...place, text }, emit);
    this.#emit('response.reasoning_summary_part.done', { ...place, part: { type: 'summary_text', text } }, emit);
    this.#done(at, reasoningItem(id, text), emit);
  }

  #say(kind: 'text' | 'refusal', text: string, emit: Emit, tokens: JsonObject[] = []): void {
    this.#endReasoning(emit);
    if (this.#message === null) {
      const id = this.#itemId();
      const at = this.#add(messageItem(id, [], 'in_progress'), emit);
      this.#message = { at, id, parts: [], kind, text: '', notes: [], tokens: [] };
      this.#beginPart(this.#message, emit);
    } else if (this.#message.kind !== kind) {
      this.#endPart(this.#message, emit);
      Object.assign(this.#message, { kind, text: '', notes: [], tokens: [] });
      this.#beginPart(this.#message, emit);
    }
    const message = this.#message;
    message.text += text;
    message.tokens.push(...tokens);
    const place = placeOf(message);
    if (kind === 'text') this.#emit('response.output_text.delta', { ...place, delta: text, logprobs: tokens }, emit);
    else this.#emit('response.refusal.delta', { ...place, delta: text }, emit);
  }

  /** A source of the text so far. */
  #note(annotation: JsonObject, emit: Emit): void {
    const message = this.#message;
    if (message?.kind !== 'text') return;
    const place = { ...placeOf(message), annotation_index: message.notes.push(annotation) - 1 };
    this.#emit('response.output_text.annotation.added', { ...place, annotation }, emit);
  }

  #paint(data: string, emit: Emit): void {
    this.#endReasoning(emit);
    this.#endMessage(emit);
    const id = this.#itemId();
    const at = this.#add(paintedItem(id, 'in_progress', null), emit);
    this.#emit('response.image_generation_call.completed', { item_id: `ig_${id}`, output_index: at }, emit);
    this.#done(at, paintedItem(id, 'completed', data), emit);
  }

  #part({ kind, notes, tokens }: MessageItem, text: string): JsonObject {
    return kind === 'text' ? textPart(text, notes, tokens) : { type: 'refusal', refusal: text };
  }

  #beginPart(message: MessageItem, emit: Emit): void {
    const place = placeOf(message);
    this.#emit('response.content_part.added', { ...place, part: this.#part(message, '') }, emit);
  }

  #endPart(message: MessageItem, emit: Emit): void {
    const { text, tokens } = message;
    const part = this.#part(message, text);
    const place = placeOf(message);
    if (message.kind === 'text') this.#emit('response.output_text.done', { ...place, text, logprobs: tokens }, emit);
    else this.#emit('response.refusal.done', { ...place, refusal: text }, emit);
    this.#emit('response.content_part.done', { ...place, part }, emit);
    message.parts.push(part);
  }

  #endMessage(emit: Emit): void {
    if (this.#message === null) return;
    const message = this.#message;
    this.#endPart(message, emit);
    this.#message = null;
    this.#done(message.at, messageItem(message.id, message.parts, 'completed'), emit);
  }

  #call(position: number, emit: Emit): void {
    const call = this.#calls.all[position];
    if (call === undefined) return;
    let item = this.#open.find((one) => one.call === position);
    if (item === undefined) {
      // Name and id must be known before the item can be announced; both may come in a later piece.
      if (call.name === '' || call.id === '') return;
      this.#endReasoning(emit);
      this.#endMessage(emit);
      for (const other of this.#open) if (this.#calls.all[other.call]?.end.complete) this.#endCall(other, emit);
      const id = this.#itemId();
      item = {
        at: this.#add(callItem(id, call.id, call.name, '', 'in_progress', call.extra), emit),
        id,
        call: position,
        done: false,
      };
      this.#open.push(item);
    }
    if (call.waiting === '' || item.done) return;
    const delta = call.waiting;
    call.waiting = '';
    this.#emit(
      'response.function_call_arguments.delta',
      { item_id: `fc_${item.id}`, output_index: item.at, delta },
      emit,
    );
  }

  #endCall(item: CallItem, emit: Emit): void {
    const call = this.#calls.all[item.call];
    if (item.done || call === undefined) return;
    item.done = true;
    const text = call.text === '' ? '{}' : call.text;
    this.#emit(
      'response.function_call_arguments.done',
      { item_id: `fc_${item.id}`, output_index: item.at, name: call.name, arguments: text },
      emit,
    );
    this.#done(item.at, callItem(item.id, call.id, call.name, text, 'completed', call.extra), emit);
  }

  protected override finish(emit: Emit, done: boolean): void {
    if (!this.#started || (this.#finish === null && !done)) throw streamCut();
    this.#endReasoning(emit);
    this.#endMessage(emit);
    this.#calls.all.forEach((call, i) => {
      if (call.name === '') unnamedCall();
      if (call.id === '') call.id = `call_${i}`;
      this.#call(i, emit);
    });
    for (const item of this.#open) this.#endCall(item, emit);
    if (this.#calls.all.some((call) => call.waiting.trim() !== '')) {
      throw invalidAnswer('The model continued a call that was already complete.');
    }
    const outcome = outcomeOf(this.#finish);
    this.closed = true;
    this.#emit(`response.${outcome.status}`, { response: this.#response(outcome) }, emit);
  }
}
