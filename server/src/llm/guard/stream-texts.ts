/** What the events of a stream say, by the paths of the whole answer, and how changed texts are put back into them. */
import type { TextPart } from '../../guardrails/check.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import { parseEvent } from '../../kernel/sse.ts';
import type { Operation } from '../../operations/operation.ts';
import { type Assembler, OutOfPlace, type Region } from '../../operations/shapes/assembler.ts';
import { formatEvent } from '../../operations/stream.ts';
import { unescapedJson } from './texts/encoded.ts';
import { replaced } from './texts/replace.ts';
import { type Frame, type Place, rootFrame, walk } from './texts/walk.ts';
import { answerCallsTools, answerTexts, ReplacementError, type SaidPart, type Unreadable } from './texts.ts';

/** A piece of text of one event. */
export interface StreamPiece extends TextPart {
  /** In the whole answer: `choices[0].message.content`, `content[1].input`, `output[0].content[0].text`. */
  readonly path: string;
  /** What this event adds to the text at `path`; empty where it only repeats what was said. */
  readonly text: string;
  /** Where the event gives the text at `path` complete (`response.output_text.done`): all of it. Null for a delta. */
  readonly whole: string | null;
  readonly unreadable?: Unreadable;
}

/**
 * Reads the events of one answer. Arguments of tools, and other JSON, are given as they come; from the first escape in them on
 * they are given a second time, from their beginning, at `…#decoded` with all escapes undone, because what is hidden behind
 * one must be found before it is shown.
 */
export class StreamTexts {
  readonly #operation: Operation;
  readonly #assembler: Assembler;
  /** What was said at each path. */
  readonly #said = new Map<string, string>();
  readonly #decoders = new Map<string, Decoder>();

  constructor(operation: Operation) {
    this.#operation = operation;
    this.#assembler = operation.wire.assembler();
  }

  /** Pieces of the event's text, in order. One that cannot be understood is a piece that cannot be read. */
  push(event: Buffer): readonly StreamPiece[] {
    const body = readEvent(event);
    if (body === null) return [];
    const pieces: StreamPiece[] = [];
    try {
      if (body === undefined) throw new OutOfPlace();
      for (const region of this.#assembler.take(body)) {
        const parts: SaidPart[] = [];
        walk(frameOf(region.value, region.path), {
          side: 'answer',
          deep: !region.delta,
          from: null,
          parts,
          places: null,
        });
        for (const part of parts) this.#piece(region, part, pieces);
      }
    } catch (error) {
      if (!(error instanceof OutOfPlace)) throw error;
      pieces.push({ path: 'event', role: 'assistant', text: '', whole: null, unreadable: 'bounds' });
    }
    return pieces;
  }

  #piece(region: Region, part: SaidPart, pieces: StreamPiece[]): void {
    const { path, text } = part;
    if (part.unreadable !== undefined) {
      pieces.push({ ...part, whole: null });
      return;
    }
    const before = this.#said.get(path) ?? '';
    if (region.delta) {
      const repeats = path.endsWith('.name') && before === text;
      if (!repeats) this.#said.set(path, before + text);
      pieces.push({ ...part, text: repeats ? '' : text, whole: repeats ? text : null });
      if (!repeats) this.#decoded(part, before, text, null, pieces);
      return;
    }
    if (before !== text) this.#said.set(path, text);
    const added = text.startsWith(before) ? text.slice(before.length) : text;
    pieces.push({ ...part, text: added, whole: text });
    this.#decoded(part, before, added, text, pieces);
  }

  #decoded(part: SaidPart, before: string, added: string, whole: string | null, pieces: StreamPiece[]): void {
    const { path } = part;
    let decoder = this.#decoders.get(path);
    if (decoder === undefined) {
      if (!added.includes('\\')) return;
      // As in whole answers: arguments, and what begins as JSON does.
      if (!path.endsWith('.arguments') && !path.endsWith('.input') && !/^\s*["[{]/.test(before + added)) return;
      decoder = new Decoder(before);
      this.#decoders.set(path, decoder);
    }
    const text = decoder.push(added);
    if (text !== '' || whole !== null)
      pieces.push({ ...part, path: `${path}#decoded`, text, whole: whole && decoder.said });
  }

  /** The whole answer so far, as an answer in one piece would be. */
  answer(): unknown {
    return this.#assembler.answer();
  }

  /** `answerTexts` of it. */
  assembled(): readonly SaidPart[] {
    return answerTexts(this.#operation, this.answer());
  }

  get callsTools(): boolean {
    return answerCallsTools(this.#operation, this.#assembler.sketch);
  }
}

/** Undoes the escapes of JSON in a text that comes in pieces. */
class Decoder {
  #pending = '';
  #first: string;
  said = '';

  /** `before` has no escapes; it is given again with the first piece. */
  constructor(before: string) {
    this.#first = before;
  }

  push(piece: string): string {
    const { text, cut } = unescapedJson(this.#pending + piece);
    this.#pending = cut;
    const out = this.#first + text;
    this.#first = '';
    this.said += out;
    return out;
  }
}

/** Null: nothing is said (a comment, the end marker). Undefined: the text is unknown. */
function readEvent(bytes: Buffer): JsonObject | null | undefined {
  const event = parseEvent(bytes);
  if (event === null || event.data === '' || event.data.trim() === '[DONE]') return null;
  try {
    const body = parseExact(event.data);
    return isObject(body) ? body : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The events of a whole held-back stream with the texts of `changed` (the answer after replacements) in place of those they
 * held: the first event of each path gets all of its text, later ones none, and events that repeat it repeat the new one.
 * As many events as were given; those without a changed text are the same. Throws `ReplacementError` where the changed answer
 * is not one that these events can tell.
 */
export function rewriteStream(operation: Operation, events: readonly Buffer[], changed: unknown): Buffer[] {
  const before = new StreamTexts(operation);
  for (const event of events) before.push(event);
  const old = valuesOf(before.answer());
  const next = valuesOf(changed);
  const wanted = new Map<string, string>();
  for (const [path, text] of old) {
    const now = next.get(path) ?? '';
    if (now !== text) wanted.set(path, now);
  }
  const out = wanted.size === 0 ? [...events] : rewritten(operation, events, wanted);
  const check = new StreamTexts(operation);
  for (const event of out) check.push(event);
  if (!same(valuesOf(check.answer()), next)) {
    throw new ReplacementError('The changed answer does not fit the events of its stream.');
  }
  return out;
}

function rewritten(operation: Operation, events: readonly Buffer[], wanted: ReadonlyMap<string, string>): Buffer[] {
  const assembler = operation.wire.assembler();
  const told = new Set<string>();
  return events.map((bytes) => {
    const body = readEvent(bytes);
    if (body === null || body === undefined) return bytes;
    let touched = withoutTokens(body);
    for (const { value, path, delta, put } of assembler.take(body)) {
      const root = frameOf(value, path);
      const { parts, places } = shallow(root);
      const changes: { place: Place; text: string }[] = [];
      for (const [i, part] of parts.entries()) {
        const text = wanted.get(part.path);
        const place = places[i];
        if (text === undefined || place === undefined) continue;
        changes.push({ place, text: delta && told.has(part.path) ? '' : text });
        told.add(part.path);
      }
      if (changes.length === 0) continue;
      put(replaced(root, changes) as JsonObject);
      touched = true;
    }
    if (!touched) return bytes;
    return Buffer.from(formatEvent({ event: parseEvent(bytes)?.event ?? null, data: JSON.stringify(body) }));
  });
}

/** Tokens one by one would tell what was changed. */
function withoutTokens(body: JsonObject): boolean {
  let touched = false;
  if (Array.isArray(body.logprobs) && body.logprobs.length > 0) {
    body.logprobs = [];
    touched = true;
  }
  for (const choice of Array.isArray(body.choices) ? body.choices : []) {
    if (!isObject(choice) || !isObject(choice.logprobs)) continue;
    choice.logprobs = null;
    touched = true;
  }
  return touched;
}

const frameOf = (value: unknown, path: string): Frame => rootFrame(value, path, 'assistant', 'wire');

function shallow(root: Frame): { readonly parts: SaidPart[]; readonly places: Place[] } {
  const parts: SaidPart[] = [];
  const places: Place[] = [];
  walk(root, { side: 'answer', deep: false, from: null, parts, places });
  return { parts, places };
}

/** Texts as events hold them, by path: the input of a tool is one text there. */
function valuesOf(answer: unknown): Map<string, string> {
  const out = new Map<string, string>();
  const inputs: string[] = [];
  if (isObject(answer) && Array.isArray(answer.content)) {
    for (const [i, block] of answer.content.entries()) {
      if (!isObject(block) || !isObject(block.input)) continue;
      inputs.push(`content[${i}].input`);
      out.set(`content[${i}].input`, JSON.stringify(block.input));
    }
  }
  for (const { path, text } of shallow(frameOf(answer, '')).parts) {
    if (!inputs.some((input) => path.startsWith(input))) out.set(path, text);
  }
  return out;
}

function same(a: ReadonlyMap<string, string>, b: ReadonlyMap<string, string>): boolean {
  if (a.size !== b.size) return false;
  for (const [path, text] of a) if (b.get(path) !== text) return false;
  return true;
}
