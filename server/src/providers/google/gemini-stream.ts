import { isObject, type JsonObject } from '../../kernel/json.ts';
import type { ConvertContext } from '../../operations/convert/conversion.ts';
import { asObject, asString, givenNumber, givenObject, givenText } from '../../operations/convert/fields.ts';
import { Kept } from '../../operations/convert/kept.ts';
import { ConvertingStream, type Emit, streamCut } from '../../operations/convert/stream-base.ts';
import { mergeUsage } from '../../operations/usage.ts';
import { textOf } from '../training-calls.ts';
import {
  annotationsOf,
  besideOf,
  callOf,
  candidatesOf,
  finishOf,
  imageOf,
  isThought,
  logprobsOf,
  malformedCall,
  partsIn,
  usageOfAnswer,
} from './gemini-answer.ts';
import { embeddedGoogleError } from './gemini-error.ts';

interface Open {
  calls: number;
  /** Anything of it was shown. */
  shown: boolean;
  finish: string | null;
  beside: JsonObject;
  /** All of it, in which its sources have their places. */
  text: string;
  sources: JsonObject | null;
}

/**
 * Events of `streamGenerateContent` as chat chunks. Each event holds new parts only, and usage totals;
 * nothing marks the end but the finish reason of every candidate, which is sent last, because parts may follow it.
 */
export class GeminiToChatStream extends ConvertingStream {
  readonly #context: ConvertContext;
  readonly #strict: boolean;
  readonly #includeUsage: boolean;
  readonly #created: number;
  readonly #open = new Map<number, Open>();
  readonly #kept = new Kept();
  #id: string | null = null;
  #model: string;
  #usage: JsonObject | null = null;
  #feedback: JsonObject | null = null;

  constructor(context: ConvertContext) {
    super('openai');
    this.#context = context;
    this.#strict = context.strict !== false;
    this.#created = Math.floor(context.now() / 1000);
    this.#model = context.model;
    this.#includeUsage = context.includeUsage ?? asObject(context.body?.stream_options).include_usage === true;
  }

  #chunk(choices: JsonObject[], emit: Emit, more?: JsonObject): void {
    const chunk: JsonObject = {
      id: this.#id ?? '',
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

  #delta(index: number, delta: JsonObject, emit: Emit, logprobs: JsonObject | null = null): void {
    this.#chunk([{ index, delta, logprobs, finish_reason: null }], emit);
  }

  protected override read(data: JsonObject, emit: Emit): void {
    const error = embeddedGoogleError(data);
    if (error !== null) {
      this.fail(error, emit);
      return;
    }
    this.#id ??= textOf(data.responseId) ?? `gemini_${this.#context.now()}`;
    this.#model = textOf(data.modelVersion) ?? this.#model;
    if (isObject(data.usageMetadata)) this.#usage = mergeUsage(this.#usage, data.usageMetadata);
    if (isObject(data.promptFeedback)) this.#feedback = data.promptFeedback;
    candidatesOf(data).forEach((candidate, at) => {
      this.#candidate(candidate, givenNumber(candidate, 'index') ?? at, emit);
    });
  }

  #candidate(candidate: JsonObject, index: number, emit: Emit): void {
    let open = this.#open.get(index);
    if (open === undefined) {
      open = { calls: 0, shown: false, finish: null, beside: {}, text: '', sources: null };
      this.#open.set(index, open);
      this.#delta(index, { role: 'assistant', content: '' }, emit);
    }
    let logprobs = logprobsOf(candidate);
    for (const part of partsIn(candidate)) {
      const delta = this.#part(part, index, open);
      if (delta === null) continue;
      open.shown = true;
      this.#delta(index, delta, emit, logprobs);
      logprobs = null;
    }
    // They may come after all that they are about.
    if (logprobs !== null) this.#delta(index, {}, emit, logprobs);
    open.finish = givenText(candidate, 'finishReason') ?? open.finish;
    if (isObject(candidate.groundingMetadata)) open.sources = candidate.groundingMetadata;
    if (!this.#strict) Object.assign(open.beside, besideOf(candidate));
  }

  #part(part: JsonObject, index: number, open: Open): JsonObject | null {
    const image = imageOf(part);
    if (givenObject(part, 'functionCall') !== null) {
      const at = open.calls++;
      return { tool_calls: [{ index: at, ...callOf(part, this.#id ?? '', `${index}_${at}`) }] };
    }
    if (image !== null) return { images: [image] };
    const text = givenText(part, 'text') ?? '';
    if (isThought(part)) return this.#strict || text === '' ? null : { reasoning_content: text };
    const signature = this.#strict ? null : asString(part.thoughtSignature);
    if (text === '' && signature === null) return null;
    this.#kept.add(text.length);
    open.text += text;
    return {
      content: text,
      ...(signature === null ? null : { extra_content: { google: { thought_signature: signature } } }),
    };
  }

  protected override finish(emit: Emit): void {
    const all = [...this.#open];
    if (all.length === 0 || all.some(([, { finish }]) => finish === null)) throw streamCut();
    for (const [, { finish, shown }] of all) if (finish === 'MALFORMED_FUNCTION_CALL' && !shown) throw malformedCall();
    for (const [index, { finish, calls, beside, text, sources }] of all) {
      const annotations = sources === null ? [] : annotationsOf(sources, text);
      if (annotations.length > 0) this.#delta(index, { annotations }, emit);
      const more = this.#strict ? null : { native_finish_reason: finish, ...beside };
      const choice = { index, delta: {}, logprobs: null, finish_reason: finishOf(finish, calls > 0), ...more };
      this.#chunk([choice], emit, this.#strict || this.#feedback === null ? {} : { promptFeedback: this.#feedback });
    }
    if (this.#includeUsage) this.#chunk([], emit, { usage: usageOfAnswer(this.#usage ?? {}) });
    this.closed = true;
    emit({ event: null, data: '[DONE]' });
  }
}
