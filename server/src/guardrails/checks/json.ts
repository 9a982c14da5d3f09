import { z } from 'zod';
import { isObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { CheckError, type Judgement } from '../check.ts';
import { compileSchema, SchemaProblem, TooMuchWork } from '../json-schema.ts';
import { ANY_TARGET, AT_ONCE, check, not, OUTPUT, operator, paced, texts, verdict } from './support.ts';

/** Text that is parsed as JSON at all; more would hold the event loop up. */
const MAX_JSON = 2_000_000;
const MAX_FOUND = 20;
/** Pieces that are tried: each that is no JSON costs an exception. */
const MAX_TRIED = 200;

/**
 * The JSON values a text holds: the whole text, else its fenced blocks, else the objects and lists inside it. In
 * order, at most 20. A `yield` says how much work was done.
 */
function* jsonIn(text: string): Generator<number, unknown[]> {
  const trimmed = text.trim();
  if (trimmed.length > MAX_JSON)
    throw new CheckError(`The text is longer than ${MAX_JSON} characters; JSON is not looked for.`);
  const whole = parsed(trimmed);
  yield trimmed.length / 4;
  if (whole !== undefined) return [whole];
  const out: unknown[] = [];
  let tried = 0;
  for (const { body } of yield* fences(trimmed)) {
    const value = parsed(body.trim());
    yield 32 + body.length / 4;
    if (value !== undefined) out.push(value);
    tried += 1;
    if (tried === MAX_TRIED || out.length === MAX_FOUND) break;
  }
  return out.length > 0 ? out : yield* embedded(trimmed);
}

function parsed(text: string): unknown {
  if (!/^\s*[{["\d\-tfn]/.test(text)) return undefined;
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

export interface Fence {
  /** First word of the info string, lower case; empty when there is none. */
  readonly language: string;
  readonly body: string;
  readonly start: number;
  readonly end: number;
}

const FENCE = /^[ \t>]{0,8}(`{3,8}|~{3,8})[ \t]*([^\s`{]{0,40})/;
const BREAK = 10;

/** Fenced code blocks of Markdown, closed or running to the end. A `yield` says how much work was done. */
export function* fences(text: string): Generator<number, Fence[]> {
  const out: Fence[] = [];
  let open: { readonly mark: string; readonly language: string; readonly from: number; readonly body: number } | null =
    null;
  let lines = 0;
  for (let at = 0; at < text.length; ) {
    lines += 1;
    if (lines % 1_000 === 0) yield 4_000;
    // A line break that follows another has no fence before it.
    if (text.charCodeAt(at) === BREAK) {
      at += 1;
      continue;
    }
    const newline = text.indexOf('\n', at);
    const end = newline < 0 ? text.length : newline;
    const fence = FENCE.exec(text.slice(at, Math.min(end, at + 200)));
    const [, mark = '', info = ''] = fence ?? [];
    if (open === null && fence) {
      open = { mark, language: info.toLowerCase(), from: at, body: Math.min(end + 1, text.length) };
    } else if (open !== null && fence && info === '' && mark.startsWith(open.mark)) {
      out.push({ language: open.language, body: text.slice(open.body, at), start: open.from, end });
      open = null;
    }
    at = end + 1;
  }
  if (open !== null)
    out.push({ language: open.language, body: text.slice(open.body), start: open.from, end: text.length });
  yield text.length / 16;
  return out;
}

/** Balanced objects and lists inside prose, found in one pass; each character is parsed once. */
function* embedded(text: string): Generator<number, unknown[]> {
  const out: unknown[] = [];
  let depth = 0;
  let start = 0;
  let quoted = false;
  let tried = 0;
  for (let i = 0; i < text.length && out.length < MAX_FOUND && tried < MAX_TRIED; i++) {
    if (i % 65_536 === 65_535) yield 16_384;
    const c = text.charCodeAt(i);
    if (quoted) {
      if (c === 0x5c) i += 1;
      else if (c === 0x22) quoted = false;
    } else if (c === 0x22) quoted = depth > 0;
    else if (c === 0x7b || c === 0x5b) {
      if (depth === 0) start = i;
      depth += 1;
    } else if ((c === 0x7d || c === 0x5d) && depth > 0) {
      depth -= 1;
      if (depth === 0) {
        tried += 1;
        const value = parsed(text.slice(start, i + 1));
        if (value !== undefined) out.push(value);
        yield 32 + (i - start) / 4;
      }
    }
  }
  return out;
}

/** `default.jsonSchema`: the latest text is, or holds, JSON that fits the schema. */
export const jsonSchema = check({
  id: 'default.jsonSchema',
  phases: OUTPUT,
  targets: ANY_TARGET,
  parameters: z.strictObject({
    schema: z.record(z.string(), z.unknown()).superRefine((schema, context) => {
      try {
        compileSchema(schema);
      } catch (error) {
        if (!(error instanceof SchemaProblem)) throw error;
        context.addIssue({ code: 'custom', path: [...error.path], message: error.message });
      }
    }),
    not,
  }),
  timeoutMs: null,
  mutates: false,
  compile({ schema, not: inverted }) {
    const valid = compileSchema(schema);
    function* look(text: string): Generator<number, Judgement> {
      const found = yield* jsonIn(text);
      if (found.length === 0) return verdict(false, inverted, 'The text holds no JSON.');
      for (const value of found) {
        if (fits(value)) return verdict(true, inverted, 'The JSON fits the schema.');
        // A value may take as long as one may at all.
        yield AT_ONCE;
      }
      return verdict(false, inverted, 'The JSON does not fit the schema.');
    }
    const fits = (value: unknown): boolean => {
      try {
        return valid(value);
      } catch (error) {
        if (error instanceof TooMuchWork) throw new CheckError(`The JSON cannot be judged: ${error.message}.`);
        throw error;
      }
    };
    return { lookBehind: null, judge: (subject) => paced(look(subject.latest())) };
  },
});

/** `default.jsonKeys`: keys at the top of JSON objects in the latest text; `none` needs no JSON at all. */
export const jsonKeys = check({
  id: 'default.jsonKeys',
  phases: OUTPUT,
  targets: ANY_TARGET,
  parameters: z.strictObject({ keys: texts(1_000, 500), operator: operator('any') }),
  timeoutMs: null,
  mutates: false,
  compile({ keys, operator: how }) {
    const wanted = [...new Set(keys)];
    function* look(text: string): Generator<number, Judgement> {
      const objects = (yield* jsonIn(text)).filter(isObject);
      let most = 0;
      for (const object of objects) {
        most = Math.max(most, wanted.filter((key) => Object.hasOwn(object, key)).length);
        yield wanted.length * 4;
      }
      const ok = how === 'any' ? most > 0 : how === 'all' ? most === wanted.length : most === 0;
      return {
        verdict: ok,
        data: { explanation: `${most} of ${wanted.length} keys are there; ${how} is asked for.`, operator: how },
      };
    }
    return { lookBehind: null, judge: (subject) => paced(look(subject.latest())) };
  },
});
