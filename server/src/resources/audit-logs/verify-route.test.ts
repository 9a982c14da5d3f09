/** `POST /audit-logs/verify`: an organisation asks whether its log is what was written. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AdminHarness, emptyTables, plainVault, startAdmin } from '../../../test/support/admin.ts';
import type { Tables } from '../../store/ports.ts';
import { auditCheck } from './verify.ts';

describe('verifying the audit log by a call', () => {
  let admin: AdminHarness;
  beforeAll(async () => {
    admin = await startAdmin(await emptyTables('sqlite'));
    for (const name of ['one', 'two', 'three']) {
      const made = await admin.call('POST', '/v1/admin/workspaces', { body: { name } });
      expect(made.status).toBe(200);
    }
  });
  afterAll(() => admin?.close());

  const verify = async (key?: string) => {
    const answer = await admin.call('POST', '/v1/audit-logs/verify', key === undefined ? {} : { key });
    return { status: answer.status, body: answer.body };
  };
  const rows = () =>
    admin.tables.systemRead((tx) =>
      tx.list('audit_log', { where: { organisation_id: admin.a.organisation_id }, orderBy: [['seq', 'asc']] }),
    );

  it('says that each row is what was written, with the hash of the last one, and adds no row', async () => {
    const before = await rows();
    expect(await verify()).toEqual({
      status: 200,
      body: {
        object: 'audit_verification',
        valid: true,
        first_seq: 1,
        last_seq: before.length,
        rows: before.length,
        unchained: 0,
        last_hash: before.at(-1)?.hash,
        finding: null,
      },
    });
    expect(await rows()).toHaveLength(before.length);
  });

  it('looks at the log of the caller’s organisation alone, and needs an organisation key with the right', async () => {
    const other = await verify(admin.b.admin_api_key);
    expect(other.body).toMatchObject({ valid: true, rows: 0, last_seq: 0, last_hash: null });
    expect((await verify(admin.a.workspace_api_key)).status).toBe(403);
  });

  it('follows one log at a time: another caller gets 429 meanwhile', async () => {
    const held = Promise.withResolvers<void>();
    const tables: Pick<Tables, 'systemRead'> = {
      systemRead: async (read) => {
        await held.promise;
        return admin.tables.systemRead(read);
      },
    };
    const check = auditCheck(tables, plainVault);
    const { signal } = new AbortController();
    const first = check(admin.a.organisation_id, signal);
    await expect(check(admin.b.organisation_id, signal)).rejects.toMatchObject({ kind: 'throttled' });
    held.resolve();
    expect(await first).toMatchObject({ finding: null });
    expect(await check(admin.b.organisation_id, signal)).toMatchObject({ finding: null });
  });

  it('names the first row that somebody with the database has changed', async () => {
    const [, second] = await rows();
    await admin.tables.systemWrite((tx) => tx.update('audit_log', { id: second?.id ?? '' }, { uri: '/v1/else' }));
    const { body } = await verify();
    expect(body).toMatchObject({
      valid: false,
      rows: 1,
      finding: { kind: 'altered', message: `row 2 (id ${second?.id}) is not what was written there.` },
    });
  });
});
