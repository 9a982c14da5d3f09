/** Rate-limits policies: what a body may say, what is answered, who sees it. On both engines. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AdminHarness, type Answer, emptyTables, startAdmin } from '../../../test/support/admin.ts';

const UUID = '0190c3c4-7e1a-7000-8000-000000000000';

describe.each(['sqlite', 'postgres'] as const)('rate-limits policies on %s', (engine) => {
  let admin: AdminHarness;

  beforeAll(async () => {
    admin = await startAdmin(await emptyTables(engine));
  });

  afterAll(async () => {
    await admin?.close();
    await admin?.tables.close();
  });

  const valid = () => ({
    name: 'Per user',
    conditions: [{ key: 'metadata._user', value: '*' }],
    group_by: [{ key: 'metadata._user' }],
    type: 'requests',
    unit: 'rpm',
    value: 100,
    workspace_id: admin.a.workspace_id,
  });
  const create = (body: object, version = 'v1') =>
    admin.call('POST', `/${version}/policies/rate-limits`, { body: { ...valid(), ...body } });
  const made = async (body: object = {}) => {
    const answer = await create(body);
    expect(answer.status, answer.text).toBe(200);
    return String(answer.body.id);
  };
  const read = (id: string, query = '') => admin.call('GET', `/v1/policies/rate-limits/${id}${query}`);
  const update = (id: string, body: object) => admin.call('PUT', `/v1/policies/rate-limits/${id}`, { body });
  const list = async (query = '') => {
    const answer = await admin.call('GET', `/v1/policies/rate-limits${query}`);
    expect(answer.status, answer.text).toBe(200);
    return answer.body as { total: number; data: Record<string, unknown>[] };
  };
  const refused = (answer: Answer, param: string | null, status = 400, code = 'AB01') => {
    expect([answer.status, answer.body.error?.code, answer.body.error?.param], answer.text).toEqual([
      status,
      code,
      param,
    ]);
  };

  it.each(['v1', 'v2'])('a policy is made, read, changed and archived under /%s', async (version) => {
    const created = await create({ description: 'For everybody' }, version);
    expect([created.status, created.body]).toEqual([200, { id: expect.any(String), object: 'policy_rate_limits' }]);
    const path = `/${version}/policies/rate-limits/${created.body.id}`;
    const stored = await admin.call('GET', path);
    const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/);
    expect(stored.body).toEqual({
      ...valid(),
      id: created.body.id,
      description: 'For everybody',
      target: 'llm',
      status: 'active',
      organisation_id: admin.a.organisation_id,
      created_at: time,
      last_updated_at: time,
      object: 'policy_rate_limits',
    });
    const body = { value: 5, unit: 'rpw', name: null, conditions: [{ key: 'provider', excludes: ['openai'] }] };
    const changed = await admin.call('PUT', path, { body });
    expect([changed.status, changed.body]).toEqual([200, {}]);
    expect((await admin.call('GET', path)).body).toMatchObject({
      ...body,
      type: 'requests',
      description: 'For everybody',
    });
    const removed = await admin.call('DELETE', path);
    expect([removed.status, removed.body]).toEqual([200, {}]);
    refused(await admin.call('GET', path), null, 404, 'AB08');
    refused(await admin.call('PUT', path, { body }), null, 404, 'AB08');
    refused(await admin.call('DELETE', path), null, 404, 'AB08');
    expect((await admin.call('GET', `${path}?status=archived`)).body).toMatchObject({ status: 'archived', value: 5 });
  });

  it.each<[string, object, string | null]>([
    ['name empty', { name: '' }, 'name'],
    ['name too long', { name: 'x'.repeat(256) }, 'name'],
    ['name of another type', { name: 5 }, 'name'],
    ['description too long', { description: 'x'.repeat(501) }, 'description'],
    ['target unknown', { target: 'agents' }, 'target'],
    ['target null', { target: null }, 'target'],
    ['conditions missing', { conditions: undefined }, 'conditions'],
    ['conditions empty', { conditions: [] }, 'conditions'],
    ['conditions null', { conditions: null }, 'conditions'],
    ['conditions of another type', { conditions: { key: 'api_key', value: '*' } }, 'conditions'],
    [
      'too many conditions',
      { conditions: Array.from({ length: 21 }, (_, i) => ({ key: `metadata.m${i}`, value: 'a' })) },
      'conditions',
    ],
    ['a condition without key', { conditions: [{ value: '*' }] }, 'conditions[0].key'],
    ['a condition without value', { conditions: [{ key: 'api_key' }] }, 'conditions[0].value'],
    ['a condition with null', { conditions: [{ key: 'api_key', value: null }] }, 'conditions[0].value'],
    ['a number as value', { conditions: [{ key: 'provider', value: 5 }] }, 'conditions[0].value'],
    ['an empty value', { conditions: [{ key: 'provider', value: '' }] }, 'conditions[0].value'],
    ['no values', { conditions: [{ key: 'provider', value: [] }] }, 'conditions[0].value'],
    ['an unknown field', { conditions: [{ key: 'provider', value: '*', operator: 'not' }] }, 'conditions[0].operator'],
    ['an unknown key', { conditions: [{ key: 'colour', value: 'red' }] }, 'conditions[0].key'],
    ['metadata without name', { conditions: [{ key: 'metadata.', value: 'x' }] }, 'conditions[0].key'],
    ['organisation_id', { conditions: [{ key: 'organisation_id', value: UUID }] }, 'conditions[0].key'],
    ['an MCP key for llm', { conditions: [{ key: 'mcp_tool', value: 'x' }] }, 'conditions[0].key'],
    ['an llm key for MCP', { target: 'mcp_tools', conditions: [{ key: 'model', value: '*' }] }, 'conditions[0].key'],
    [
      'a key twice',
      {
        conditions: [
          { key: 'provider', value: 'a' },
          { key: 'api_key', value: '*' },
          { key: 'provider', value: 'b' },
        ],
      },
      'conditions[2].key',
    ],
    ['a masked API key', { conditions: [{ key: 'api_key', value: 'slc_***' }] }, 'conditions[0].value'],
    ['an API key among others', { conditions: [{ key: 'api_key', value: [UUID, 'x'] }] }, 'conditions[0].value[1]'],
    ['an unknown endpoint type', { conditions: [{ key: 'endpoint_type', value: 'chat' }] }, 'conditions[0].value'],
    [
      'an excluded unknown endpoint type',
      { conditions: [{ key: 'endpoint_type', value: '*', excludes: ['embed', 'chat'] }] },
      'conditions[0].excludes[1]',
    ],
    ['a wildcard within a model', { conditions: [{ key: 'model', value: '@openai/gpt-*' }] }, 'conditions[0].value'],
    ['a model of no provider', { conditions: [{ key: 'model', value: '@/gpt-4o' }] }, 'conditions[0].value'],
    ['group_by missing', { group_by: undefined }, 'group_by'],
    ['group_by empty', { group_by: [] }, 'group_by'],
    ['group_by a text', { group_by: 'api_key' }, 'group_by'],
    ['group_by unknown', { group_by: [{ key: 'colour' }] }, 'group_by[0].key'],
    ['group_by twice', { group_by: [{ key: 'api_key' }, { key: 'api_key' }] }, 'group_by[1].key'],
    ['group_by of MCP for llm', { group_by: [{ key: 'mcp_server' }] }, 'group_by[0].key'],
    ['group_by with a value', { group_by: [{ key: 'api_key', value: '*' }] }, 'group_by[0].value'],
    ['type missing', { type: undefined }, 'type'],
    ['type cost', { type: 'cost' }, 'type'],
    ['unit missing', { unit: undefined }, 'unit'],
    ['unit rps', { unit: 'rps' }, 'unit'],
    ['unit tpd', { unit: 'tpd' }, 'unit'],
    ['value missing', { value: undefined }, 'value'],
    ['value 0', { value: 0 }, 'value'],
    ['value negative', { value: -1 }, 'value'],
    ['value with a fraction', { value: 1.5 }, 'value'],
    ['value a text', { value: '5' }, 'value'],
    ['value beyond 2^53', { value: 2 ** 53 }, 'value'],
    ['status', { status: 'active' }, 'status'],
    ['an unknown field of the body', { credit_limit: 5 }, 'credit_limit'],
    ['no workspace', { workspace_id: undefined }, 'workspace_id'],
    ['workspace null', { workspace_id: null }, 'workspace_id'],
    ['an organisation that is no UUID', { organisation_id: 'alpha' }, 'organisation_id'],
  ])('%s is refused and nothing is stored', async (_, body, param) => {
    const { total } = await list();
    refused(await create(body), param);
    expect((await list()).total).toBe(total);
  });

  it('a foreign workspace is one that does not exist', async () => {
    const foreign = await create({ workspace_id: admin.b.workspace_id });
    const missing = await create({ workspace_id: 'ws-nowhere' });
    expect([foreign.status, foreign.body.error.code]).toEqual([missing.status, missing.body.error.code]);
    expect(foreign.status).toBeGreaterThanOrEqual(400);
  });

  it.each<[string, object]>([
    [
      'every llm key',
      {
        conditions: [
          { key: 'api_key', value: [UUID.toUpperCase(), '*'] },
          { key: 'workspace_id', value: 'ws-x' },
          { key: 'metadata.a.b', value: 'x', excludes: 'y' },
          { key: 'virtual_key', value: 'openai-prod' },
          { key: 'provider', value: ['openai', 'groq'] },
          { key: 'config', value: 'pc-x' },
          { key: 'prompt', value: 'pp-x' },
          { key: 'model', value: ['@openai/*', '@openai/gpt-4o', 'gpt-4o', '@together/meta/llama'] },
          { key: 'endpoint_type', value: ['chatComplete', 'embed', 'imageGenerate', 'realtime'] },
        ],
        group_by: [
          'api_key',
          'workspace_id',
          'metadata.a',
          'virtual_key',
          'provider',
          'config',
          'prompt',
          'model',
          'endpoint_type',
        ].map((key) => ({ key })),
      },
    ],
    [
      'every MCP key',
      {
        target: 'mcp_tools',
        conditions: [
          { key: 'api_key', value: '*' },
          { key: 'workspace_id', value: '*' },
          { key: 'metadata._user', value: 'alice' },
          { key: 'mcp_server', value: 'github' },
          { key: 'mcp_tool', value: ['search', 'create_issue'] },
        ],
        group_by: ['api_key', 'workspace_id', 'metadata._user', 'mcp_server', 'mcp_tool'].map((key) => ({ key })),
      },
    ],
    ['no name', { name: undefined }],
    ['null where it may stand', { name: null, description: null }],
    ['the largest value', { value: 2 ** 53 - 1, type: 'tokens', unit: 'rpd' }],
  ])('%s is stored as it was sent', async (_, body) => {
    const id = await made(body);
    const sent = JSON.parse(JSON.stringify({ ...valid(), ...body, ...('name' in body ? { name: null } : {}) }));
    expect((await read(id)).body).toMatchObject(sent);
  });

  it.each<[string, object, string | null]>([
    ['nothing', {}, null],
    ['type', { type: 'tokens' }, 'type'],
    ['target', { target: 'mcp_tools' }, 'target'],
    ['the target it has', { target: 'llm' }, 'target'],
    ['group_by', { group_by: [{ key: 'api_key' }] }, 'group_by'],
    ['status', { status: 'archived' }, 'status'],
    ['conditions empty', { conditions: [] }, 'conditions'],
    ['conditions of the other target', { conditions: [{ key: 'mcp_server', value: '*' }] }, 'conditions[0].key'],
    ['unit null', { unit: null }, 'unit'],
    ['value 0', { value: 0, name: 'changed' }, 'value'],
  ])('an update with %s is refused and changes nothing', async (_, body, param) => {
    const id = await made();
    const before = (await read(id)).body;
    refused(await update(id, body), param);
    expect((await read(id)).body).toEqual(before);
  });

  it('the workspace of a policy cannot be changed', async () => {
    const id = await made();
    refused(await update(id, { workspace_id: admin.a.workspace_id }), 'workspace_id');
  });

  it('lists by target, type, unit, status and name; archived ones only when asked for', async () => {
    const tag = `list ${engine}`;
    const ids = {
      llm: await made({ name: `${tag} llm` }),
      tokens: await made({ name: `${tag} tokens`, type: 'tokens', unit: 'rph' }),
      mcp: await made({
        name: `${tag} mcp`,
        target: 'mcp_tools',
        conditions: [{ key: 'mcp_tool', value: '*' }],
        group_by: [{ key: 'mcp_tool' }],
      }),
      gone: await made({ name: `${tag} gone` }),
    };
    await admin.call('DELETE', `/v1/policies/rate-limits/${ids.gone}`);
    const named = async (query: string) =>
      (await list(`?search=${encodeURIComponent(tag)}&${query}`)).data.map((row) => row.id).sort();
    const sorted = (...of: string[]) => of.sort();
    expect(await named('')).toEqual(sorted(ids.llm, ids.tokens, ids.mcp));
    expect(await named('target=llm')).toEqual(sorted(ids.llm, ids.tokens));
    expect(await named('target=mcp_tools')).toEqual([ids.mcp]);
    expect(await named('type=tokens')).toEqual([ids.tokens]);
    expect(await named('unit=rph')).toEqual([ids.tokens]);
    expect(await named('status=archived')).toEqual([ids.gone]);
    expect(await named('status=active&type=requests&target=llm&unit=rpm')).toEqual([ids.llm]);
    expect(await named(`workspace_id=${admin.a.workspace_id}&page_size=2&current_page=1`)).toHaveLength(1);
    refused(await admin.call('GET', '/v1/policies/rate-limits?target=agents'), 'target');
    refused(await admin.call('GET', '/v1/policies/rate-limits?status=all'), 'status');
    refused(await admin.call('GET', '/v1/policies/rate-limits?page_size=101'), 'page_size');
    refused(await admin.call('GET', '/v1/policies/rate-limits?colour=red'), 'colour');
  });

  it('another organisation neither sees nor changes a policy', async () => {
    const id = await made({ name: 'Mine' });
    const key = admin.b.admin_api_key;
    const path = `/v1/policies/rate-limits/${id}`;
    refused(await admin.call('GET', path, { key }), null, 404, 'AB08');
    refused(await admin.call('PUT', path, { key, body: { value: 1 } }), null, 404, 'AB08');
    refused(await admin.call('DELETE', path, { key }), null, 404, 'AB08');
    const theirs = await admin.call('GET', '/v1/policies/rate-limits', { key });
    expect(theirs.body).toMatchObject({ total: 0, data: [] });
    expect((await read(id)).body).toMatchObject({ name: 'Mine', value: 100 });
  });
});
