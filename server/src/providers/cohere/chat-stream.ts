/** Events of a stream of `/v2/chat` as chat chunks. Each says in `type` what it is. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import type { ConvertContext } from '../../operations/convert/conversion.ts';
import {
  asObject,
  asString,
  givenNumber,
  givenObject,
  givenText,
  invalidAnswer,
  needed,
} from '../../operations/convert/fields.ts';
import { ConvertingStream, type Emit, streamCut } from '../../operations/convert/stream-base.ts';
import { readProviderError } from '../../operations/dialects/provider-error.ts';
import { callOf, finishOf, logprobsOf, saidIn } from './chat-answer.ts';
import { chatUsageOf } from './usage.ts';

interface OpenCall {
  /** Running number of the call. */
  readonly at: number;
  pieces: boolean;
}

const indexOf = (event: JsonObject): number => needed(givenNumber(event, 'index'), 'index');

/** What an event adds to the message: nothing else of it is content. */
const addedBy = (event: JsonObject): JsonObject =>
  needed(givenObject(needed(givenObject(event, 'delta'), 'delta'), 'message'), 'message');

export class CohereToChatStream extends ConvertingStream {
  readonly #context: ConvertContext;
  readonly #strict: boolean;
  readonly #includeUsage: boolean;
  readonly #created: number;
  readonly #calls = new Map<number, OpenCall>();
  #callCount = 0;
  #id: string | null = null;

  constructor(context: ConvertContext) {
    super('openai');
    this.#context = context;
    this.#strict = context.strict !== false;
    this.#created = Math.floor(context.now() / 1000);
    this.#includeUsage = context.includeUsage ?? asObject(context.body?.stream_options).include_usage === true;
  }

  #chunk(choices: JsonObject[], emit: Emit, more?: JsonObject): void {
    const chunk: JsonObject = {
      id: this.#id ?? '',
      object: 'chat.completion.chunk',
      created: this.#created,
      model: this.#context.model,
      choices,
      ...more,
    };
    // Callers who asked for usage see the key on every chunk, null before the last.
    if (this.#includeUsage && chunk.usage === undefined) chunk.usage = null;
    emit({ event: null, data: JSON.stringify(chunk) });
  }

  #delta(delta: JsonObject, emit: Emit, logprobs: JsonObject | null = null): void {
    this.#chunk([{ index: 0, delta, logprobs, finish_reason: null }], emit);
  }

  protected override read(data: JsonObject, emit: Emit): void {
    // An error has no type: it is the body that a call would be answered with.
    if (data.type === undefined && (typeof data.message === 'string' || isObject(data.error))) {
      this.fail(readProviderError(502, data), emit);
      return;
    }
    const type = needed(givenText(data, 'type'), 'type');
    if (this.#id === null) {
      this.#id = asString(data.id) ?? `cohere_${this.#context.now()}`;
      this.#delta({ role: 'assistant', content: '' }, emit);
    }
    const part = (name: string): JsonObject => needed(givenObject(addedBy(data), name), name);
    switch (type) {
      case 'content-start':
        this.#say(givenObject(addedBy(data), 'content') ?? {}, null, emit);
        return;
      case 'content-delta':
        saidIn(part('content'));
        this.#say(part('content'), data.logprobs ?? null, emit);
        return;
      case 'tool-plan-delta':
        this.#beside('tool_plan', addedBy(data).tool_plan, emit);
        return;
      case 'tool-call-start':
        this.#open(indexOf(data), part('tool_calls'), emit);
        return;
      case 'tool-call-delta':
        this.#input(indexOf(data), part('tool_calls'), emit);
        return;
      case 'tool-call-end':
        this.#close(indexOf(data), emit);
        return;
      case 'citation-start': {
        const { citations } = addedBy(data);
        if (!this.#strict && isObject(citations)) this.#delta({ citations: [citations] }, emit);
        return;
      }
      case 'message-end':
        this.#end(needed(givenObject(data, 'delta'), 'delta'), emit);
    }
  }

  #say(content: JsonObject, logprobs: JsonValue, emit: Emit): void {
    this.#beside('reasoning_content', givenText(content, 'thinking') ?? undefined, emit);
    const text = givenText(content, 'text') ?? '';
    if (text !== '') this.#delta({ content: text }, emit, logprobs === null ? null : logprobsOf([logprobs]));
  }

  /** What only callers outside strict shape are shown. */
  #beside(name: string, text: JsonValue | undefined, emit: Emit): void {
    if (!this.#strict && typeof text === 'string' && text !== '') this.#delta({ [name]: text }, emit);
  }

  #open(index: number, call: JsonObject, emit: Emit): void {
    const at = this.#callCount++;
    const made = callOf(call, true);
    this.#calls.set(index, { at, pieces: asObject(made.function).arguments !== '' });
    this.#delta({ tool_calls: [{ index: at, ...made }] }, emit);
  }

  #input(index: number, call: JsonObject, emit: Emit): void {
    const open = this.#calls.get(index);
    if (open === undefined) throw invalidAnswer('The provider sent a piece of a call that never began.');
    const text = needed(givenText(needed(givenObject(call, 'function'), 'function'), 'arguments'), 'arguments');
    if (text === '') return;
    open.pieces = true;
    this.#delta({ tool_calls: [{ index: open.at, function: { arguments: text } }] }, emit);
  }

  #close(index: number, emit: Emit): void {
    const open = this.#calls.get(index);
    this.#calls.delete(index);
    // A call without arguments.
    if (open !== undefined && !open.pieces) {
      this.#delta({ tool_calls: [{ index: open.at, function: { arguments: '{}' } }] }, emit);
    }
  }

  #end(delta: JsonObject, emit: Emit): void {
    // A call whose end was left out still needs its arguments.
    for (const index of [...this.#calls.keys()]) this.#close(index, emit);
    const { usage, error } = delta;
    const reason = needed(givenText(delta, 'finish_reason'), 'finish_reason');
    const choice: JsonObject = {
      index: 0,
      delta: {},
      logprobs: null,
      finish_reason: finishOf(reason, this.#callCount, error),
      ...(this.#strict ? null : { native_finish_reason: reason }),
    };
    this.#chunk([choice], emit);
    if (this.#includeUsage) this.#chunk([], emit, { usage: chatUsageOf(usage, this.#strict) });
    this.closed = true;
    emit({ event: null, data: '[DONE]' });
  }

  /** Only `message-end` ends an answer. */
  protected override finish(): void {
    throw streamCut();
  }
}
