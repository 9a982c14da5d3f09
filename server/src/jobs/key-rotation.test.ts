import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { plainVault } from '../../test/support/admin.ts';
import { type KeyHarness, startKeys } from '../../test/support/api-keys.ts';
import { systemClock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import { silentLog } from '../kernel/log.ts';
import { apiKeyRow, organisationRow, workspaceRow } from '../store/conformance/rows.ts';
import type { SystemTx, Tables, TenantTx } from '../store/ports.ts';
import { enforceRotation, startKeyRotation } from './key-rotation.ts';

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

  it('ask for 1,000 organisations in a dozen statements, and reach the last one that enforces a cadence', async () => {
    const ids = Array.from({ length: 1_000 }, (_, n) => `zz-${String(n).padStart(4, '0')}`);
    await keys.tables.systemWrite(async (tx) => {
      for (const id of ids) {
        await tx.insert('organisations', { ...organisationRow(id), settings: { block_inline_config: false } });
        await tx.insert('workspaces', workspaceRow(id, `w-${id}`));
      }
      const settings = { block_inline_config: false, user_api_key_rotation_period: 30 };
      await tx.update('organisations', { id: 'zz-0999' }, { settings });
      await tx.insert('api_keys', {
        ...apiKeyRow('zz-0999', 'key-last'),
        workspace_id: 'w-zz-0999',
        type: 'workspace-user',
      });
    });
    let statements = 0;
    const counting = <T extends TenantTx | SystemTx>(tx: T): T => ({
      ...tx,
      list: (...asked: Parameters<SystemTx['list']>) => {
        statements += 1;
        return (tx as SystemTx).list(...asked);
      },
    });
    const { tables } = keys;
    const counted: Pick<Tables, 'read' | 'write' | 'systemRead'> = {
      write: tables.write.bind(tables),
      read: (tenant, run) => tables.read(tenant, (tx) => run(counting(tx))),
      systemRead: (run) => tables.systemRead((tx) => run(counting(tx))),
    };
    await enforceRotation({ tables: counted as Tables, clock: systemClock, log: silentLog, macs: plainVault });
    expect((await keys.row('key-last')).rotation_policy).toMatchObject({ rotation_period_days: 30 });
    expect(statements).toBeGreaterThan(0);
    expect(statements).toBeLessThanOrEqual(13);
  });
});
