import { expect, it } from 'vitest';
import { SluiceError } from '../kernel/errors.ts';
import { silentLog } from '../kernel/log.ts';
import { adminError } from './respond.ts';

function logged(error: SluiceError): string[] {
  const seen: string[] = [];
  adminError(error, 'r-1', { ...silentLog, warn: (text) => seen.push(text), error: (text) => seen.push(text) });
  return seen;
}

it('a conflict writes no text of the database into the log, an outage of the store does', () => {
  const detail = 'providers: UNIQUE constraint failed: providers.organisation_id, providers.slug';
  expect(logged(new SluiceError('conflict', 'There is already an object with this slug.', { detail }))).toEqual([]);
  expect(logged(new SluiceError('unknown_reference', 'It does not exist.', { detail }))).toEqual([]);
  expect(logged(new SluiceError('unavailable', 'The store cannot be reached.', { detail }))).toHaveLength(1);
});
