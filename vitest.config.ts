import { defineConfig } from 'vitest/config';
import { SummaryReporter } from './server/test/support/summary-reporter.ts';

export default defineConfig({
  test: {
    include: ['server/src/**/*.test.ts', 'server/test/**/*.test.ts', 'console/**/*.test.ts'],
    exclude: ['**/node_modules/**', 'server/test/slow/**'],
    globalSetup: ['server/test/support/postgres-setup.ts'],
    reporters: ['default', new SummaryReporter()],
    pool: 'forks',
    // One more than the cores of a small machine: several suites mostly wait, for a second to pass on real nodes.
    maxWorkers: 3,
    testTimeout: 20_000,
    hookTimeout: 60_000,
  },
});
