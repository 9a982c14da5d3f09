import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { z } from 'zod';
import { CHECKS } from '../guardrails/checks/index.ts';
import { ACTIONS } from './catalog.ts';
import { levelSchema } from './configs/structure.ts';

/** What of a schema the walk needs, whichever kind it is. */
interface Definition {
  readonly type: string;
  readonly element?: z.core.$ZodType;
  readonly shape?: Readonly<Record<string, z.core.$ZodType>>;
  readonly catchall?: z.core.$ZodType;
  readonly valueType?: z.core.$ZodType;
  readonly options?: readonly z.core.$ZodType[];
  readonly innerType?: z.core.$ZodType;
  readonly left?: z.core.$ZodType;
  readonly right?: z.core.$ZodType;
  readonly in?: z.core.$ZodType;
  readonly out?: z.core.$ZodType;
  readonly getter?: () => z.core.$ZodType;
}

/** A check of a list that says how many items it may have. */
interface Bound {
  readonly check: string;
  readonly maximum?: number;
  readonly length?: number;
}

type List = readonly [path: string, most: number | null];

/** Every list in a schema, and how many items it may have at most; null where it does not say. */
function listsIn(schema: z.core.$ZodType, path: string): List[] {
  const def = schema._zod.def as Definition;
  const { element, shape = {}, catchall, valueType, options = [], innerType, left, right } = def;
  const bounds = (schema._zod.def.checks ?? []).map(({ _zod }) => _zod.def as Bound);
  const bound = bounds.find(({ check }) => check === 'max_length' || check === 'length_equals');
  const below = (inner: z.core.$ZodType | undefined, more = '') => (inner ? listsIn(inner, path + more) : []);
  return [
    ...(element === undefined ? [] : [[path, bound?.maximum ?? bound?.length ?? null] as const]),
    ...below(element, '[]'),
    ...Object.entries(shape).flatMap(([name, inner]) => below(inner, `.${name}`)),
    ...below(catchall, '.*'),
    ...below(valueType, '.*'),
    ...options.flatMap((inner) => below(inner)),
    ...[innerType, left, right, def.in, def.out, def.getter?.()].flatMap((inner) => below(inner)),
  ];
}

const unbounded = (schema: z.core.$ZodType, path: string) =>
  listsIn(schema, path).flatMap(([at, most]) => (most === null ? [at] : []));

it('each list in a body of the administration, in a config and among the parameters of a check has a maximum', () => {
  const schemas: [z.core.$ZodType, string][] = [
    ...ACTIONS.flatMap(({ id, body }): [z.core.$ZodType, string][] => (body === null ? [] : [[body, id]])),
    [levelSchema, 'config'],
    ...[...CHECKS].map(([id, { parameters }]): [z.core.$ZodType, string] => [parameters, id]),
  ];
  const lists = schemas.flatMap(([schema, path]) => listsIn(schema, path));
  expect(lists.length).toBeGreaterThan(50);
  expect(lists.map(([path]) => path)).toEqual(
    expect.arrayContaining(['guardrails.create.checks', 'config.targets', 'default.contains.words']),
  );
  expect(schemas.flatMap(([schema, path]) => unbounded(schema, path))).toEqual([]);
});

it('the guide of checks names the maximum of each list among their parameters', () => {
  const guide = readFileSync(new URL('../../../docs/guides/guardrail-checks.md', import.meta.url), 'utf8');
  const table = guide.slice(guide.indexOf('**Lists** among the parameters')).split('\n\n')[1] ?? '';
  const names = (cell = '') => [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name);
  const written = table.split('\n').flatMap((row) => {
    const [, checks, paths, most = ''] = row.split('|');
    return names(checks).flatMap((check) => names(paths).map((path) => `${check} ${path} ${most.replaceAll(' ', '')}`));
  });
  const lists = [...CHECKS].flatMap(([id, { parameters }]) =>
    listsIn(parameters, '').map(([path, most]) => `${id} ${path.slice(1)} ${most}`),
  );
  expect(written.sort()).toEqual([...new Set(lists)].sort());
});

it('a list without a maximum is found wherever it is', () => {
  const list = z.array(z.string());
  const bounded = list.max(3);
  const schema = z.object({
    a: list.optional(),
    b: z.union([z.string(), list]),
    c: z.record(z.string(), z.array(bounded).max(2)),
    d: z.array(z.object({ e: list })).max(2),
    f: list.transform((value) => value.length),
    g: list.default([]),
  });
  expect(unbounded(schema, 'x')).toEqual(['x.a', 'x.b', 'x.d[].e', 'x.f', 'x.g']);
});
