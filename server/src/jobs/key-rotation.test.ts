import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { plainVault } from '../../test/support/admin.ts';
import { type KeyHarness, startKeys } from '../../test/support/api-keys.ts';
import { systemClock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import { silentLog } from '../kernel/log.ts';
import { startKeyRotation } from './key-rotation.ts';

describe('the nodes that rotate keys', () => {
  let keys: KeyHarness;
  const nodes: Closable[] = [];

  beforeEach(async () => {
    keys = await startKeys('sqlite');
  });

  afterEach(async () => {
    await Promise.all(nodes.splice(0).map((node) => node.close()));
    await keys.close();
  });

  const node = (name: string) => {
    const { tables } = keys;
    const started = startKeyRotation({
      tables,
      clock: systemClock,
      log: silentLog,
      node: name,
      macs: plainVault,
      everyMs: 20,
    });
    nodes.push(started);
    return started;
  };
  const dueKey = async () => {
    const { id } = await keys.makeKey([], { rotation_policy: { rotation_period_days: 30 } });
    await keys.due(id);
    return id;
  };
  const rotated = (id: string) =>
    vi.waitFor(async () => expect(await keys.secrets(id)).toHaveLength(2), { timeout: 10_000, interval: 10 });
  const leader = async () => {
    const lease = await keys.tables.systemRead((tx) => tx.find('leases', { name: 'key-rotation' }));
    return lease?.holder.split('/')[0];
  };

  it('have one leader, which rotates what is due when it starts and what falls due later', async () => {
    const before = await dueKey();
    node('one');
    await rotated(before);
    node('two');
    await rotated(await dueKey());
    expect(await leader()).toBe('one');
    const rows = await keys.audits();
    expect(rows.filter(({ user_type }) => user_type === 'system')).toHaveLength(2);
  });

  it('take over when the leader goes', async () => {
    const one = node('one');
    await rotated(await dueKey());
    node('two');
    await one.close();
    await rotated(await dueKey());
    expect(await leader()).toBe('two');
  });

  it('give user keys a cadence that was enforced after they were made', async () => {
    const user_id = await keys.addUser('member', 'member');
    const { id } = await keys.makeKey([], { user_id }, 'workspace/user');
    await keys.settings({ user_api_key_rotation_period: 30 });
    node('one');
    await vi.waitFor(
      async () => expect((await keys.row(id)).rotation_policy).toMatchObject({ rotation_period_days: 30 }),
      { timeout: 10_000, interval: 10 },
    );
  });
});
