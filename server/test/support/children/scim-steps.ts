/**
 * Prints for each of what grows how many steps SCIM's filters and patches take at one, two and four times a size: one JSON
 * line each. Run it without the compilers, as its test does: compiled code is counted in part.
 */
import { Session } from 'node:inspector/promises';

const session = new Session();
session.connect();
await session.post('Profiler.enable');
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
// Only code that is loaded from now on is counted block by block.
const { matches, parseFilter } = await import('../../../src/scim/filter.ts');
const { operationsOf, patchGroup, patchUser } = await import('../../../src/scim/patch.ts');

const USER = { userName: 'a@b.c', active: true, emails: [{ value: 'a@b.c', type: 'work' }], name: { givenName: 'A' } };
const users = (count: number) => Array.from({ length: count }, (_, i) => ({ value: `user-${i}` }));
const SIZED: readonly (readonly [string, number, (n: number) => void])[] = [
  ['terms', 20, (n) => parseFilter(Array(n).fill('a eq "b"').join(' and '))],
  ['alternatives', 20, (n) => matches(parseFilter(Array(n).fill('userName eq "b"').join(' or ')), USER)],
  ['parentheses', 4, (n) => parseFilter(`${'('.repeat(n)}a pr${')'.repeat(n)}`)],
  ['blanks', 900, (n) => parseFilter(`a${' '.repeat(n)}pr`)],
  ['escapes in a text', 400, (n) => parseFilter(`a eq "${'\\\\'.repeat(n)}"`)],
  [
    'elements that a filter looks through',
    500,
    (n) => matches(parseFilter('emails[type eq "x"]'), { ...USER, emails: users(n) }),
  ],
  [
    'members of one operation',
    500,
    (n) => patchGroup(operationsOf({ Operations: [{ op: 'add', path: 'members', value: users(n) }] }), 'id'),
  ],
  [
    'operations',
    200,
    (n) =>
      patchUser(
        USER,
        operationsOf({ Operations: Array(n).fill({ op: 'replace', path: 'name.givenName', value: 'A' }) }),
        'id',
      ),
  ],
];

/** How often blocks of the code of SCIM were entered since the last time. */
async function counted(): Promise<number> {
  const { result } = await session.post('Profiler.takePreciseCoverage');
  return result
    .filter(({ url }) => /src\/scim\/(?:filter|patch|attributes)\.ts/.test(url))
    .flatMap(({ functions }) => functions.flatMap(({ ranges }) => ranges.map(({ count }) => count)))
    .reduce((sum, count) => sum + count, 0);
}

for (const [what, size, run] of SIZED) {
  // What is set up by the first call is no part of what grows.
  run(size);
  const steps: number[] = [];
  for (const n of [size, 2 * size, 4 * size]) {
    await counted();
    run(n);
    steps.push(await counted());
  }
  process.stdout.write(`${JSON.stringify({ what, steps })}\n`);
}
session.disconnect();
