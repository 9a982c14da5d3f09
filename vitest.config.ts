import { globSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { SummaryReporter } from './server/test/support/summary-reporter.ts';

/** Generated matrices, fuzz, and suites that start processes or wait for real nodes: `npm run test:long`, so that `npm test` stays short. */
const LONG = '**/*.long.test.ts';
const set = process.env.SLUICE_TESTS;
const ALL = ['server/src/**/*.test.ts', 'server/test/**/*.test.ts', 'console/**/*.test.ts'];

const include = set === 'long' ? [LONG] : ALL;
const exclude = ['**/node_modules/**', 'server/test/slow/**', ...(set === undefined ? [LONG] : [])];
/**
 * What a test file changes for others of its process, or measures of it: modules, environment, globals, memory. Where the
 * text does not show it, a file says `// Own process: <why>`.
 */
const CHANGES_PROCESS =
  /^\/\/ Own process: |\bvi\.(?:mock|doMock|resetModules|stubEnv|stubGlobal|useFakeTimers|spyOn)\b|\bprocess\.(?:env\.\w+ = |memoryUsage|exitCode|chdir)|\bregisterHooks\b|\bglobalThis\.\w+ = /m;
const isAlone = (file: string) =>
  file.endsWith('.long.test.ts') || !file.startsWith('server/') || CHANGES_PROCESS.test(readFileSync(file, 'utf8'));
const alone = globSync(include, { exclude: ['**/node_modules/**'] }).filter(isAlone);

const common = {
  setupFiles: ['server/test/support/fuzz-seed.ts'],
  // Threads of the stores strip and compile their sources once, as in `bin/sluice.mjs`.
  env: { NODE_COMPILE_CACHE: fileURLToPath(new URL('node_modules/.cache/sluice', import.meta.url)) },
  pool: 'forks' as const,
  // Ends a test that hangs; no test is judged by it, on a slow machine either.
  testTimeout: 60_000,
  hookTimeout: 120_000,
};

export default defineConfig({
  test: {
    // Short files of the server share the processes that run them, and the modules loaded there: to load those anew for
    // each file takes as long as its tests.
    projects: [
      { test: { ...common, name: 'shared', isolate: false, include, exclude: [...exclude, ...alone] } },
      { test: { ...common, name: 'alone', include: alone, exclude } },
    ],
    globalSetup: ['server/test/support/postgres-setup.ts'],
    reporters: ['default', new SummaryReporter()],
    // One more than the cores of a small machine: several suites mostly wait, for a second to pass on real nodes.
    maxWorkers: 3,
  },
});
