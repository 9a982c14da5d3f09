import { expect, it } from 'vitest';
import { SluiceError } from '../kernel/errors.ts';
import { createLogger, pretty } from './logger.ts';

function lineOf(fields: Record<string, unknown>): string {
  let line = '';
  const write = (text: string) => {
    line += text;
  };
  createLogger({ level: 'info', format: 'json', write }).error('it failed', fields);
  return line;
}

it('a line with an error says what it was, where it was thrown and what caused it, on one line', () => {
  const socket = Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:1'), { code: 'ECONNREFUSED' });
  const error = new SluiceError('internal', 'The store cannot be read.', {
    cause: new Error('no pool', { cause: socket }),
  });
  const line = lineOf({ request_id: 'r1', error, cause: socket });
  expect(line.trimEnd()).not.toContain('\n');
  const { error: said, cause, request_id } = JSON.parse(line) as Record<string, string>;
  expect(request_id).toBe('r1');
  expect(said).toMatch(/^SluiceError: The store cannot be read\.\n +at .*logger\.test\.ts/);
  expect(said).toContain('caused by Error: no pool\ncaused by Error: connect ECONNREFUSED 127.0.0.1:1');
  expect(cause).toMatch(/^Error: connect ECONNREFUSED 127\.0\.0\.1:1/);
  expect(cause).toContain('(ECONNREFUSED)');
  expect(pretty(line)).toContain('SluiceError: The store cannot be read.');
});

it('nothing else of an error is in the line: fields of a database repeat what a row holds', () => {
  const error = Object.assign(new Error('duplicate key'), { code: '23505', detail: 'Key (email)=(ada@acme.example)' });
  expect(lineOf({ error })).not.toContain('ada@acme.example');
  expect(lineOf({ error })).toContain('duplicate key');
});
