import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { SummaryReporter } from './server/test/support/summary-reporter.ts';

/** Generated matrices, fuzz, and suites that start processes or wait for real nodes: `npm run test:long`, so that `npm test` stays short. */
const LONG = [
  'server/src/guardrails/checks/hostile.test.ts',
  'server/src/guardrails/checks/parameters.test.ts',
  'server/src/guardrails/checks/tables.test.ts',
  'server/src/limits/ledger/ledger.test.ts',
  'server/src/limits/ledger/sequential.test.ts',
  'server/src/limits/ledger/speed.test.ts',
  'server/src/llm/guard/cost.test.ts',
  'server/src/providers/bedrock/converse-stream.test.ts',
  'server/src/providers/bedrock/hostile.test.ts',
  'server/src/resources/accounts-fuzz.test.ts',
  'server/src/store/disk/crash.test.ts',
  'server/src/store/postgres/row-security.test.ts',
  'server/test/admin-fuzz.test.ts',
  'server/test/adoption.test.ts',
  'server/test/alerts/deliver.test.ts',
  'server/test/alerts/raise.test.ts',
  'server/test/attacks.test.ts',
  'server/test/audit-verify.test.ts',
  'server/test/audit.test.ts',
  'server/test/config-fuzz.test.ts',
  'server/test/config-members.test.ts',
  'server/test/conversions/drawn-answers.test.ts',
  'server/test/conversions/malformed.test.ts',
  'server/test/conversions/splits.test.ts',
  'server/test/conversions/there-and-back.test.ts',
  'server/test/crash-test.test.ts',
  'server/test/data-plane-fuzz.test.ts',
  'server/test/features-off-cost.test.ts',
  'server/test/first-run.test.ts',
  'server/test/guardrails/attach.test.ts',
  'server/test/guardrails/batches.test.ts',
  'server/test/guardrails/coverage.test.ts',
  'server/test/guides.test.ts',
  'server/test/half-states.test.ts',
  'server/test/idempotency.test.ts',
  'server/test/limit-input.test.ts',
  'server/test/limits/coverage.test.ts',
  'server/test/limits/passed-through.test.ts',
  'server/test/matrix/**/*.test.ts',
  'server/test/providers/catalog.test.ts',
  'server/test/reservations.test.ts',
  'server/test/revocation.test.ts',
  'server/test/routing-swaps.test.ts',
  'server/test/security-settings.test.ts',
  'server/test/stream-breaks.test.ts',
  'server/test/training/managed-batches-clients.test.ts',
  'server/test/training/managed-batches-kill.test.ts',
  'server/test/training/managed-batches.test.ts',
  'server/test/training/managed-files-clients.test.ts',
  'server/test/training/managed-jobs-clients.test.ts',
  'server/test/training/managed-jobs.test.ts',
  'server/test/training/upload.test.ts',
  'server/test/workers.test.ts',
];
const set = process.env.SLUICE_TESTS;
const ALL = ['server/src/**/*.test.ts', 'server/test/**/*.test.ts', 'console/**/*.test.ts'];

export default defineConfig({
  test: {
    include: set === 'long' ? LONG : ALL,
    exclude: ['**/node_modules/**', 'server/test/slow/**', ...(set === undefined ? LONG : [])],
    setupFiles: ['server/test/support/fuzz-seed.ts'],
    globalSetup: ['server/test/support/postgres-setup.ts'],
    reporters: ['default', new SummaryReporter()],
    // Threads of the stores strip and compile their sources once, as in `bin/sluice.mjs`.
    env: { NODE_COMPILE_CACHE: fileURLToPath(new URL('node_modules/.cache/sluice', import.meta.url)) },
    pool: 'forks',
    // One more than the cores of a small machine: several suites mostly wait, for a second to pass on real nodes.
    maxWorkers: 3,
    testTimeout: 20_000,
    hookTimeout: 60_000,
  },
});
