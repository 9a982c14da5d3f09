/**
 * `npm run test:logs -- [--records 100000] [--questions 500] [--seed 1]`: what the log keeper answers is what was recorded
 * (`log-answers.ts`). Prints one line of JSON for each promise.
 */
import { parseArgs } from 'node:util';
import { watchdog } from '../support/watchdog.ts';
import { answers } from './log-answers.ts';

const { values: options } = parseArgs({
  options: {
    records: { type: 'string', default: '100000' },
    questions: { type: 'string', default: '500' },
    seed: { type: 'string' },
  },
});
const seed = Number(options.seed ?? Math.floor(performance.timeOrigin) % 1_000_000);
const watch = watchdog('logs');
const held = [await answers({ records: Number(options.records), questions: Number(options.questions), seed, watch })];
process.exit(held.every(Boolean) ? 0 : 1);
