/** Feedback, sums of hours and audit rows past their days, on both engines: what goes, what stays, and what can still be proven. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { booksStore, ORGANISATION } from '../../test/support/ledger-node.ts';
import { TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { appendAudit, systemEntry } from '../resources/audit-logs/chain.ts';
import { verifyAudit } from '../resources/audit-logs/verify.ts';
import { tenantRows } from '../store/conformance/rows.ts';
import { type Keyring, loadKeyring } from '../store/keyring.ts';
import type { Tables } from '../store/ports.ts';
import { forgetOld } from './retention.ts';

const DAY = 86_400_000;
const of = { organisation_id: ORGANISATION } as const;
const deed = { organisationId: ORGANISATION, workspaceId: null, action: 'update', resource: 'configs' } as const;

describe.each(['sqlite', 'postgres'] as const)('old records on %s', (engine) => {
  let clock: TestClock;
  let tables: Tables;
  let macs: Keyring;

  beforeAll(async () => {
    const masterKey = '3q2+7wABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhs=';
    macs = await loadKeyring({ masterKey, masterKeyFile: '/nowhere', create: false });
    clock = new TestClock(Date.UTC(2026, 10, 22));
    tables = await booksStore(engine, clock);
  });
  afterAll(async () => {
    await tables.close();
  });

  const write = (count: number) =>
    tables.systemWrite(async (tx) => {
      for (let i = 0; i < count; i++) {
        const entry = systemEntry(clock, { ...deed, resourceId: String(i), before: null, after: null });
        await appendAudit(tx, macs, entry);
      }
    });
  const keep = (auditDays: number, logDays = 0) => forgetOld({ tables, macs, log: silentLog, auditDays, logDays });
  const places = async () =>
    (await tables.systemRead((tx) => tx.list('audit_log', { where: of, orderBy: [['seq', 'asc']] }))).map(
      ({ seq }) => seq,
    );
  const verified = () => verifyAudit(tables, macs, ORGANISATION);

  it('audit rows go after their days, in steps, and the rest of the chain is proven from its first row on', async () => {
    await write(450);
    clock.jump(10 * DAY);
    await write(3);
    await keep(0);
    await keep(11);
    expect(await places()).toHaveLength(453);
    await keep(5);
    expect(await places()).toEqual([451, 452, 453]);
    expect(await verified()).toMatchObject({ begins: 451, rows: 453, unchained: 0, finding: null });
    clock.jump(10 * DAY);
    await keep(5);
    expect(await places()).toEqual([]);
    expect(await verified()).toMatchObject({ begins: 454, rows: 453, finding: null });
    await write(2);
    expect(await verified()).toMatchObject({ begins: 454, rows: 455, finding: null });
  });

  it('feedback goes with the request logs of its time, in steps, and stays where logs are kept for ever', async () => {
    const [workspace] = await tables.systemRead((tx) => tx.list('workspaces', { where: of }));
    const now = clock.now();
    await tables.systemWrite(async (tx) => {
      for (let i = 0; i < 520; i++) {
        const created_at = i < 510 ? now - 31 * DAY - i : now - i;
        const row = tenantRows(ORGANISATION, workspace?.id ?? '').feedback;
        await tx.insert('feedback', { ...row, id: `feedback-${i}`, created_at });
      }
    });
    const count = () => tables.systemRead((tx) => tx.count('feedback'));
    await keep(0, 0);
    expect(await count()).toBe(520);
    await keep(0, 30);
    expect(await count()).toBe(10);
  });

  it('rows that were cut off by hand, a changed anchor, none, and rows that came back are found', async () => {
    const anchor = await tables.systemRead((tx) => tx.find('audit_anchors', of));
    const [row] = await tables.systemRead((tx) => tx.list('audit_log', { where: { ...of, seq: 454 } }));
    if (anchor === undefined || row === undefined) throw new Error('nothing was removed');
    const finding = async (
      change: Parameters<Tables['systemWrite']>[0],
      undo: Parameters<Tables['systemWrite']>[0],
    ) => {
      await tables.systemWrite(change);
      const found = (await verified()).finding;
      await tables.systemWrite(undo);
      return found;
    };
    const back = (tx: Parameters<Parameters<Tables['systemWrite']>[0]>[0]) => tx.update('audit_anchors', of, anchor);
    const gone = { kind: 'gap', from: 454, to: 454 };
    expect(
      await finding(
        (tx) => tx.remove('audit_log', { ...of, seq: 454 }),
        (tx) => tx.insert('audit_log', row),
      ),
    ).toEqual(gone);
    expect(await finding((tx) => tx.update('audit_anchors', of, { seq: 454 }), back)).toEqual({
      kind: 'anchor',
      seq: 454,
    });
    const forged = `${row.hash}.${anchor.hash.split('.').at(-1)}`;
    expect(await finding((tx) => tx.update('audit_anchors', of, { seq: 454, hash: forged }), back)).toEqual({
      kind: 'anchor',
      seq: 454,
    });
    expect(
      await finding(
        (tx) => tx.remove('audit_anchors', of),
        (tx) => tx.insert('audit_anchors', anchor),
      ),
    ).toEqual({ kind: 'gap', from: 1, to: 453 });
    const extra = { ...row, id: 'extra', seq: 7 };
    const drop = (tx: Parameters<Parameters<Tables['systemWrite']>[0]>[0]) =>
      tx.remove('audit_log', { ...of, id: 'extra' });
    expect(await finding((tx) => tx.insert('audit_log', extra), drop)).toEqual({ kind: 'unchained', id: 'extra' });
    expect((await verified()).finding).toBeNull();
  });

  it('a row that was changed, as by giving it an older time, does not go: it and all behind it stay', async () => {
    await write(2);
    await tables.systemWrite((tx) => tx.update('audit_log', { ...of, seq: 455 }, { timestamp: 1 }));
    clock.jump(10 * DAY);
    await keep(5);
    expect(await places()).toEqual([455, 456, 457]);
    expect((await verified()).finding).toMatchObject({ kind: 'altered', seq: 455 });
  });

  it('sums of hours go after 400 days, or with the records where those stay longer', async () => {
    const hour = (days: number) => Math.floor((clock.now() - days * DAY) / 3_600_000);
    const sums = { requests: 1, errors: 0, refused: 0, unpriced: 0, cost_micros: 5, saved_micros: 0 };
    const rest = { tokens_in: 1, tokens_out: 1, latency_sum_us: 9, organisation_id: 'o', workspace_id: 'w' };
    await tables.systemWrite(async (tx) => {
      for (let i = 0; i < 520; i++) {
        await tx.insert('log_hours', {
          ...sums,
          ...rest,
          hour: i < 510 ? hour(401) - i : hour(399) + i,
          source: 'llm',
        });
      }
    });
    const count = () => tables.systemRead((tx) => tx.count('log_hours'));
    await keep(0, 500);
    expect(await count()).toBe(520);
    await keep(0, 30);
    expect(await count()).toBe(10);
  });
});
