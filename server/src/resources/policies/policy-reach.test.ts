/** How many policies of one kind may concern one request, as it is told to those who save them. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AdminHarness, emptyTables, startAdmin } from '../../../test/support/admin.ts';
import { ratePolicyRow, usagePolicyRow } from '../../../test/support/policies.ts';

const RATE = { type: 'requests', unit: 'rpm', value: 100, target: 'llm' };
const USAGE = { type: 'tokens', credit_limit: 100 };
const EVERYONE = [{ key: 'metadata._user', value: '*' }];
const GROUP = [{ key: 'metadata._user' }];

describe.each([
  ['rate-limits', 'rate_policies', RATE],
  ['usage-limits', 'usage_policies', USAGE],
] as const)('policies of %s', (path, table, body) => {
  let admin: AdminHarness;
  beforeAll(async () => {
    admin = await startAdmin(await emptyTables('sqlite'));
    await admin.tables.systemWrite(async (tx) => {
      for (let i = 0; i < 199; i++) {
        if (table === 'rate_policies') await tx.insert(table, ratePolicyRow(admin.a, `every-${i}`, EVERYONE));
        else await tx.insert(table, usagePolicyRow(admin.a, `every-${i}`, EVERYONE));
      }
    });
  });
  afterAll(async () => {
    await admin.close();
    await admin.tables.close();
  });

  const url = `/v1/policies/${path}`;
  const make = (conditions: object[]) =>
    admin.call('POST', url, { body: { ...body, conditions, group_by: GROUP, workspace_id: admin.a.workspace_id } });

  it('200 may apply to one request; one more is refused, which says how many and what to do', async () => {
    expect((await make(EVERYONE)).status).toBe(200);
    const { status, body: answer } = await make(EVERYONE);
    expect([status, answer.error.param]).toEqual([400, 'conditions']);
    expect(answer.error.message).toContain('would let 201 policies of the workspace apply to one request; at most 200');
  });

  it('the same holds for a change that lets one apply to more requests', async () => {
    const key = [{ key: 'api_key', value: '0190c3c4-7e1a-7000-8000-000000000001' }];
    const narrow = await make(key);
    expect([narrow.status, narrow.body.error?.param]).toEqual([400, 'conditions']);
    const { body: list } = await admin.call('GET', `${url}?page_size=1`);
    const id = String(list.data[0].id);
    expect((await admin.call('PUT', `${url}/${id}`, { body: { conditions: key } })).status).toBe(200);
    expect((await make(EVERYONE)).status).toBe(400);
    expect((await admin.call('DELETE', `${url}/${id}`)).status).toBe(200);
    expect((await make(EVERYONE)).status).toBe(200);
  });
});

describe('policies that share no request', () => {
  it('may be as many as there are keys', async () => {
    const admin = await startAdmin(await emptyTables('sqlite'));
    const keyOf = (i: number) => `0190c3c4-7e1a-7000-8000-${String(i).padStart(12, '0')}`;
    await admin.tables.systemWrite(async (tx) => {
      for (let i = 0; i < 400; i++) {
        await tx.insert('usage_policies', usagePolicyRow(admin.a, `p-${i}`, [{ key: 'api_key', value: keyOf(i) }]));
      }
    });
    const conditions = [{ key: 'api_key', value: keyOf(7) }];
    const { status, text } = await admin.call('POST', '/v1/policies/usage-limits', {
      body: { ...USAGE, conditions, group_by: GROUP, workspace_id: admin.a.workspace_id },
    });
    expect(status, text).toBe(200);
    await admin.close();
    await admin.tables.close();
  });
});
