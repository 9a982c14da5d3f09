import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { SummaryReporter } from './server/test/support/summary-reporter.ts';

/** Generated matrices, fuzz, and suites that start processes or wait for real nodes: `npm run test:long`, so that `npm test` stays short. */
const LONG = '**/*.long.test.ts';
const set = process.env.SLUICE_TESTS;
const ALL = ['server/src/**/*.test.ts', 'server/test/**/*.test.ts', 'console/**/*.test.ts'];

export default defineConfig({
  test: {
    include: set === 'long' ? [LONG] : ALL,
    exclude: ['**/node_modules/**', 'server/test/slow/**', ...(set === undefined ? [LONG] : [])],
    setupFiles: ['server/test/support/fuzz-seed.ts'],
    globalSetup: ['server/test/support/postgres-setup.ts'],
    reporters: ['default', new SummaryReporter()],
    // Threads of the stores strip and compile their sources once, as in `bin/sluice.mjs`.
    env: { NODE_COMPILE_CACHE: fileURLToPath(new URL('node_modules/.cache/sluice', import.meta.url)) },
    pool: 'forks',
    // One more than the cores of a small machine: several suites mostly wait, for a second to pass on real nodes.
    maxWorkers: 3,
    // Ends a test that hangs; no test is judged by it, on a slow machine either.
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
