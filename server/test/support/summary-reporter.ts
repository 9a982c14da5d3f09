import { writeSync } from 'node:fs';
import type { Reporter, SerializedError, TestModule } from 'vitest/node';

/**
 * Ends a run with the line `N passed, N failed, N skipped`, after everything else the runner prints. Errors outside a
 * test (a file that does not load, a rejected promise nobody handled) count as failed.
 */
export class SummaryReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    let passed = 0;
    let failed = unhandled.length;
    let skipped = 0;
    for (const module of modules) {
      failed += module.errors().length;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state === 'passed') passed += 1;
        else if (state === 'failed') failed += 1;
        else skipped += 1;
      }
      for (const suite of module.children.allSuites()) failed += suite.errors().length;
    }
    process.once('exit', () => writeSync(1, `${passed} passed, ${failed} failed, ${skipped} skipped\n`));
  }
}
