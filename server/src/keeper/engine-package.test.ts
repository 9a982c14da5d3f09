import { expect, it } from 'vitest';
import { missingEngine } from './engine-package.ts';

it('the engine is found where it is installed, and named where the platform has none', () => {
  expect(missingEngine()).toBeNull();
  expect(missingEngine('plan9', 'pdp11')).toBe('the package @duckdb/node-bindings-plan9-pdp11 is not installed');
});
