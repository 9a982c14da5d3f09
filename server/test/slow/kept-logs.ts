/**
 * `npm run test:logs -- [--records 100000] [--questions 500] [--rounds 100] [--store sqlite|postgres|both] [--seed 1]`: what the log
 * keeper answers is what was recorded, over files and over what is in none yet (`log-answers.ts`), and after kills, full disks and
 * times without a store (`log-kills.ts`). `--records 0` and `--rounds 0` leave one of them out. Prints one line of JSON for each promise.
 */
import { parseArgs } from 'node:util';
import { watchdog } from '../support/watchdog.ts';
import { answers } from './log-answers.ts';
import { kills } from './log-kills.ts';

const { values: options } = parseArgs({
  options: {
    records: { type: 'string', default: '100000' },
    questions: { type: 'string', default: '500' },
    rounds: { type: 'string', default: '100' },
    store: { type: 'string', default: 'both' },
    seed: { type: 'string' },
  },
});
const [records, questions, rounds] = [options.records, options.questions, options.rounds].map(Number) as [
  number,
  number,
  number,
];
const seed = Number(options.seed ?? Math.floor(performance.timeOrigin) % 1_000_000);

/** A small seeded generator: a failing run can be repeated. */
function random(start: number): () => number {
  let state = start >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const watch = watchdog('logs', () => `seed ${seed}`);
const held: boolean[] = [];
if (records > 0) held.push(await answers({ records, questions, seed, watch }));
for (const store of ['sqlite', 'postgres'] as const) {
  const wanted = rounds > 0 && (options.store === 'both' || options.store === store);
  if (wanted) held.push(await kills({ store, rounds, next: random(seed), watch }));
}
process.exit(held.length > 0 && held.every(Boolean) ? 0 : 1);
