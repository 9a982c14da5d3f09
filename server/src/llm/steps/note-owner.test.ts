import { expect, it } from 'vitest';
import { accountWith, callerWith, ORGANISATION, targetWith, WORKSPACE } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import type { Made } from '../../runtime/owners.ts';
import { Creation } from '../ownership/creation.ts';
import { noteOwner } from './note-owner.ts';

/** A request whose answer has made `resp_1`; the store takes the note when `stored` is called. */
function request(shared: boolean) {
  const noted: Made[] = [];
  const warned: string[] = [];
  const store = { stored: () => {}, failed: (_error: Error) => {} };
  const note = (made: Made) => {
    noted.push(made);
    return new Promise<void>((resolve, reject) => Object.assign(store, { stored: resolve, failed: reject }));
  };
  const log = { warn: (message: string) => void warned.push(message) };
  const x = testExchange({}, { owners: { note }, log });
  x.request.principal = callerWith();
  x.attempt.target = targetWith('config', accountWith({ shared }));
  x.attempt.creation = new Creation('response', false);
  x.attempt.creation.take({ id: 'resp_1' });
  return { x, noted, warned, store };
}

it('an object belongs to the workspace and the key that had it made', () => {
  const { x, noted } = request(false);
  void noteOwner(x);
  expect(noted).toMatchObject([
    {
      tenant: { organisationId: ORGANISATION, workspaceId: WORKSPACE },
      account: 'sb-1',
      provider: 'sandbox',
      createdBy: 'key-1',
      objects: [{ kind: 'response', id: 'resp_1' }],
    },
  ]);
});

it('where others share the account, the answer ends when its object has an owner', async () => {
  const { x, store } = request(true);
  let over = false;
  const pending = Promise.resolve(noteOwner(x)).then(() => {
    over = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  expect(over).toBe(false);
  store.stored();
  await pending;
});

it('where nobody shares it, nobody waits, and a store that fails leaves a warning', async () => {
  const { x, warned, store } = request(false);
  expect(noteOwner(x)).toBeUndefined();
  store.failed(new Error('disk full'));
  await new Promise((resolve) => setImmediate(resolve));
  expect(warned).toEqual(['the owner of an object was not noted']);
});

it('nothing is noted where nothing was made, or with a caller’s own credential', () => {
  const [none, own] = [request(false), request(false)];
  none.x.attempt.creation = new Creation('response', false);
  own.x.attempt.target = targetWith('config', null);
  void noteOwner(none.x);
  void noteOwner(own.x);
  expect([none.noted, own.noted]).toEqual([[], []]);
});
