/**
 * Hostile input at length: `npm run test:fuzz -- --cases 100000 [--seed n] [--stall 100]`. A third of the cases go to the
 * administration API, the rest to the data plane, whose event loop must not stall for longer than so many milliseconds of
 * processor time. Prints one line of JSON for each and ends with
 * `fuzz: N passed, N failed`.
 */
import { parseArgs } from 'node:util';
import { fuzzAdmin, fuzzedServices } from '../hostile/fuzz-admin.ts';
import { fuzzDataPlane, startDataPlane } from '../hostile/fuzz-data-plane.ts';
import { startAdmin } from '../support/admin.ts';
import { temporaryTables } from '../support/tables.ts';
import { watchdog } from '../support/watchdog.ts';

const { values: options } = parseArgs({
  options: {
    cases: { type: 'string', default: '100000' },
    seed: { type: 'string' },
    stall: { type: 'string', default: '100' },
  },
});
const cases = Number(options.cases);
const seed = Number(options.seed ?? Math.floor(performance.timeOrigin) % 1_000_000);
if (!(Number.isInteger(cases) && cases > 2 && Number.isInteger(seed))) {
  process.stderr.write('--cases must be a whole number above 2 and --seed a whole number\n');
  process.exit(2);
}
const stallGoal = Number(options.stall);
/** Both parts tell nothing until they end. */
const PART_MS = 540_000;
const watch = watchdog('fuzz');
let passed = 0;
let failed = 0;

async function part(id: string, goal: number, n: number, run: () => Promise<number>): Promise<void> {
  watch.phase(id, PART_MS);
  const began = performance.now();
  let value: number | null = null;
  try {
    value = await run();
  } catch (error) {
    process.stdout.write(`${(error as Error).stack ?? String(error)}\n`);
  }
  const pass = value !== null && value <= goal;
  if (pass) passed += 1;
  else failed += 1;
  const seconds = Math.round((performance.now() - began) / 1000);
  process.stdout.write(`${JSON.stringify({ id, value, goal, pass, n, seconds, seed })}\n`);
}

const forAdmin = Math.floor(cases / 3);
await part('administration: answers of 500 and above', 0, forAdmin, async () => {
  const admin = await startAdmin(await temporaryTables(), { admin: { services: fuzzedServices() } });
  try {
    const { statuses } = await fuzzAdmin(admin, forAdmin, seed);
    return Object.entries(statuses).reduce((sum, [status, count]) => sum + (Number(status) >= 500 ? count : 0), 0);
  } finally {
    await admin.close();
  }
});
const target = await startDataPlane();
await part('data plane: longest event-loop stall, ms', stallGoal, cases - forAdmin, async () => {
  const { stall } = await fuzzDataPlane(target, cases - forAdmin, seed);
  return Math.round(stall);
});
await target.stop();
process.stdout.write(`fuzz: ${passed} passed, ${failed} failed\n`);
process.exit(failed === 0 ? 0 : 1);
