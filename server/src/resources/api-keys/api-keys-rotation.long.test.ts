/** Rotation of API keys as callers see it, by hand and by the job, on both engines. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DAY_MS, type KeyHarness, NOWHERE, type SignedIn, startKeys } from '../../../test/support/api-keys.ts';

const HALF_HOUR = 1_800_000;
const SCOPES = ['workspace_service_api_keys.list'];

describe.each(['sqlite', 'postgres'] as const)('rotation on %s', (engine) => {
  let keys: KeyHarness;

  beforeAll(async () => {
    keys = await startKeys(engine);
  });

  afterAll(async () => {
    await keys?.close();
  });

  describe('by hand', () => {
    it('answers a new key; both open until key_transition_expires_at, and the id, limits and usage stay', async () => {
      const made = await keys.makeKey(SCOPES, {
        usage_limits: { credit_limit: 7 },
        defaults: { metadata: { a: 'b' } },
      });
      const before = await keys.read(made.id);
      const asked = Date.now();
      const answer = await keys.rotate(made.id);
      expect(answer.body).toEqual({
        id: made.id,
        key: expect.stringMatching(/^slc_wks_/),
        key_transition_expires_at: expect.any(String),
        object: 'api-key',
      });
      const ends = Date.parse(answer.body.key_transition_expires_at);
      expect(ends - HALF_HOUR).toBeGreaterThanOrEqual(asked - 1_000);
      expect(ends - HALF_HOUR).toBeLessThanOrEqual(Date.now() + 1_000);
      expect(answer.body.key).not.toBe(made.key);
      expect([await keys.opens(made.key), await keys.opens(answer.body.key)]).toEqual([true, true]);
      const after = await keys.read(made.id);
      const { key, last_rotated_at, last_updated_at, key_transition_expires_at } = after;
      expect(after).toEqual({ ...before, key, last_rotated_at, last_updated_at, key_transition_expires_at });
      expect(before.last_rotated_at).toBeNull();
      expect(Date.parse(last_rotated_at)).toBe(ends - HALF_HOUR);
      expect(key_transition_expires_at).toBe(answer.body.key_transition_expires_at);
      expect(key).toBe(`${answer.body.key.slice(8, 10)}*******${answer.body.key.slice(18, 20)}`);
      expect((await keys.row(made.id)).version).toBe(2);
    });

    it('takes a transition of 1800000 ms and more, and says what is wrong with others', async () => {
      const made = await keys.makeKey(SCOPES);
      for (const value of [1_799_999, 0, -1, 1_800_000.5, '1800000', null, true, 1e12]) {
        keys.fails(
          await keys.rotate(made.id, { key_transition_period_ms: value }),
          400,
          'AB01',
          'key_transition_period_ms',
        );
      }
      keys.fails(await keys.rotate(made.id, { transition: HALF_HOUR }), 400, 'AB01', 'transition');
      expect(await keys.secrets(made.id)).toHaveLength(1);
      const answer = await keys.rotate(made.id, { key_transition_period_ms: HALF_HOUR });
      expect(answer.status, answer.text).toBe(200);
    });

    it('the old key opens until one second before its end, and not one second after it', async () => {
      const made = await keys.makeKey(SCOPES);
      const answer = await keys.rotate(made.id, { key_transition_period_ms: 2 * HALF_HOUR });
      const ends = Date.parse(answer.body.key_transition_expires_at);
      const back = keys.clock.now();
      keys.clock.jump(ends - 1_000 - keys.clock.now());
      expect([await keys.opens(made.key), await keys.opens(answer.body.key)]).toEqual([true, true]);
      keys.clock.jump(2_000);
      expect([await keys.opens(made.key), await keys.opens(answer.body.key)]).toEqual([false, true]);
      expect(await keys.read(made.id)).toMatchObject({ key_transition_expires_at: null });
      keys.clock.jump(back - keys.clock.now());
      keys.admin.authenticator.invalidateAll();
    });

    it('is 409 while the old key is in transition, and never leaves more than two that open', async () => {
      const made = await keys.makeKey(SCOPES);
      const first = await keys.rotate(made.id);
      for (const body of [undefined, {}, { key_transition_period_ms: HALF_HOUR }]) {
        keys.fails(await keys.rotate(made.id, body), 409, 'AB07');
      }
      expect(await keys.secrets(made.id)).toHaveLength(2);
      await keys.endTransition(made.id);
      const second = await keys.rotate(made.id);
      expect(second.status, second.text).toBe(200);
      expect(await keys.secrets(made.id)).toHaveLength(2);
      const open = [made.key, first.body.key, second.body.key].map((key) => keys.opens(key));
      expect(await Promise.all(open)).toEqual([false, true, true]);
    });

    it('of rotations at the same time one wins, and the others are 409', async () => {
      for (let round = 0; round < 5; round++) {
        const made = await keys.makeKey(SCOPES);
        const answers = await Promise.all(Array.from({ length: 4 }, () => keys.rotate(made.id)));
        expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409, 409]);
        for (const answer of answers.filter(({ status }) => status !== 200)) keys.fails(answer, 409, 'AB07');
        const [won] = answers.filter(({ status }) => status === 200);
        expect([await keys.opens(made.key), await keys.opens(won?.body.key)]).toEqual([true, true]);
        expect(await keys.secrets(made.id)).toHaveLength(2);
      }
    });

    it('takes the transition of the policy, and moves its next rotation on', async () => {
      const policy = { rotation_period_days: 10, key_transition_period_ms: 2 * HALF_HOUR };
      const next = new Date(Date.now() + 20 * DAY_MS).toISOString();
      const made = await keys.makeKey(SCOPES, { rotation_policy: { ...policy, next_rotation_at: next } });
      const answer = await keys.rotate(made.id);
      const { last_rotated_at, rotation_policy } = await keys.read(made.id);
      const rotated = Date.parse(last_rotated_at);
      expect(Date.parse(answer.body.key_transition_expires_at)).toBe(rotated + 2 * HALF_HOUR);
      const due = rotated - (rotated % DAY_MS) + 10 * DAY_MS;
      expect(rotation_policy).toMatchObject({ ...policy, next_rotation_at: new Date(due).toISOString() });
      expect((await keys.row(made.id)).rotation_due_at).toBe(due);
    });

    it('a transition as long as the period of the policy is 400', async () => {
      const made = await keys.makeKey(SCOPES, { rotation_policy: { rotation_period: 'weekly' } });
      const rotate = (ms: number) => keys.rotate(made.id, { key_transition_period_ms: ms });
      keys.fails(await rotate(7 * DAY_MS), 400, 'AB01', 'key_transition_period_ms');
      expect((await rotate(7 * DAY_MS - 1)).status).toBe(200);
    });

    it('a single rotation that is planned stays planned', async () => {
      const next = new Date(Date.now() + 20 * DAY_MS).toISOString();
      const made = await keys.makeKey(SCOPES, { rotation_policy: { next_rotation_at: next } });
      const before = await keys.read(made.id);
      expect((await keys.rotate(made.id)).status).toBe(200);
      expect((await keys.read(made.id)).rotation_policy).toEqual(before.rotation_policy);
    });

    it('leaves an audit row with the mode, the old mask and the end, and no secret', async () => {
      const made = await keys.makeKey(SCOPES);
      const { key: mask } = await keys.read(made.id);
      const answer = await keys.rotate(made.id);
      const row = (await keys.audits()).at(-1);
      expect(row).toMatchObject({ action: 'rotate', resource_id: made.id, response_status_code: 200 });
      expect(JSON.parse(row?.after ?? '')).toEqual({
        api_key_id: made.id,
        rotation_mode: 'manual',
        old_key_masked: mask,
        transition_expires_at: answer.body.key_transition_expires_at,
      });
      expect(JSON.stringify(row)).not.toContain(answer.body.key.slice(21, 64));
    });

    it('sent again with its Idempotency-Key, answers the same key and rotates once', async () => {
      const made = await keys.makeKey(SCOPES);
      const again = () =>
        keys.admin.call('POST', `/v1/api-keys/${made.id}/rotate`, {
          headers: { 'idempotency-key': `rotate-${made.id}` },
        });
      const [first, second] = [await again(), await again()];
      expect([first.status, second.status]).toEqual([200, 200]);
      expect(second.body).toEqual(first.body);
      expect(await keys.secrets(made.id)).toHaveLength(2);
      expect(await keys.opens(second.body.key)).toBe(true);
    });

    it('of a missing, foreign or deleted key: one and the same 404', async () => {
      const foreign = await keys.admin.call('GET', '/v1/api-keys', { key: keys.admin.b.admin_api_key });
      const gone = await keys.makeKey(SCOPES);
      await keys.admin.call('DELETE', `/v1/api-keys/${gone.id}`);
      const ids = [NOWHERE, 'x', foreign.body.data[0].id, gone.id, 'organisation'];
      const answers = await Promise.all(ids.map((id) => keys.rotate(id)));
      for (const answer of answers) keys.fails(answer, 404, 'AB08');
      expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    });

    it('of an organisation key and of a user key keeps the type', async () => {
      const organisation = await keys.makeKey(['workspaces.list'], {}, 'organisation/service');
      expect((await keys.rotate(organisation.id)).body.key).toMatch(/^slc_org_/);
      const user_id = await keys.addUser('member', 'member');
      const user = await keys.makeKey(['completions.write'], { user_id }, 'workspace/user');
      expect((await keys.rotate(user.id)).body.key).toMatch(/^slc_usr_/);
    });
  });

  describe('who may', () => {
    it('needs the rotate scope of the type', async () => {
      const target = await keys.makeKey(SCOPES);
      const without = await keys.makeKey(['workspace_service_api_keys.update', ...SCOPES]);
      keys.fails(await keys.rotate(target.id, {}, without.key), 403, 'AB03');
      const other = await keys.makeKey(['workspace_user_api_keys.rotate', ...SCOPES]);
      keys.fails(await keys.rotate(target.id, {}, other.key), 404, 'AB08');
      const own = await keys.makeKey(['workspace_service_api_keys.rotate', ...SCOPES]);
      expect((await keys.rotate(target.id, {}, own.key)).status).toBe(200);
    });

    it('a key with scopes above the caller’s is 403, and keeps its secret', async () => {
      const strong = await keys.makeKey([...SCOPES, 'configs.delete']);
      const weak = await keys.makeKey(['workspace_service_api_keys.rotate', ...SCOPES]);
      keys.fails(await keys.rotate(strong.id, {}, weak.key), 403, 'AB03');
      expect(await keys.secrets(strong.id)).toHaveLength(1);
      expect((await keys.read(strong.id)).last_rotated_at).toBeNull();
    });

    it('admins and managers rotate any key in their reach, members only their own user keys', async () => {
      const { workspace_id } = keys.admin.a;
      const elsewhere = await keys.addWorkspace('ws-elsewhere');
      const people = {
        orgAdmin: await keys.addUser('admin', null),
        admin: await keys.addUser('member', 'admin'),
        manager: await keys.addUser('member', 'manager'),
        member: await keys.addUser('member', 'member'),
        stranger: await keys.addUser('member', 'admin', elsewhere),
      };
      const service = async () => (await keys.makeKey(['completions.write'])).id;
      const ofUser = async (user_id: string) =>
        (await keys.makeKey(['completions.write'], { user_id }, 'workspace/user')).id;
      const attempt = async (who: keyof typeof people, id: string) => {
        const call = await keys.signIn(people[who]);
        return (await call('POST', `/v1/api-keys/${id}/rotate`, { workspace_id })).status;
      };
      for (const who of ['orgAdmin', 'admin', 'manager'] as const) {
        expect([who, await attempt(who, await service())]).toEqual([who, 200]);
        expect([who, await attempt(who, await ofUser(people.member))]).toEqual([who, 200]);
      }
      expect(await attempt('member', await ofUser(people.member))).toBe(200);
      expect(await attempt('member', await ofUser(people.manager))).toBe(404);
      expect(await attempt('member', await service())).toBe(404);
      expect(await attempt('stranger', await service())).toBe(403);
    });

    it('nobody gets a service key that acts with a role above his own by rotating it', async () => {
      const { workspace_id } = keys.admin.a;
      const rotate = (call: SignedIn, id: string) => call('POST', `/v1/api-keys/${id}/rotate`, { workspace_id });
      const manager = await keys.signIn(await keys.addUser('member', 'manager'));
      const admin = await keys.signIn(await keys.addUser('member', 'admin'));
      const people = ['workspace_users.update', 'workspaces.update'];
      for (const scope of people) {
        const above = await keys.makeKey([scope]);
        keys.fails(await rotate(manager, above.id), 403, 'AB03');
        expect(await keys.secrets(above.id)).toHaveLength(1);
        expect((await rotate(admin, above.id)).status).toBe(200);
      }
      const body = { name: 'x', workspace_id, scopes: people };
      const own = (await manager('POST', '/v1/api-keys/workspace/service', body)).body;
      expect((await rotate(manager, own.id)).status).toBe(200);

      // The organisation's own key goes back to its owner, and with it one removes owners.
      const [owners] = (await keys.admin.call('GET', '/v1/api-keys')).body.data.filter(
        (key: { type: string; creation_mode: string }) =>
          key.type === 'organisation-service' && key.creation_mode === 'auto',
      );
      const second = await keys.signIn(await keys.addUser('admin', null));
      keys.fails(await second('POST', `/v1/api-keys/${owners.id}/rotate`), 403, 'AB03');
      expect(await keys.secrets(owners.id)).toHaveLength(1);
      const plain = await keys.makeKey(['configs.list'], {}, 'organisation/service');
      expect((await second('POST', `/v1/api-keys/${plain.id}/rotate`)).status).toBe(200);
      const owner = await keys.signIn(keys.admin.a.user_id);
      expect((await owner('POST', `/v1/api-keys/${owners.id}/rotate`)).status).toBe(200);
    });

    it('a member whose role fell cannot rotate what is above it now', async () => {
      const { workspace_id } = keys.admin.a;
      const user = await keys.addUser('member', 'manager');
      const made = await keys.makeKey(['configs.delete'], { user_id: user }, 'workspace/user');
      const call = await keys.signIn(user);
      await keys.setRole(user, 'member', 'member');
      keys.clock.jump(2_000);
      keys.fails(await call('POST', `/v1/api-keys/${made.id}/rotate`, { workspace_id }), 403, 'AB03');
    });
  });

  describe('by the job', () => {
    const policy = { rotation_period_days: 30, key_transition_period_ms: HALF_HOUR };
    const dueKey = async (patch: Record<string, unknown> = {}) => {
      const made = await keys.makeKey(SCOPES, { rotation_policy: policy, ...patch });
      await keys.due(made.id);
      return made;
    };

    it('rotates what is due: the old key opens until its end, and the new one waits to be collected', async () => {
      const made = await dueKey();
      const idle = await keys.makeKey(SCOPES, { rotation_policy: policy });
      await keys.turn();
      const read = await keys.read(made.id);
      expect(read).toMatchObject({ uncollected_key: true, last_rotated_at: expect.any(String) });
      const rotated = Date.parse(read.last_rotated_at);
      expect(Date.parse(read.key_transition_expires_at)).toBe(rotated + HALF_HOUR);
      expect(Date.parse(read.rotation_policy.next_rotation_at)).toBe(rotated - (rotated % DAY_MS) + 30 * DAY_MS);
      expect(await keys.opens(made.key)).toBe(true);
      expect(await keys.read(idle.id)).toMatchObject({ uncollected_key: false, last_rotated_at: null });
      await keys.turn();
      expect(await keys.read(made.id)).toEqual(read);
    });

    it('whoever may rotate the key collects the new one once, with the end that was told', async () => {
      const made = await dueKey();
      await keys.turn();
      const { key_transition_expires_at, last_rotated_at, rotation_policy } = await keys.read(made.id);
      const weak = await keys.makeKey(['workspace_service_api_keys.rotate']);
      keys.fails(await keys.rotate(made.id, {}, weak.key), 403, 'AB03');
      const collected = await keys.rotate(made.id);
      expect(collected.body).toMatchObject({ id: made.id, key_transition_expires_at });
      expect([await keys.opens(made.key), await keys.opens(collected.body.key)]).toEqual([true, true]);
      expect(await keys.read(made.id)).toMatchObject({ uncollected_key: false, last_rotated_at, rotation_policy });
      keys.fails(await keys.rotate(made.id), 409, 'AB07');
      expect(await keys.secrets(made.id)).toHaveLength(2);
    });

    it('of two who collect at once, one gets it', async () => {
      const made = await dueKey();
      await keys.turn();
      const answers = await Promise.all([keys.rotate(made.id), keys.rotate(made.id), keys.rotate(made.id)]);
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409]);
      expect(await keys.secrets(made.id)).toHaveLength(2);
    });

    it('collecting can prolong the transition and never shortens it', async () => {
      const made = await dueKey({ rotation_policy: { ...policy, key_transition_period_ms: 4 * HALF_HOUR } });
      await keys.turn();
      const { key_transition_expires_at: told } = await keys.read(made.id);
      const other = await dueKey();
      await keys.turn();
      const shorter = await keys.rotate(made.id, { key_transition_period_ms: HALF_HOUR });
      expect(shorter.body.key_transition_expires_at).toBe(told);
      const longer = await keys.rotate(other.id, { key_transition_period_ms: 10 * HALF_HOUR });
      expect(Date.parse(longer.body.key_transition_expires_at) - Date.now()).toBeGreaterThan(9 * HALF_HOUR);
    });

    it('nobody collected in time: the key opens nothing, the log says so, and it is still there to be collected', async () => {
      const made = await dueKey();
      await keys.turn();
      await keys.endTransition(made.id);
      keys.logged.length = 0;
      await keys.turn();
      expect(keys.logged.filter(({ level }) => level === 'warn').map(({ fields }) => fields.api_key_id)).toEqual([
        made.id,
      ]);
      keys.admin.authenticator.invalidateAll();
      expect(await keys.opens(made.key)).toBe(false);
      expect(await keys.read(made.id)).toMatchObject({
        status: 'active',
        uncollected_key: true,
        key_transition_expires_at: null,
      });
      const collected = await keys.rotate(made.id);
      expect(collected.body.key_transition_expires_at).toBeNull();
      expect(await keys.opens(collected.body.key)).toBe(true);
      // The one before it is long over: nothing stands in the way of another one.
      expect((await keys.rotate(made.id)).status).toBe(200);
    });

    it('a key that nobody collected is not rotated over and over', async () => {
      const made = await dueKey();
      await keys.turn();
      await keys.endTransition(made.id);
      const { last_rotated_at } = await keys.read(made.id);
      await keys.due(made.id);
      await keys.turn();
      expect(await keys.read(made.id)).toMatchObject({ last_rotated_at, uncollected_key: true });
      expect((await keys.row(made.id)).rotation_due_at).toBeGreaterThan(Date.now());
    });

    it('waits for a transition that runs, so that there are never three', async () => {
      const made = await keys.makeKey(SCOPES, { rotation_policy: policy });
      const answer = await keys.rotate(made.id, { key_transition_period_ms: 3 * HALF_HOUR });
      await keys.due(made.id);
      await keys.turn();
      expect(await keys.secrets(made.id)).toHaveLength(2);
      expect((await keys.row(made.id)).rotation_due_at).toBe(Date.parse(answer.body.key_transition_expires_at));
      expect(await keys.read(made.id)).toMatchObject({ uncollected_key: false });
    });

    it('leaves expired, deleted and suspended ones alone', async () => {
      const expired = await dueKey();
      await keys.tables.systemWrite((tx) => tx.update('api_keys', { id: expired.id }, { expires_at: Date.now() - 1 }));
      const deleted = await dueKey();
      await keys.admin.call('DELETE', `/v1/api-keys/${deleted.id}`);
      expect((await keys.row(deleted.id)).rotation_due_at).toBeNull();
      const suspended = await dueKey();
      const id = keys.admin.a.organisation_id;
      await keys.tables.systemWrite((tx) => tx.update('organisations', { id }, { status: 'suspended' }));
      await keys.turn();
      await keys.tables.systemWrite((tx) => tx.update('organisations', { id }, { status: 'active' }));
      for (const key of [expired, deleted, suspended]) expect(await keys.secrets(key.id)).toHaveLength(1);
    });

    it('a key that is brought back after its rotation fell due gets a whole cycle', async () => {
      const made = await dueKey();
      const past = new Date(Date.now() - DAY_MS).toISOString();
      const stored = await keys.policy(made.id);
      await keys.tables.systemWrite((tx) =>
        tx.update(
          'api_keys',
          { id: made.id },
          {
            expires_at: Date.now() - 60_000,
            rotation_policy: { ...stored, next_rotation_at: past },
          },
        ),
      );
      const put = await keys.admin.call('PUT', `/v1/api-keys/${made.id}`, { body: { expires_at: null } });
      expect(put.status, put.text).toBe(200);
      await keys.turn();
      expect(await keys.read(made.id)).toMatchObject({ last_rotated_at: null, uncollected_key: false });
    });

    it('a single rotation is over once it was done', async () => {
      const next = new Date(Date.now() + 3 * DAY_MS).toISOString();
      const made = await keys.makeKey(SCOPES, { rotation_policy: { next_rotation_at: next } });
      const stored = await keys.policy(made.id);
      await keys.tables.systemWrite((tx) =>
        tx.update(
          'api_keys',
          { id: made.id },
          {
            rotation_policy: { ...stored, next_rotation_at: '2026-01-01T00:00:00.000Z' },
          },
        ),
      );
      await keys.due(made.id);
      await keys.turn();
      expect(await keys.read(made.id)).toMatchObject({ uncollected_key: true, rotation_policy: null });
      expect((await keys.row(made.id)).rotation_due_at).toBeNull();
    });

    it('leaves an audit row of the system', async () => {
      const made = await dueKey();
      const { key: mask } = await keys.read(made.id);
      await keys.turn();
      const row = (await keys.audits()).at(-1);
      expect(row).toMatchObject({ action: 'rotate', user_type: 'system', user_id: null, resource_id: made.id });
      expect(JSON.parse(row?.after ?? '')).toEqual({
        api_key_id: made.id,
        rotation_mode: 'auto',
        old_key_masked: mask,
        transition_expires_at: (await keys.read(made.id)).key_transition_expires_at,
      });
    });

    it('two leaders at once rotate a key once', async () => {
      const made = await dueKey();
      await Promise.all([keys.turn(), keys.turn(), keys.turn()]);
      expect(await keys.secrets(made.id)).toHaveLength(2);
      const rows = (await keys.audits()).filter((row) => row.resource_id === made.id && row.action === 'rotate');
      expect(rows).toHaveLength(1);
    });

    it('removes secrets whose transition has ended, and tells every node', async () => {
      const made = await keys.makeKey(SCOPES);
      const answer = await keys.rotate(made.id);
      await keys.endTransition(made.id);
      const seq = await keys.tables.lastChange();
      await keys.turn();
      expect((await keys.secrets(made.id)).map(({ id }) => id)).toEqual([answer.body.key.slice(8, 20)]);
      const changes = await keys.tables.changesAfter(seq, 100);
      expect(changes).toContainEqual(
        expect.objectContaining({
          topic: 'api_key_secrets',
          entityId: made.id,
          workspaceId: keys.admin.a.workspace_id,
        }),
      );
    });
  });

  it('nothing above was an unexpected failure', () => {
    expect(keys.logged.filter(({ level }) => level === 'error')).toEqual([]);
    expect(keys.admin.logged.filter((line) => line.includes('"level":"error"'))).toEqual([]);
  });
});
