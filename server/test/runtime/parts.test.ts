/** What a change of the store compiles anew on a node: counted, on both stores, with changes made through the API. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { ConsoleSessions } from '../../src/auth/console-session.ts';
import { systemTenant } from '../../src/auth/tenant.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { sweepBuckets } from '../../src/limits/ledger/sweep.ts';
import { openAccount } from '../../src/runtime/opened-account.ts';
import { createRuntime, type Runtime } from '../../src/runtime/runtime.ts';
import type { WorkspaceSnapshot } from '../../src/runtime/snapshot.ts';
import { startWatch, type Watch } from '../../src/runtime/watch.ts';
import { userRow } from '../../src/store/conformance/rows.ts';
import type { Tables } from '../../src/store/ports.ts';
import type { Vault } from '../../src/store/vault.ts';
import { type Answer, plainVault } from '../support/admin.ts';
import { type Organisation, startOrganisation } from '../support/organisation.ts';
import { addUser, PUBLIC_URL, signIn } from '../support/people.ts';

const RETRIES = { retry: { attempts: 1 } };

describe.each(['sqlite', 'postgres'] as const)('a change on %s', (engine) => {
  let on: Organisation;
  let tables: Tables;
  let watch: Watch;
  let runtime: Runtime;
  let opens = 0;
  const lost = `sk-lost-${engine}`;
  let hold: Promise<void> | null = null;
  let release = () => {};
  /** The node does not hear of changes until a part is read. */
  let deaf = false;
  let away = false;
  let here = '';
  let there = '';
  const vault: Vault = {
    ...plainVault,
    open: async (...args) => {
      opens += 1;
      if (args[2].includes(lost)) throw new Error('no key opens it');
      return plainVault.open(...args);
    },
  };
  const organisation = () => on.admin.a.organisation_id;
  const snapshot = async (id = here) => runtime.workspace(organisation(), id);
  const call = async (method: string, path: string, body?: unknown): Promise<Answer['body']> => {
    const answer = await on.admin.call(method, path, { body });
    expect(answer.status, answer.text).toBeLessThan(300);
    return answer.body;
  };
  const workspace = async (name: string) => (await call('POST', '/v1/admin/workspaces', { name })).id as string;
  const integration = async (name: string) =>
    call('POST', '/v1/integrations', { name, ai_provider_id: 'openai', key: `sk-${name}` });
  const provider = async (slug: string, integration_id: string, workspace_id = here) =>
    call('POST', '/v1/providers', { name: slug, slug, integration_id, workspace_id });
  const config = async (name: string, body: object) =>
    call('POST', '/v1/configs', { name, workspace_id: here, config: body });

  /** Nothing is read for a snapshot until the answer is called. */
  function holdUp(): () => void {
    let end = () => {};
    hold = new Promise((resolve) => {
      end = () => {
        hold = null;
        resolve();
      };
    });
    release = end;
    return end;
  }

  /** What was compiled while `change` ran, was heard of, and both workspaces were asked for. */
  async function compiledBy(change: () => Promise<unknown>): Promise<Record<string, number>> {
    await watch.catchUp();
    for (const id of [here, there]) await snapshot(id);
    const before = { ...runtime.compiled };
    await change();
    await watch.catchUp();
    for (const id of [here, there]) await snapshot(id);
    const counts = Object.entries(runtime.compiled).map(([name, count]) => [
      name,
      count - before[name as keyof typeof before],
    ]);
    return Object.fromEntries(counts.filter(([, count]) => count !== 0));
  }

  beforeAll(async () => {
    on = await startOrganisation(engine);
    tables = on.admin.tables;
    const held: Tables = Object.create(tables, {
      read: {
        value: async (...args: Parameters<Tables['read']>) => {
          await hold;
          if (away) throw new Error('the store is away');
          return tables.read(...args);
        },
      },
    });
    runtime = createRuntime({
      tables: held,
      vault,
      clock: systemClock,
      log: silentLog,
      blockInlineConfig: false,
      caughtUp() {
        deaf = false;
        return watch.catchUp();
      },
    });
    const heard: Tables = Object.create(tables, {
      lastChange: { value: () => tables.lastChange() },
      onChangeHint: { value: (...args: Parameters<Tables['onChangeHint']>) => tables.onChangeHint(...args) },
      changesAfter: {
        value: async (...args: Parameters<Tables['changesAfter']>) => (deaf ? [] : tables.changesAfter(...args)),
      },
    });
    watch = await startWatch({
      tables: heard,
      feed: null,
      clock: systemClock,
      log: silentLog,
      apply: (changes) => {
        for (const change of changes) runtime.invalidate(change);
      },
    });
    here = await workspace('Here');
    there = await workspace('There');
  });
  afterEach(() => release());
  afterAll(async () => {
    await watch.close();
    await on.admin.close();
  });

  it('of sign-ins, users, invites, members and keys compiles nothing', async () => {
    const changed = await compiledBy(async () => {
      const sessions = new ConsoleSessions({ tables, clock: systemClock, publicUrl: () => PUBLIC_URL });
      const user = await addUser(tables, organisation(), { role: 'member' });
      const headers = await signIn(tables, sessions, user);
      const session = await sessions.find(headers.cookie ?? '');
      if (session === null) throw new Error('not signed in');
      await sessions.signOut(session);
      await call('PUT', `/v1/admin/users/${user.id}`, { role: 'admin' });
      const invite = { email: `new@${engine}.example`, role: 'member', workspaces: [{ id: here, role: 'member' }] };
      await call('POST', '/v1/admin/users/invites', invite);
      await call('POST', `/v1/admin/workspaces/${here}/users`, { users: [{ id: user.id, role: 'member' }] });
      const key = await on.makeKey('workspace/service', ['completions.write'], { workspace_id: here });
      await on.makeKey('organisation/service', ['workspaces.read']);
      await call('DELETE', `/v1/api-keys/${key.id}`);
    });
    expect(changed).toEqual({});
  });

  it('of a thousand users at once compiles nothing, and every request keeps its snapshot', async () => {
    const before = await snapshot();
    const changed = await compiledBy(() =>
      tables.write(systemTenant(organisation()), async (tx) => {
        for (let i = 0; i < 1_000; i++) {
          await tx.insert('users', userRow(organisation(), `many-${i}`, { email: `many-${i}@users.example` }));
          tx.changed({ workspaceId: null, topic: 'users', entityId: `many-${i}` });
        }
      }),
    );
    expect(changed).toEqual({});
    expect(await snapshot()).toBe(before);
  });

  it('of a policy whose next period begins compiles nothing', async () => {
    const policy = await call('POST', '/v1/policies/usage-limits', {
      name: 'Weekly',
      workspace_id: here,
      conditions: [{ key: 'workspace_id', value: here }],
      group_by: [{ key: 'api_key' }],
      type: 'cost',
      credit_limit: 10,
      periodic_reset: 'weekly',
    });
    const past = systemClock.now() - 1_000;
    await tables.systemWrite((tx) => tx.update('usage_policies', { id: policy.id }, { next_usage_reset_at: past }));
    const changed = await compiledBy(() => sweepBuckets({ tables, clock: systemClock }));
    expect(changed).toEqual({});
    const [row] = await tables.systemRead((tx) => tx.list('usage_policies', { where: { id: policy.id } }));
    expect(row?.next_usage_reset_at).toBeGreaterThan(past);
    expect(await compiledBy(() => call('PUT', `/v1/policies/usage-limits/${policy.id}`, { credit_limit: 5 }))).toEqual({
      usagePolicies: 1,
    });
  });

  it('of a provider compiles one part of one workspace, and all else stays the same object', async () => {
    const { slug } = await integration(`own-${engine}`);
    await provider(`p1-${engine}`, slug);
    await provider(`p2-${engine}`, slug);
    await config('Steady', { provider: `@p1-${engine}` });
    await watch.catchUp();
    const before = await snapshot();
    const other = await snapshot(there);
    expect(
      await compiledBy(() => call('PUT', `/v1/providers/p2-${engine}?workspace_id=${here}`, { note: 'x' })),
    ).toEqual({ accounts: 1 });
    const after = await snapshot();
    const parts = ['configs', 'guardrails', 'ratePolicies', 'usagePolicies', 'usageLimits', 'rateLimits'] as const;
    for (const part of parts) expect(after[part]).toBe(before[part]);
    expect(after.providers.get(`p1-${engine}`)).toBe(before.providers.get(`p1-${engine}`));
    expect(after.providers.get(`p2-${engine}`)).not.toBe(before.providers.get(`p2-${engine}`));
    expect(after.generation).toBeGreaterThan(before.generation);
    expect(await snapshot(there)).toBe(other);
  });

  it('of an integration compiles one part of the workspaces that have a provider of it', async () => {
    const [used, unused] = [await integration(`used-${engine}`), await integration(`unused-${engine}`)];
    await provider(`used-${engine}`, used.slug, there);
    const edit = (id: string) => call('PUT', `/v1/integrations/${id}`, { description: 'edited' });
    expect(await compiledBy(() => edit(unused.slug))).toEqual({});
    expect(await compiledBy(() => edit(used.slug))).toEqual({ accounts: 1 });
  });

  it('of the organisation’s settings compiles what depends on them, of a workspace only when it is asked for', async () => {
    await watch.catchUp();
    for (const id of [here, there]) await snapshot(id);
    const before = { ...runtime.compiled };
    const body = { data_plane_security_settings: { block_inline_config: false } };
    await call('PUT', '/v1/admin/organisation/settings', body);
    await watch.catchUp();
    expect(runtime.compiled).toEqual(before);
    expect((await snapshot()).blockInlineConfig).toBe(false);
    expect(runtime.compiled).toEqual({
      ...before,
      settings: before.settings + 1,
      guardrails: before.guardrails + 1,
    });
  });

  it('of one config keeps the plans of all others, and of one provider those that lead elsewhere', async () => {
    const { slug } = await integration(`plans-${engine}`);
    for (const name of ['a', 'b']) await provider(`${name}-${engine}`, slug);
    const [kept, edited] = [await config('Kept', RETRIES), await config('Edited', RETRIES)];
    await watch.catchUp();
    const before = await snapshot();
    const planOf = (name: string | null, to: string, route: object | null = null) => ({
      config: name === null ? null : (before.configs.get(name) ?? null),
      target: route === null ? { stored: before.providers.get(to) ?? null } : null,
      route,
    });
    before.plans.set('kept', planOf(kept.slug, `a-${engine}`));
    before.plans.set('kept, several', planOf(kept.slug, '', {}));
    before.plans.set('edited', planOf(edited.slug, `a-${engine}`));
    before.plans.set('other provider', planOf(null, `b-${engine}`));
    await call('PUT', `/v1/configs/${edited.slug}?workspace_id=${here}`, { config: { retry: { attempts: 2 } } });
    await watch.catchUp();
    const next = await snapshot();
    expect([...next.plans.keys()]).toEqual(['kept', 'kept, several', 'other provider']);
    expect(next.configs.get(kept.slug)).toBe(before.configs.get(kept.slug));
    await call('PUT', `/v1/providers/b-${engine}?workspace_id=${here}`, { note: 'x' });
    await watch.catchUp();
    expect([...(await snapshot()).plans.keys()]).toEqual(['kept']);
    await call('POST', '/v1/policies/rate-limits', {
      workspace_id: here,
      conditions: [{ key: 'workspace_id', value: here }],
      group_by: [{ key: 'api_key' }],
      type: 'requests',
      unit: 'rpm',
      value: 1_000,
    });
    await watch.catchUp();
    expect([...(await snapshot()).plans.keys()]).toEqual([]);
  });

  it('opens no credential, and one of an account that two workspaces use is opened once', async () => {
    const { slug } = await integration(`sealed-${engine}`);
    for (const id of [here, there]) await provider(`sealed-${id.slice(-8)}`, slug, id);
    await watch.catchUp();
    opens = 0;
    const [first, second] = [await snapshot(here), await snapshot(there)];
    expect(opens).toBe(0);
    const account = first.providers.get(`sealed-${here.slice(-8)}`)?.account;
    expect((await account?.get())?.key?.reveal()).toBe(`sk-sealed-${engine}`);
    await second.providers.get(`sealed-${there.slice(-8)}`)?.account.get();
    expect(opens).toBe(1);
    await call('PUT', `/v1/integrations/${slug}`, { key: 'sk-rotated' });
    await watch.catchUp();
    const rotated = (await snapshot()).providers.get(`sealed-${here.slice(-8)}`)?.account;
    expect((await rotated?.get())?.key?.reveal()).toBe('sk-rotated');
  });

  it('to a credential that does not open breaks the calls of its own account only, with 503', async () => {
    for (const name of ['lost', 'found']) {
      const { slug } = await integration(`${name}-${engine}`);
      await provider(`${name}-${engine}`, slug);
    }
    await watch.catchUp();
    const { providers } = await snapshot();
    const open = async (name: string) => {
      const stored = providers.get(`${name}-${engine}`);
      return stored === undefined ? null : openAccount(stored, null);
    };
    await expect(open('lost')).rejects.toMatchObject({
      kind: 'out_of_service',
      message: `The stored credential of lost-${engine} cannot be opened; its encryption key is missing.`,
    });
    expect((await open('found'))?.account.key?.reveal()).toBe(`sk-found-${engine}`);
  });

  describe('while its part is compiled', () => {
    /** Makes a change, and holds the store up before its part is read. */
    async function during(change: () => Promise<unknown>, look: () => Promise<void>): Promise<void> {
      await watch.catchUp();
      await snapshot();
      await change();
      await watch.catchUp();
      const proceed = holdUp();
      await look().finally(proceed);
    }
    const ask = (): WorkspaceSnapshot | null => {
      const given = runtime.workspace(organisation(), here);
      if (!(given instanceof Promise)) return given;
      given.catch(() => {});
      return null;
    };

    it('all requests wait where it may take something away', async () => {
      const { slug } = await integration(`away-${engine}`);
      const { slug: made } = await provider(`away-${engine}`, slug);
      await during(
        () => call('DELETE', `/v1/providers/${made}?workspace_id=${here}`),
        async () => expect([ask(), ask()]).toEqual([null, null]),
      );
      expect((await snapshot()).providers.has(made)).toBe(false);
    });

    it('one request waits where it only adds, and all wait on the node that answered the change', async () => {
      await during(
        () => config('Added', RETRIES),
        async () => {
          const before = await Promise.race([snapshot(), null]);
          expect(before).toBe(null);
          expect(ask()?.workspaceId).toBe(here);
          runtime.settle();
          expect(ask()).toBe(null);
        },
      );
      expect([...(await snapshot()).configs.values()].some(({ slug }) => slug.includes('added'))).toBe(true);
    });

    it('a second change of what is being added makes all wait', async () => {
      let made = { slug: '' };
      await during(
        async () => {
          made = await config('Twice', RETRIES);
        },
        async () => {
          ask();
          expect(ask()).not.toBe(null);
          await call('DELETE', `/v1/configs/${made.slug}?workspace_id=${here}`);
          await watch.catchUp();
          expect(ask()).toBe(null);
        },
      );
      expect((await snapshot()).configs.has(made.slug)).toBe(false);
    });
  });

  it('that was made after another one is never seen without it', async () => {
    const { slug } = await integration(`order-${engine}`);
    const made = await provider(`order-${engine}`, slug);
    await watch.catchUp();
    await snapshot();
    // The feed tells of the provider only; a guardrail and another provider follow before the part is read.
    await call('PUT', `/v1/providers/${made.slug}?workspace_id=${here}`, { note: 'first' });
    await watch.catchUp();
    const proceed = holdUp();
    const asked = snapshot();
    deaf = true;
    const guardrail = await call('POST', '/v1/guardrails', {
      name: 'Strict',
      workspace_id: here,
      checks: [{ id: 'default.contains', parameters: { words: ['no'], operator: 'none' } }],
      actions: { deny: true, async: false, on_success: {}, on_fail: {} },
    });
    await provider(`late-${engine}`, slug).finally(proceed);
    const seen = await asked;
    expect(seen.providers.has(`late-${engine}`)).toBe(true);
    expect(seen.guardrails.byName.has(guardrail.slug)).toBe(true);
  });

  it('the last good snapshot serves while the store is away, and the change is seen when it is back', async () => {
    const { slug } = await integration(`down-${engine}`);
    const made = await provider(`down-${engine}`, slug);
    await watch.catchUp();
    const before = await snapshot();
    await call('DELETE', `/v1/providers/${made.slug}?workspace_id=${here}`);
    await watch.catchUp();
    away = true;
    expect(await snapshot()).toBe(before);
    away = false;
    expect((await snapshot()).providers.has(made.slug)).toBe(false);
  });

  it('that was missed is found when everything is taken anew, also by a node that was asleep for a thousand of them', async () => {
    await watch.catchUp();
    const before = await snapshot();
    runtime.invalidateAll();
    expect(await snapshot()).not.toBe(before);
    const settings = { ...runtime.compiled };
    for (let i = 0; i < 3_000; i++) {
      runtime.invalidate({
        organisationId: organisation(),
        workspaceId: null,
        topic: 'integrations',
        entityId: `${i}`,
      });
    }
    await snapshot();
    expect(runtime.compiled.settings).toBe(settings.settings + 1);
  });
});
