import { expect, it } from 'vitest';
import { accountWith, callerWith, ownRecorder, TIMEOUTS, workspaceWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import type { Principal } from '../../auth/principal.ts';
import { KnownPaths } from '../../http/known-paths.ts';
import type { WorkspaceSnapshot } from '../../runtime/snapshot.ts';
import { resolve } from './resolve.ts';

interface Given {
  readonly model?: string;
  readonly headers?: Record<string, string>;
  readonly snapshot?: WorkspaceSnapshot;
  readonly caller?: Partial<Principal>;
  readonly failing?: boolean;
  readonly unrecorded?: 'refuse' | 'serve';
}

function request({ model = '@sb/m', headers = {}, snapshot, caller, failing = false, unrecorded = 'refuse' }: Given) {
  const { recorder } = ownRecorder(failing);
  const paths = new KnownPaths(() => 'http://localhost');
  const x = testExchange({ headers }, { recorder, unrecorded, timeouts: TIMEOUTS, paths });
  x.request.principal = callerWith(caller);
  x.request.snapshot = snapshot ?? workspaceWith();
  x.request.model = model;
  return x;
}

const config = (slug: string, more: object = {}) =>
  [slug, { slug, versionId: 'v1', config: { provider: '@sb', ...more }, broken: null }] as const;

it('the slug before the model names the account, and the provider never sees it', async () => {
  const x = request({});
  await resolve(x);
  expect([x.attempt.target?.stored?.slug, x.request.model]).toEqual(['sb', 'm']);
});

it('requests alike share one plan, which what another caller asks does not change', async () => {
  const snapshot = workspaceWith();
  const [first, second, limited] = [
    request({ snapshot }),
    request({ snapshot }),
    request({ snapshot, caller: { rateLimits: [{ type: 'requests', unit: 'rpm', value: 1 }] } }),
  ];
  for (const x of [first, second, limited]) await resolve(x);
  expect(second.request.plan).toBe(first.request.plan);
  expect([first, limited].map(({ request: { plan } }) => plan?.features.rateLimits)).toEqual([false, true]);
});

it('an account’s limits are asked of its requests, and of no other account’s', async () => {
  const { rateLimits: limited } = workspaceWith({
    rateLimits: {
      kind: 'provider',
      id: 'p',
      label: 'p',
      policy: null,
      limits: [{ type: 'requests', unit: 'rpm', value: 1 }],
    },
  });
  const providers = new Map([
    ['sb', accountWith()],
    ['tight', accountWith({ slug: 'tight', rateLimits: limited === null ? [] : [limited] })],
  ]);
  const asked = [];
  for (const model of ['@sb/m', '@tight/m']) {
    const x = request({ model, snapshot: workspaceWith({ providers }) });
    await resolve(x);
    asked.push(x.request.plan?.features.rateLimits);
  }
  expect(asked).toEqual([false, true]);
});

it.each([
  [{ model: 'm' }, 'says no provider'],
  [{ model: '@nope/m' }, 'No provider or virtual key with the slug'],
  [{ headers: { 'x-gateway-config': 'pc-none' } }, 'send the slug of a saved config'],
  [{ caller: { defaults: { config_id: 'pc-none' } } }, 'change defaults.config_id of the key'],
  [{ headers: { 'x-gateway-config': '{"a' } }, 'x-gateway-config is not valid JSON'],
  [
    { headers: { 'x-gateway-config': 'pc-mine' }, caller: { defaults: { allow_config_override: false } } },
    'This API key pins its config',
  ],
] satisfies [Given, string][])('what cannot be done is refused with what to do: %o', (given: Given, message) => {
  expect(() => resolve(request(given))).toThrow(message);
});

it('what a config says of metadata gives way to what the request and its workspace say', async () => {
  const snapshot = workspaceWith({
    metadata: { a: 'workspace' },
    configs: new Map([config('pc-mine', { metadata: { a: 'config', b: 'config', c: 'config' } })]),
  });
  const headers = { 'x-gateway-config': 'pc-mine', 'x-gateway-metadata': '{"b":"request"}' };
  // The second one goes by the plan that the first one made.
  for (let i = 0; i < 2; i++) {
    const x = request({ snapshot, headers });
    await resolve(x);
    expect(x.request.metadata).toEqual({ a: 'workspace', b: 'request', c: 'config' });
  }
});

it('while records cannot be written nothing that costs is begun, unless the operator wants it served', async () => {
  expect(() => resolve(request({ failing: true }))).toThrow(
    expect.objectContaining({ kind: 'out_of_service', retryAfter: 2 }),
  );
  const served = request({ failing: true, unrecorded: 'serve' });
  await resolve(served);
  expect(served.request.plan).not.toBeNull();
});
