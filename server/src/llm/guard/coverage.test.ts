import { expect, it } from 'vitest';
import { OPERATIONS, type Operation } from '../../operations/operation.ts';
import type { Exchange } from '../exchange.ts';
import { givesFiles, inputView } from './coverage.ts';

const asked = (operation: Operation): Exchange =>
  ({ operation, body: Buffer.alloc(0), header: () => undefined, params: {} }) as unknown as Exchange;

it('an operation of files or jobs that nobody has placed is one that guardrails cannot see, both ways', () => {
  const added = asked({ ...OPERATIONS.file, id: 'file_preview' as Operation['id'] });
  expect(inputView(added)).toBe('unseen');
  expect(givesFiles(added)).toBe(true);
  expect(inputView(asked(OPERATIONS.file))).toBe('none');
  expect(givesFiles(asked(OPERATIONS.file))).toBe(false);
});
