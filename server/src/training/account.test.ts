import { describe, expect, it } from 'vitest';
import { alreadyOpen } from '../../test/support/runtime.ts';
import { createEgressGuard, parseTrustedHosts } from '../http/egress-guard.ts';
import { TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { Secret } from '../kernel/secret.ts';
import { openai } from '../providers/openai/openai.ts';
import type { OpenedAccount } from '../resources/runtime-rows.ts';
import type { StoredProvider, WorkspaceSnapshot } from '../runtime/snapshot.ts';
import { accountOfStored, checkModel } from './account.ts';

const clock = new TestClock();
const egress = createEgressGuard({
  trustedHosts: parseTrustedHosts(''),
  ownListeners: () => [],
  clock,
  log: silentLog,
  resolver: { resolve: () => Promise.resolve([]) },
});

function accountWith(change: Partial<StoredProvider>, slug = 'mine', saved: Partial<OpenedAccount> = {}) {
  const settings = { customHost: null, secrets: null, pricing: null };
  const stored = {
    slug: 'mine',
    provider: openai,
    account: alreadyOpen({
      key: new Secret('account-key-1'),
      settings: {},
      customHost: null,
      customHeaders: {},
      ...saved,
    }),
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
  return accountOfStored({ egress, clock }, snapshot, slug);
}

describe('the account of work without a request', () => {
  it('is that of the stored provider', async () => {
    const account = await accountWith({}, 'mine', { customHeaders: { Authorization: 'Bearer custom-token-2' } });
    expect(account).toMatchObject({ base: 'https://api.openai.com/v1', customHost: false });
    expect([...account.secrets].sort()).toEqual(['Bearer custom-token-2', 'account-key-1', 'custom-token-2']);
  });

  it.each<[string, () => Promise<unknown>]>([
    ['was deleted', () => accountWith({}, 'gone')],
    ['cannot be read', () => accountWith({ broken: 'no key' })],
    ['is of a kind that is not known', () => accountWith({ provider: null })],
    ['has expired', () => accountWith({ expiresAt: clock.now() })],
  ])('cannot be used any more once it %s', async (_, account) => {
    await expect(account).rejects.toThrow(expect.objectContaining({ kind: 'out_of_service' }));
  });

  it('can be used until the moment it expires', async () => {
    expect((await accountWith({ expiresAt: clock.now() + 1 })).stored?.slug).toBe('mine');
  });

  it('is not led to an address inside the network by a host that was saved', async () => {
    await expect(accountWith({}, 'mine', { customHost: 'http://169.254.169.254/v1' })).rejects.toThrow();
  });

  it('may use the models its integration allows, however they are written', async () => {
    checkModel(await accountWith({}), 'any');
    checkModel(await accountWith({ allowAllModels: false }), 'ON');
    for (const [allowAllModels, model] of [
      [true, 'OFF'],
      [false, 'any'],
    ] as const) {
      const account = await accountWith({ allowAllModels });
      expect(() => checkModel(account, model)).toThrow(/not enabled/);
    }
  });
});
