import { describe, expect, it } from 'vitest';
import { createEgressGuard, parseTrustedHosts } from '../http/egress-guard.ts';
import { TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { Secret } from '../kernel/secret.ts';
import { openai } from '../providers/openai/openai.ts';
import type { StoredProvider, WorkspaceSnapshot } from '../runtime/snapshot.ts';
import { accountOfStored, checkModel } from './account.ts';

const clock = new TestClock();
const guard = createEgressGuard({
  trustedHosts: parseTrustedHosts(''),
  ownListeners: () => [],
  clock,
  log: silentLog,
  resolver: { resolve: () => Promise.resolve([]) },
});

function accountWith(change: Partial<StoredProvider>, slug = 'mine') {
  const settings = { customHost: null, customHeaders: {}, pricing: null };
  const stored = {
    slug: 'mine',
    provider: openai,
    key: new Secret('account-key-1'),
    settings: {},
    customHost: null,
    customHeaders: {},
    models: new Map([
      ['off', { ...settings, enabled: false }],
      ['on', { ...settings, enabled: true }],
    ]),
    allowAllModels: true,
    expiresAt: null,
    broken: null,
    ...change,
  } as unknown as StoredProvider;
  const snapshot = { providers: new Map([['mine', stored]]) } as unknown as WorkspaceSnapshot;
  return accountOfStored({ guard, clock }, snapshot, slug);
}

describe('the account of work without a request', () => {
  it('is that of the stored provider', () => {
    const account = accountWith({ customHeaders: { Authorization: 'Bearer custom-token-2' } });
    expect(account).toMatchObject({ base: 'https://api.openai.com/v1', customHost: false });
    expect([...account.secrets].sort()).toEqual(['Bearer custom-token-2', 'account-key-1', 'custom-token-2']);
  });

  it.each<[string, () => unknown]>([
    ['was deleted', () => accountWith({}, 'gone')],
    ['cannot be read', () => accountWith({ broken: 'no key' })],
    ['is of a kind that is not known', () => accountWith({ provider: null })],
    ['has expired', () => accountWith({ expiresAt: clock.now() })],
  ])('cannot be used any more once it %s', (_, account) => {
    expect(account).toThrow(expect.objectContaining({ kind: 'gateway_unavailable' }));
  });

  it('can be used until the moment it expires', () => {
    expect(accountWith({ expiresAt: clock.now() + 1 }).stored?.slug).toBe('mine');
  });

  it('is not led to an address inside the network by a host that was saved', () => {
    expect(() => accountWith({ customHost: 'http://169.254.169.254/v1' })).toThrow();
  });

  it('may use the models its integration allows, however they are written', () => {
    checkModel(accountWith({}), 'any');
    checkModel(accountWith({ allowAllModels: false }), 'ON');
    for (const [allowAllModels, model] of [
      [true, 'OFF'],
      [false, 'any'],
    ] as const) {
      expect(() => checkModel(accountWith({ allowAllModels }), model)).toThrow(/not enabled/);
    }
  });
});
