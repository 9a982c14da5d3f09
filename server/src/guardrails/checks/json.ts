import { z } from 'zod';
import { isObject } from '../../kernel/json.ts';
import { CheckError } from '../check.ts';
import { compileSchema, SchemaProblem, TooMuchWork } from '../json-schema.ts';
import { ANY_TARGET, check, not, OUTPUT, operator, texts, verdict } from './support.ts';

/** Text that is parsed as JSON at all; more would hold the event loop up. */
const MAX_JSON = 2_000_000;
const MAX_FOUND = 20;
/** Pieces that are tried: each that is no JSON costs an exception. */
const MAX_TRIED = 200;

/**
 * The JSON values a text holds: the whole text, else its fenced blocks, else the objects and lists that stand in it. In
 * order, at most 20.
 */
export function jsonIn(text: string): unknown[] {
  const trimmed = text.trim();
  if (trimmed.length > MAX_JSON)
    throw new CheckError(`The text is longer than ${MAX_JSON} characters; JSON is not looked for.`);
  const whole = parsed(trimmed);
  if (whole !== undefined) return [whole];
  const blocks = fences(trimmed)
    .slice(0, MAX_TRIED)
    .flatMap(({ body }) => parsed(body.trim()) ?? []);
  return blocks.length > 0 ? blocks.slice(0, MAX_FOUND) : embedded(trimmed);
}

function parsed(text: string): unknown {
  if (!/^\s*[{["\d\-tfn]/.test(text)) return undefined;
  try {
    return JSON.parse(text);
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

/** Fenced code blocks of Markdown, closed or running to the end. */
export function fences(text: string): Fence[] {
  const out: Fence[] = [];
  let open: { readonly mark: string; readonly language: string; readonly from: number; readonly body: number } | null =
    null;
  for (let at = 0; at < text.length; ) {
    const newline = text.indexOf('\n', at);
    const end = newline < 0 ? text.length : newline;
    const line = text.slice(at, Math.min(end, at + 200));
    const fence = /^[ \t>]{0,8}(`{3,8}|~{3,8})[ \t]*([^\s`{]{0,40})/.exec(line);
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
  return out;
}

/** Balanced objects and lists inside prose, found in one pass; each character is parsed once. */
function embedded(text: string): unknown[] {
  const out: unknown[] = [];
  let depth = 0;
  let start = 0;
  let quoted = false;
  let tried = 0;
  for (let i = 0; i < text.length && out.length < MAX_FOUND && tried < MAX_TRIED; i++) {
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
      if (depth === 0) tried += 1;
      const value = depth === 0 ? parsed(text.slice(start, i + 1)) : undefined;
      if (value !== undefined) out.push(value);
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
    return {
      lookBehind: null,
      judge(subject) {
        const found = jsonIn(subject.latest());
        if (found.length === 0) return verdict(false, inverted, 'The text holds no JSON.');
        try {
          const ok = found.some(valid);
          return verdict(ok, inverted, ok ? 'The JSON fits the schema.' : 'The JSON does not fit the schema.');
        } catch (error) {
          if (error instanceof TooMuchWork) throw new CheckError(`The JSON cannot be judged: ${error.message}.`);
          throw error;
        }
      },
    };
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
    return {
      lookBehind: null,
      judge(subject) {
        const objects = jsonIn(subject.latest()).filter(isObject);
        const has = (object: object) => wanted.filter((key) => Object.hasOwn(object, key)).length;
        const counts = objects.map(has);
        const most = Math.max(0, ...counts);
        const ok = how === 'any' ? most > 0 : how === 'all' ? most === wanted.length : most === 0;
        return {
          verdict: ok,
          data: { explanation: `${most} of ${wanted.length} keys are there; ${how} is asked for.`, operator: how },
        };
      },
    };
  },
});
