/**
 * Parameter shaping of a config: `default_params`, then `override_params`, then `drop_params`. Works on a
 * parsed copy; integers beyond 2^53 keep their text through `kernel/json-exact.ts`.
 */
import type { JsonObject, JsonValue } from '../kernel/json.ts';
import { isObject } from '../kernel/json.ts';

export interface Shaping {
  readonly defaults: JsonObject | null;
  readonly overrides: JsonObject | null;
  readonly drops: readonly (readonly DropStep[])[] | null;
  /** The same as they were written, for operations that leave out only what a provider cannot express. */
  readonly dropNames: readonly string[];
}

type DropStep = string | number | '*';

const PATH = /([^.[\]]+)|\[(\d+|\*)\]/g;

/** `messages[*].content[0].x` → `['messages', '*', 'content', 0, 'x']`. */
function parseDropPath(path: string): DropStep[] {
  const out: DropStep[] = [];
  for (const match of path.matchAll(PATH)) {
    if (match[1] !== undefined) out.push(match[1]);
    else if (match[2] === '*') out.push('*');
    else out.push(Number(match[2]));
  }
  return out;
}

export function compileShaping(parts: {
  default_params?: JsonObject | undefined;
  override_params?: JsonObject | undefined;
  drop_params?: readonly string[] | undefined;
}): Shaping | null {
  const { default_params: defaults, override_params: overrides, drop_params: drops } = parts;
  if (!defaults && !overrides && !drops?.length) return null;
  return {
    defaults: defaults ?? null,
    overrides: overrides ?? null,
    drops: drops?.length ? drops.map(parseDropPath).filter((path) => path.length > 0) : null,
    dropNames: drops ?? [],
  };
}

/** The model that is sent: the config's own, the caller's, or the config's default; empty where nobody names one. */
export function modelUnder(shaping: Shaping | null, asked: string): string {
  const override = shaping?.overrides?.model;
  if (typeof override === 'string') return override;
  if (asked !== '') return asked;
  const fallback = shaping?.defaults?.model;
  return typeof fallback === 'string' ? fallback : '';
}

/** A new body; the input is not changed. */
export function shape(body: JsonObject, shaping: Shaping): JsonObject {
  let out: JsonObject = { ...shaping.defaults, ...body, ...shaping.overrides };
  for (const path of shaping.drops ?? []) out = drop(out, path, 0) as JsonObject;
  return out;
}

function drop(value: JsonValue | undefined, path: readonly DropStep[], at: number): JsonValue | undefined {
  const step = path[at];
  const last = at === path.length - 1;
  if (step === undefined || value === undefined) return value;
  if (Array.isArray(value)) {
    if (step !== '*' && typeof step !== 'number') return value;
    if (last) return step === '*' ? [] : value.filter((_, index) => index !== step);
    return value.map((item, index) =>
      step === '*' || index === step ? (drop(item, path, at + 1) as JsonValue) : item,
    );
  }
  if (!isObject(value)) return value;
  const key = String(step);
  if (!Object.hasOwn(value, key)) return value;
  const { [key]: inner, ...rest } = value;
  return last ? rest : { ...value, [key]: drop(inner, path, at + 1) };
}
