import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { chatUsage } from '../shapes/chat/usage.ts';
import {
  annotationOf,
  callOf,
  failureOf,
  finishOf,
  nativeReason,
  usageOfResponse,
} from './answer-responses-to-chat.ts';
import { seconds } from './answers.ts';
import { unnamedCall } from './chat-choice.ts';
import type { ConvertContext, ConvertTarget } from './conversion.ts';
import {
  asArray,
  asObject,
  asString,
  givenNumber,
  givenObject,
  givenObjects,
  givenText,
  invalidAnswer,
  needed,
} from './fields.ts';
import { isPortable, reasoningOf } from './reasoning-items.ts';
import { ConvertingStream, type Emit, streamCut } from './stream-base.ts';

/** Statuses that say more than the name of the event that ends a stream. */
const ENDS: ReadonlySet<string> = new Set(['incomplete', 'failed', 'cancelled']);

/** An item of the response as far as it was passed on. */
interface Item {
  /** Running number among the calls; null for items that are none. */
  call: number | null;
  /** What was passed on of its text, arguments or input. */
  sent: number;
  /** Its reasoning was passed on as it came. */
  thought: boolean;
  done: boolean;
  /** Text of the parts before the one that is written, and where that one stands. */
  before: number;
  part: number;
}

const pieceIn = (data: JsonObject): string => needed(givenText(data, 'delta'), 'delta');
const wholeIn = (data: JsonObject): JsonObject => needed(givenObject(data, 'item'), 'item');

/** Responses events as chat chunks. What a server only tells when it is whole is not lost. */
export class ResponsesToChatStream extends ConvertingStream {
  readonly #target: ConvertTarget;
  readonly #strict: boolean;
  readonly #includeUsage: boolean;
  /** By `output_index`. */
  readonly #items = new Map<number, Item>();
  #last = 0;
  /** Place of an item whose event names none. */
  #next = 0;
  #id = '';
  #model: string;
  #created: number;
  #tier: string | null = null;
  #started = false;
  #calls = 0;
  /** Reasoning items shown whole. */
  #shown = 0;
  /** Text passed on, of all messages. */
  #length = 0;
  #thought = false;

  constructor(context: ConvertContext, target: ConvertTarget) {
    super('openai');
    this.#target = target;
    this.#strict = context.strict !== false;
    this.#model = context.model;
    this.#created = seconds(context);
    this.#includeUsage = context.includeUsage ?? asObject(context.body?.stream_options).include_usage === true;
  }

  #chunk(choices: JsonObject[], emit: Emit, more?: JsonObject): void {
    const chunk: JsonObject = {
      id: this.#id,
      object: 'chat.completion.chunk',
      created: this.#created,
      model: this.#model,
      ...(this.#tier === null ? null : { service_tier: this.#tier }),
      choices,
      ...more,
    };
    // Callers who asked for usage see the key on every chunk, null before the last.
    if (this.#includeUsage && chunk.usage === undefined) chunk.usage = null;
    emit({ event: null, data: JSON.stringify(chunk) });
  }

  #delta(delta: JsonObject, emit: Emit, logprobs: JsonValue[] = []): void {
    this.#start(emit);
    const told = logprobs.length === 0 ? null : { content: logprobs, refusal: null };
    this.#chunk([{ index: 0, delta, logprobs: told, finish_reason: null }], emit);
  }

  #start(emit: Emit): void {
    if (this.#started) return;
    this.#started = true;
    this.#delta({ role: 'assistant', content: '' }, emit);
  }

  #note(response: JsonObject): void {
    this.#id = asString(response.id) ?? this.#id;
    this.#model = asString(response.model) || this.#model;
    if (typeof response.created_at === 'number') this.#created = Math.floor(response.created_at);
  }

  protected override read(data: JsonObject, emit: Emit): void {
    const type = needed(givenText(data, 'type'), 'type');
    switch (type) {
      case 'response.created':
      case 'response.queued':
      case 'response.in_progress':
        this.#note(asObject(data.response));
        this.#start(emit);
        break;
      case 'response.output_item.added':
        this.#begin(data, wholeIn(data), emit);
        break;
      case 'response.output_text.delta':
        this.#say(data, pieceIn(data), emit);
        break;
      case 'response.refusal.delta':
        this.#refuse(this.#item(data), pieceIn(data), emit);
        break;
      case 'response.output_text.annotation.added':
        this.#cite(this.#item(data), data.annotation ?? null, emit);
        break;
      case 'response.reasoning_summary_part.added':
        // Parts are paragraphs: an empty line stands between them.
        this.#think(data, this.#item(data).thought ? '\n\n' : '', emit);
        break;
      case 'response.reasoning_summary_text.delta':
      case 'response.reasoning_text.delta':
        this.#think(data, asString(data.delta) ?? '', emit);
        break;
      case 'response.function_call_arguments.delta':
      case 'response.custom_tool_call_input.delta':
        this.#piece(this.#item(data), type, pieceIn(data), emit);
        break;
      case 'response.output_item.done':
        this.#end(data, wholeIn(data), emit);
        break;
      case 'response.completed':
      case 'response.incomplete':
        this.#complete(needed(givenObject(data, 'response'), 'response'), type, emit);
        break;
      case 'response.failed':
        this.fail(failureOf(asObject(asObject(data.response).error)), emit);
        break;
      case 'error':
        this.fail(failureOf(isObject(data.error) ? data.error : data), emit);
        break;
      default:
      // What tools of the provider do, and events of the future, say nothing a chat caller could use.
    }
  }

  #item(data: JsonObject): Item {
    // Every event of an item names its place; a server that names none writes one item after the other.
    const at = givenNumber(data, 'output_index') ?? this.#last;
    this.#last = at;
    this.#next = Math.max(this.#next, at + 1);
    let item = this.#items.get(at);
    if (item === undefined) {
      item = { call: null, sent: 0, thought: false, done: false, before: this.#length, part: 0 };
      this.#items.set(at, item);
    }
    return item;
  }

  #begin(data: JsonObject, whole: JsonObject, emit: Emit): void {
    const at = givenNumber(data, 'output_index') ?? this.#next;
    this.#call(this.#item({ output_index: at }), whole, emit);
  }

  /** Announces a call, and passes on what of it was not yet. */
  #call(item: Item, whole: JsonObject, emit: Emit): void {
    const call = callOf(whole);
    if (call === null) return;
    const kind = call.type === 'custom' ? 'custom' : 'function';
    const field = kind === 'custom' ? 'input' : 'arguments';
    const said = asObject(call[kind]);
    const text = asString(said[field]) ?? '';
    if (item.call === null) {
      if (said.name === '') return;
      item.call = this.#calls++;
      this.#delta({ tool_calls: [{ index: item.call, ...call, [kind]: { ...said, [field]: '' } }] }, emit);
    }
    if (text.length > item.sent) this.#arguments(item, item.call, kind, text.slice(item.sent), emit);
  }

  #arguments(item: Item, index: number, kind: 'function' | 'custom', text: string, emit: Emit): void {
    item.sent += text.length;
    const piece = kind === 'custom' ? { custom: { input: text } } : { function: { arguments: text } };
    this.#delta({ tool_calls: [{ index, ...piece }] }, emit);
  }

  #piece(item: Item, type: string, text: string, emit: Emit): void {
    if (text === '') return;
    // A call without an announcement is sent when it is whole.
    if (item.call === null) return;
    this.#arguments(item, item.call, type.includes('custom') ? 'custom' : 'function', text, emit);
  }

  #say(data: JsonObject, text: string, emit: Emit): void {
    const item = this.#item(data);
    const part = typeof data.content_index === 'number' ? data.content_index : item.part;
    if (part !== item.part) {
      item.part = part;
      item.before = this.#length;
    }
    if (text === '') return;
    item.sent += text.length;
    this.#length += text.length;
    this.#delta({ content: text }, emit, asArray(data.logprobs));
  }

  #cite(item: Item, annotation: JsonValue, emit: Emit): void {
    const note = annotationOf(annotation, item.before);
    if (note !== null) this.#delta({ annotations: [note] }, emit);
  }

  #refuse(item: Item, text: string, emit: Emit): void {
    if (text === '') return;
    item.sent += text.length;
    this.#delta({ refusal: text }, emit);
  }

  #think(data: JsonObject, text: string, emit: Emit): void {
    if (this.#strict || text === '') return;
    const item = this.#item(data);
    const apart = !item.thought && this.#thought;
    item.thought = true;
    this.#thought = true;
    this.#delta({ reasoning_content: apart ? `\n\n${text}` : text }, emit);
  }

  #end(data: JsonObject, whole: JsonObject, emit: Emit): void {
    const type = needed(givenText(whole, 'type'), 'type');
    const open = this.#items.get(this.#last)?.done === false;
    const place = { output_index: givenNumber(data, 'output_index') ?? (open ? this.#last : this.#next) };
    const item = this.#item(place);
    if (item.done) return;
    item.done = true;
    if (type === 'message') this.#rest(item, place, whole, emit);
    else if (type === 'reasoning') {
      if (!item.thought) this.#think(place, reasoningOf(whole), emit);
      if (!this.#strict && isPortable(whole)) {
        this.#delta({ content_blocks: [{ index: this.#shown++, content_block: whole }] }, emit);
      }
    } else {
      this.#call(item, whole, emit);
      if (item.call === null && callOf(whole) !== null) {
        unnamedCall();
      }
    }
  }

  /** A message of which nothing came in pieces. */
  #rest(item: Item, place: JsonObject, whole: JsonObject, emit: Emit): void {
    if (item.sent > 0) return;
    givenObjects(whole, 'content').forEach((part, i) => {
      const type = needed(givenText(part, 'type'), 'type');
      if (type === 'refusal') this.#refuse(item, needed(givenText(part, 'refusal'), 'refusal'), emit);
      if (type !== 'output_text') return;
      const text = needed(givenText(part, 'text'), 'text');
      this.#say({ ...place, content_index: i, logprobs: part.logprobs ?? [] }, text, emit);
      for (const one of asArray(part.annotations)) this.#cite(item, one, emit);
    });
  }

  #complete(response: JsonObject, type: string, emit: Emit): void {
    this.#note(response);
    // A server that tells nothing before the end tells all of it there.
    if (this.#items.size === 0) {
      givenObjects(response, 'output').forEach((whole, i) => {
        this.#end({ output_index: i }, whole, emit);
      });
    }
    const known = typeof response.status === 'string' && ENDS.has(response.status);
    const ended = known ? response : { ...response, status: type.slice('response.'.length) };
    const finish = finishOf(ended, this.#calls > 0);
    if (finish === null) throw invalidAnswer('The provider ended the stream before the response was complete.');
    this.#start(emit);
    this.#tier = asString(response.service_tier);
    const choice: JsonObject = { index: 0, delta: {}, logprobs: null, finish_reason: finish };
    if (!this.#strict) choice.native_finish_reason = nativeReason(ended);
    this.#chunk([choice], emit);
    if (this.#includeUsage) {
      this.#chunk([], emit, { usage: chatUsage.write(usageOfResponse(response.usage, this.#target)) });
    }
    this.closed = true;
    emit({ event: null, data: '[DONE]' });
  }

  protected override finish(): void {
    throw streamCut();
  }
}
