import { expect, it } from 'vitest';
import { callerWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import type { Principal } from '../../auth/principal.ts';
import { KnownPaths } from '../../http/known-paths.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { OperationId } from '../../operations/operation.ts';
import { authenticate } from './authenticate.ts';

const KEY = 'slc_wks_mine';

/** A request of `principal`, who is found by its key. */
function request(
  principal: Principal,
  { operation = 'chat' as OperationId, url = '/v1/chat/completions', later = false, headers = {} } = {},
) {
  const asked: string[] = [];
  const paths = new KnownPaths(() => 'http://localhost');
  paths.know('POST', '/v1/chat/completions');
  const find = (token: string) => {
    asked.push(token);
    return later ? Promise.resolve(principal) : principal;
  };
  const authenticator = { authenticate: find };
  const sent = { 'x-gateway-api-key': KEY, ...headers };
  const x = testExchange({ operation, url, headers: sent }, { authenticator, paths });
  return { x, asked };
}

it.each([false, true])('the request is its caller’s, whether the key was known (later: %s)', async (later) => {
  const principal = callerWith();
  const { x, asked } = request(principal, { later });
  await authenticate(x);
  expect([x.request.principal, asked]).toEqual([principal, [KEY]]);
});

it('a request without a credential is refused before anything is looked up', () => {
  const { x, asked } = request(callerWith(), { headers: { 'x-gateway-api-key': '' } });
  expect(() => authenticate(x)).toThrow(expect.objectContaining({ kind: 'unauthenticated' }));
  expect([x.request.principal, asked]).toEqual([null, []]);
});

it('a caller that must not call any more is refused by the reason that was known, and recorded as theirs', () => {
  const { x, asked } = request(callerWith());
  x.request.principal = callerWith();
  x.request.refusal = new SluiceError('forbidden', 'The batch has ended.');
  expect(() => authenticate(x)).toThrow('The batch has ended.');
  expect([x.request.principal.keyId, asked]).toEqual(['key-1', []]);
});

it('a caller that was known before is not asked for a key again, and needs the scope all the same', () => {
  const { x, asked } = request(callerWith());
  x.request.principal = callerWith({ scopes: new Set() });
  expect(() => authenticate(x)).toThrow('lacks the scope completions.write');
  expect(asked).toEqual([]);
});

it.each([
  ['operator', 'the operator key'],
  ['deployment', 'the client_auth of a deployment'],
  ['organisation-service', 'an organisation key'],
] as const)('a credential that is bound to no workspace is refused by its name: %s', (kind, name) => {
  const { x } = request(callerWith({ kind, workspaceId: null }));
  expect(() => authenticate(x)).toThrow(`this is ${name}. Send a key that begins with slc_wks_`);
  // The record says whose request it was.
  expect(x.request.principal?.kind).toBe(kind);
});

it('a key that may list models may do so, and call none', () => {
  const principal = callerWith({ scopes: new Set(['models.list']) });
  const listing = request(principal, { operation: 'models', url: '/v1/models' }).x;
  authenticate(listing);
  expect(listing.request.principal).toBe(principal);
  const { x } = request(principal);
  expect(() => authenticate(x)).toThrow(expect.objectContaining({ kind: 'forbidden' }));
});

it('a slip in the path is told to a caller that may not pass requests through', () => {
  const { x } = request(callerWith({ scopes: new Set() }), { operation: 'proxy', url: '/v1/chat/completion' });
  expect(() => authenticate(x)).toThrow(/\/v1\/chat\/completions/);
});
