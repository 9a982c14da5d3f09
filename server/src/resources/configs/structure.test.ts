/** Every member of a config at every level: what is of a wrong type, out of range or unknown is refused with its own path. */
import { describe, expect, it } from 'vitest';
import { formatPath } from '../issues.ts';
import { parseConfig } from './schema.ts';
import { describeConfig } from './structure.ts';

interface Schema {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | Schema;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly enum?: readonly unknown[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly pattern?: string;
}
type Path = readonly (string | number)[];

const root = describeConfig() as Schema;

function textFor({ pattern, minLength = 0 }: Schema): string {
  for (const text of ['a'.repeat(Math.max(1, minLength)), '@a'])
    if (pattern === undefined || new RegExp(pattern, 'u').test(text)) return text;
  throw new Error(`no text for ${pattern}`);
}

/** The least value that a schema takes. */
function least(schema: Schema): unknown {
  if (schema.anyOf !== undefined) return least(schema.anyOf[0] ?? {});
  if (schema.enum !== undefined) return schema.enum[0];
  if (schema.type === 'object')
    return Object.fromEntries((schema.required ?? []).map((key) => [key, least(schema.properties?.[key] ?? {})]));
  if (schema.type === 'array') return Array.from({ length: schema.minItems ?? 0 }, () => least(schema.items ?? {}));
  if (schema.type === 'string') return textFor(schema);
  if (schema.type === 'boolean') return true;
  return Math.max(schema.minimum ?? 0, 0);
}

const OF_TYPES: readonly [type: string, value: unknown][] = [
  ['null', null],
  ['boolean', true],
  ['number', 7],
  ['string', 'x\u0001'],
  ['array', [[]]],
  ['object', { zzz: { zzz: 1 } }],
];

interface Case {
  readonly path: Path;
  readonly what: string;
  readonly value: unknown;
  readonly good: boolean;
}

/** Values at one place: those of other types, those just beyond its bounds, and those that just reach them. */
function* casesOf(schema: Schema, path: Path): Generator<Case> {
  const bad = (what: string, value: unknown): Case => ({ path, what, value, good: false });
  const good = (what: string, value: unknown): Case => ({ path, what, value, good: true });
  const kinds = schema.anyOf ?? [schema];
  const takes = (type: string) =>
    kinds.some((one) => (one.type === 'integer' ? 'number' : (one.type ?? 'string')) === type);
  for (const [type, value] of OF_TYPES) if (!takes(type)) yield bad(`of type ${type}`, value);
  if (schema.anyOf !== undefined) {
    for (const one of schema.anyOf) if (one.type === 'object') yield* membersOf(one, path);
    return;
  }
  const { minimum, maximum, minLength = 0, maxLength, minItems = 0, maxItems } = schema;
  if (schema.type === 'integer') yield bad('a fraction', (minimum ?? 0) + 0.5);
  if (minimum !== undefined && Number.isSafeInteger(minimum - 1)) {
    yield bad('too small', minimum - 1);
    yield good('the least', minimum);
  }
  if (maximum !== undefined) {
    if (Number.isSafeInteger(maximum + 1)) yield bad('too large', maximum + 1);
    yield good('the most', maximum);
  }
  if (schema.enum !== undefined) {
    yield bad('another one', 'zzz');
    for (const one of schema.enum) yield good(String(one), one);
  }
  if (schema.type === 'string') {
    if (minLength > 0) yield bad('too short', '');
    if (maxLength !== undefined) {
      yield bad('too long', 'a'.repeat(maxLength + 1));
      // Ids of checks are those that there are.
      if (path.at(-1) !== 'id' || path.at(-3) !== 'checks')
        yield good('as long as may be', textFor(schema).padEnd(maxLength, 'a'));
    }
    if (schema.pattern !== undefined) yield bad('another form', 'a b/ü');
    if (schema.enum === undefined) yield bad('U+0000', 'a\u0000');
  }
  if (schema.type === 'array') {
    const item = schema.items ?? {};
    if (minItems > 0) yield bad('too few', []);
    if (maxItems !== undefined && maxItems <= 1000)
      yield bad(
        'too many',
        Array.from({ length: maxItems + 1 }, () => least(item)),
      );
    // Of several, the one that is wrong is named.
    for (const one of casesOf(item, [...path, 1])) if (one.path.length === path.length + 1) yield one;
    for (const one of casesOf(item, [...path, 0])) if (one.path.length > path.length + 1) yield one;
  }
  if (schema.type === 'object') yield* membersOf(schema, path);
}

function* membersOf(schema: Schema, path: Path): Generator<Case> {
  if (schema.properties === undefined) return;
  if (schema.additionalProperties === false)
    yield { path: [...path, 'zzz'], what: 'that nobody knows', value: 1, good: false };
  for (const [key, member] of Object.entries(schema.properties)) {
    if (path.length === 0 && key === 'targets') continue;
    if (schema.required?.includes(key)) yield { path: [...path, key], what: 'left out', value: undefined, good: false };
    yield* casesOf(member, [...path, key]);
  }
}

/** A config in which nothing is wrong but what stands at `path`. */
function configWith(path: Path, value: unknown): unknown {
  const at = (schema: Schema, rest: Path): unknown => {
    const [key, ...more] = rest;
    if (key === undefined) return value;
    if (typeof key === 'number') {
      const list = Array.from({ length: key }, () => least(schema.items ?? {}));
      return [...list, at(schema.items ?? {}, more)];
    }
    const object = schema.anyOf?.find(({ type }) => type === 'object') ?? schema;
    return { ...(least(object) as object), [key]: at(object.properties?.[key] ?? {}, more) };
  };
  return { provider: '@a', ...(at(root, path) as object) };
}

function issuesOf(config: unknown): string[] {
  const parsed = parseConfig(config, { checkHost: () => null });
  return parsed.ok ? [] : parsed.issues.map(({ path }) => path);
}

const cases = [...casesOf(root, [])].filter(({ path }) => path.length > 0);
const byKey = Map.groupBy(cases, ({ path }) => String(path[0]));

it('all members are known to this test', () => {
  expect([...byKey.keys()].sort()).toEqual(
    [...Object.keys(root.properties ?? {}).filter((key) => key !== 'targets'), 'zzz'].sort(),
  );
  expect(cases.length).toBeGreaterThan(900);
});

/** Where a target stands among others that are right, deep in the tree. */
const deep = (target: unknown) => ({
  strategy: { mode: 'fallback' },
  targets: [{ provider: '@b' }, { strategy: { mode: 'loadbalance' }, targets: [{ provider: '@c' }, target] }],
});

describe.each([...byKey])('%s', (_key, list) => {
  it('is refused with its path where it is wrong, in the config and in a target, and taken up to its bounds', () => {
    for (const { path, what, value, good } of list) {
      const config = configWith(path, value);
      const name = formatPath(path);
      for (const [where, issues] of [
        [name, issuesOf(config)],
        [`targets[1].targets[1].${name}`, issuesOf(deep(config))],
      ] as const) {
        const about = `${name} ${what}: ${JSON.stringify(config).slice(0, 300)}`;
        if (good) expect(issues, about).not.toContain(where);
        else {
          expect(
            issues.filter((issue) => issue === where || issue.startsWith(`${where}.`)),
            about,
          ).not.toEqual([]);
          expect(
            issues.filter((issue) => !issue.startsWith(where)),
            about,
          ).toEqual([]);
        }
      }
    }
  });
});
