/** Filters and paths of strangers: 100,000 of them, from one seed. Nothing but ScimError comes of them, in time that grows as their length. */
// Own process: it measures time.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { leastCost } from '../../test/support/cost.ts';
import type { JsonObject } from '../kernel/json.ts';
import { ScimError } from './errors.ts';
import { lookupsOf, matches, parseFilter, parsePath } from './filter.ts';
import { operationsOf, patchGroup, patchUser } from './patch.ts';

const CASES = 100_000;
const SEED = 7_644;
const USER = { userName: 'a@b.c', active: true, emails: [{ value: 'a@b.c', type: 'work' }], name: { givenName: 'A' } };
const TOKENS = [
  'userName',
  'emails',
  'emails.value',
  'members',
  'name.givenName',
  '__proto__',
  'constructor.prototype',
  'urn:ietf:params:scim:schemas:core:2.0:User:active',
  'urn:x:y',
  'eq',
  'ne',
  'co',
  'gt',
  'pr',
  'and',
  'or',
  'not',
  '(',
  ')',
  '[',
  ']',
  '].value',
  '"a"',
  '"\\u0000"',
  '"',
  'true',
  'null',
  '5',
  '-1e9',
  ' ',
  '%',
  '\\',
  '😀',
];
/** Filters that are well-formed, so that not all that is read is refused. */
const { filter: wellFormed } = fc.letrec<{ filter: string; term: string }>((tie) => ({
  term: fc
    .tuple(
      fc.constantFrom('userName', 'emails', 'emails.value', 'active', 'name.givenName', 'urn:x:y', 'members'),
      fc.constantFrom('eq', 'ne', 'co', 'SW', 'ew'),
      fc.constantFrom('"a"', '"A@B.C"', '"%"', '""', '"\\u0000"'),
    )
    .map((words) => words.join(' ')),
  filter: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    tie('term'),
    fc.tuple(tie('filter'), fc.constantFrom('and', 'OR'), tie('filter')).map((words) => words.join(' ')),
    tie('filter').map((inside) => `not (${inside})`),
    tie('filter').map((inside) => `(${inside})`),
    tie('term').map((inside) => `emails[${inside}]`),
  ),
}));
const text = fc.oneof(
  wellFormed,
  fc.array(fc.constantFrom(...TOKENS), { maxLength: 24 }).map((words) => words.join(' ')),
  fc.array(fc.constantFrom(...TOKENS), { maxLength: 12 }).map((words) => words.join('')),
  fc.string({ maxLength: 60 }),
);
const value = fc.oneof(
  fc.jsonValue({ maxDepth: 2 }),
  fc.constantFrom('True', { value: 'a' }, [{ value: 'b', primary: true }]),
);
const operation = fc.record(
  {
    op: fc.constantFrom('add', 'Remove', 'replace', 'x'),
    path: fc.oneof(text, fc.constantFrom('members', 'emails[type eq "work"].value', 'active', 'name')),
    value,
  },
  { requiredKeys: ['op'] },
);

/** What only ScimError may come of. */
function attempt<T>(run: () => T): T | null {
  try {
    return run();
  } catch (error) {
    if (error instanceof ScimError) return null;
    throw error;
  }
}

it('filters and paths at random are read or refused', () => {
  let read = 0;
  fc.assert(
    fc.property(text, (given) => {
      const filter = attempt(() => parseFilter(given));
      attempt(() => parsePath(given));
      if (filter === null) return;
      read += 1;
      expect(typeof matches(filter, USER)).toBe('boolean');
      // What an index is asked for is never less than what matches.
      const lookups = lookupsOf(filter, new Set(['username']));
      if (lookups !== null && matches(filter, USER)) {
        expect(lookups.some((one) => one.value.toLowerCase() === USER.userName)).toBe(true);
      }
    }),
    { numRuns: CASES, seed: SEED },
  );
  expect(read).toBeGreaterThan(CASES / 10);
});

it('operations at random are carried out or refused, and change nothing that they were given', () => {
  const before = JSON.stringify(USER);
  fc.assert(
    fc.property(fc.array(operation, { minLength: 1, maxLength: 4 }), (Operations) => {
      const operations = attempt(() => operationsOf({ Operations } as unknown as JsonObject));
      if (operations === null) return;
      attempt(() => patchUser(USER, operations, 'id'));
      attempt(() => patchGroup(operations, 'id'));
    }),
    { numRuns: CASES, seed: SEED },
  );
  expect(JSON.stringify(USER)).toBe(before);
  expect(({} as Record<string, unknown>).polluted).toBeUndefined();
});

it('the worst filter of 4,000 characters costs less than 20 ms', () => {
  const worst = [
    '('.repeat(4_000),
    '"'.padEnd(4_000, '\\'),
    'a pr and '.repeat(440),
    'not ('.repeat(799),
    ' '.repeat(4_000),
    'a'.repeat(4_000),
    '['.repeat(4_000),
    `userName eq "${'\\u0061'.repeat(650)}"`,
    'emails[type eq "a" and '.repeat(170),
  ];
  for (const given of worst) {
    const spent = leastCost(
      () => {
        attempt(() => parseFilter(given));
        attempt(() => parsePath(given));
      },
      { least: 20_000, rounds: 5, calls: 1 },
    );
    expect(spent, given.slice(0, 20)).toBeLessThan(20_000);
  }
});

/** Counts steps in a process that neither compiles nor optimises while it counts. */
const COUNTER = fileURLToPath(new URL('../../test/support/children/scim-steps.ts', import.meta.url));
const INTERPRETED = ['--no-opt', '--no-maglev', '--no-sparkplug', '--no-lazy-feedback-allocation'];

it('twice as much of anything that grows takes at most 2.6 times the steps', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [...INTERPRETED, COUNTER]);
  process.stdout.write(stdout);
  const rows = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { what: string; steps: number[] });
  expect(rows.map(({ what }) => what)).toEqual([
    'terms',
    'alternatives',
    'parentheses',
    'blanks',
    'escapes in a text',
    'elements that a filter looks through',
    'members of one operation',
    'operations',
  ]);
  for (const { what, steps } of rows) {
    const [once = 0, twice = 0, four = 0] = steps;
    expect(once, what).toBeGreaterThan(0);
    // What is passed over by one search, such as blanks, takes no more steps.
    expect(four - twice, what).toBeLessThanOrEqual(2.6 * (twice - once));
  }
});
