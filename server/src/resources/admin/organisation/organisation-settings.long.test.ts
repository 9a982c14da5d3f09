/** The settings and the default guardrails of an organisation, on both stores. */
import { describe, expect, it } from 'vitest';
import { ok, onBothStores, refused } from '../../../../test/support/accounts.ts';
import { emptyTables, startAdmin } from '../../../../test/support/admin.ts';
import { systemTenant } from '../../../auth/tenant.ts';
import type { GuardrailName } from '../../guardrails/rules.ts';
import type { AnyAction } from '../../resource.ts';
import { organisationDefaults } from './defaults.ts';

const SETTINGS = '/admin/organisation/settings';
const B = '00000000-0000-7000-8000-00000000000b';

/** What an organisation of the operator has before anybody changed a thing. */
const UNTOUCHED = {
  object: 'organisation-settings',
  user_api_key_auto_create: false,
  default_workspace_user_api_key_auto_create: false,
  group_based_user_provisioning: false,
  user_api_key_auto_create_scopes: null,
  user_api_key_rotation_period: null,
  user_api_key_ttl: 0,
  user_api_key_max_ttl: 0,
  user_api_key_count: -1,
  user_key_metadata: 0,
  user_key_metadata_override: 0,
  debug_log: 0,
  debug_log_sample: 1,
  bodies_days: null,
  session_settings: { max_session_ttl: null },
  auth_settings: { disable_auto_provision_user: false, disable_link_sign_in: false },
  export_settings: { deniedFields: [] },
  data_plane_security_settings: { block_inline_config: true },
  metadata_schemas: { api_key: null, workspace: null },
  ai_gateway_url: null,
  mcp_gateway_url: null,
  cache_max_age: null,
};

onBothStores((on) => {
  const get = async () => ok(await on.get(SETTINGS));
  const put = async (body: unknown) => ok(await on.put(SETTINGS, body));

  describe('the settings of an organisation', () => {
    it('begin with the documented defaults, all of them shown', async () => {
      const other = (await on.get(SETTINGS, on.api.b.admin_api_key)).body;
      expect(other).toMatchObject({ ...UNTOUCHED, organisation_id: on.api.b.organisation_id });
      const off = Object.entries(other.security_settings).filter(([, value]) => value !== true);
      expect(Object.keys(other.security_settings)).toHaveLength(35);
      expect(off.map(([key]) => key).sort()).toEqual([
        'membersWriteConfigs',
        'membersWriteGuardrails',
        'membersWritePrompts',
      ]);
      expect(other.workspace_overrides).toEqual(
        Object.fromEntries(
          [
            ...['logs', 'data_visibility', 'analytics', 'api_keys', 'configs', 'prompts', 'guardrails', 'providers'],
            ...['integrations', 'workspace', 'export_settings', 'data_plane_security_settings'],
          ].map((category) => [category, false]),
        ),
      );
    });

    it('change field by field: what is left out stays, also inside a section, and null goes back', async () => {
      expect(
        await put({
          user_api_key_ttl: 3_600,
          user_api_key_count: 5,
          debug_log: 1,
          security_settings: { membersViewLogs: false, membersWriteConfigs: true },
          session_settings: { max_session_ttl: 900 },
          auth_settings: { disable_auto_provision_user: true, disable_link_sign_in: true },
          export_settings: { deniedFields: ['request', 'response'] },
        }),
      ).toEqual({});
      await put({ auth_settings: { disable_link_sign_in: null } });
      await put({ security_settings: { membersViewAnalytics: false, membersViewLogs: null }, user_api_key_count: -1 });
      expect(await get()).toMatchObject({
        user_api_key_ttl: 3_600,
        user_api_key_count: -1,
        debug_log: 1,
        security_settings: { membersViewLogs: true, membersWriteConfigs: true, membersViewAnalytics: false },
        session_settings: { max_session_ttl: 900 },
        auth_settings: { disable_auto_provision_user: true, disable_link_sign_in: false },
        export_settings: { deniedFields: ['request', 'response'] },
      });
      await put({
        user_api_key_ttl: null,
        user_api_key_count: null,
        debug_log: null,
        security_settings: null,
        session_settings: { max_session_ttl: null },
        auth_settings: null,
        export_settings: null,
      });
      expect(await get()).toMatchObject(UNTOUCHED);
      expect((await get()).security_settings).toMatchObject({ membersWriteConfigs: false, membersViewAnalytics: true });
    });

    it('an empty change is a change of nothing', async () => {
      const before = await get();
      await put({});
      expect(await get()).toEqual(before);
    });

    it.each([
      ['weekly', 7],
      ['monthly', 30],
      [1, 1],
      [365, 365],
    ])('a rotation period of %s is stored as %s days', async (given, days) => {
      await put({ user_api_key_rotation_period: given });
      expect((await get()).user_api_key_rotation_period).toBe(days);
      await put({ user_api_key_rotation_period: null });
    });

    it.each([
      ['https://ai.example/', 'https://ai.example/v1', 'https://ai.example'],
      ['https://ai.example/v1', 'https://ai.example/v1', 'https://ai.example'],
      ['https://ai.example/base/v1/', 'https://ai.example/base/v1', 'https://ai.example/base'],
    ])('the gateway URL %s is kept as %s and %s', async (given, ai, mcp) => {
      await put({ ai_gateway_url: given, mcp_gateway_url: given });
      expect(await get()).toMatchObject({ ai_gateway_url: ai, mcp_gateway_url: mcp });
      await put({ ai_gateway_url: null, mcp_gateway_url: null });
      expect(await get()).toMatchObject({ ai_gateway_url: null, mcp_gateway_url: null });
    });

    it('metadata schemas are kept whole and replaced whole', async () => {
      const team = { type: 'object', additionalProperties: true, properties: { team: { type: 'string' } } };
      const cost = { type: 'object', additionalProperties: true, required: ['cost'] };
      await put({ metadata_schemas: { api_key: team, workspace: team } });
      await put({ metadata_schemas: { api_key: cost } });
      expect((await get()).metadata_schemas).toEqual({ api_key: cost, workspace: team });
      await put({ metadata_schemas: { api_key: null } });
      expect((await get()).metadata_schemas).toEqual({ api_key: null, workspace: team });
      await put({ metadata_schemas: null });
    });

    const longPattern = 'a'.repeat(513);
    it.each<[string, unknown, string]>([
      ['an unknown key', { nope: 1 }, 'nope'],
      ['a workspace', { workspace_id: 'ws-second' }, 'workspace_id'],
      ['auto_create as text', { user_api_key_auto_create: 'true' }, 'user_api_key_auto_create'],
      ['auto_create as number', { user_api_key_auto_create: 1 }, 'user_api_key_auto_create'],
      ['scopes as text', { user_api_key_auto_create_scopes: 'logs.view' }, 'user_api_key_auto_create_scopes'],
      [
        'an unknown scope',
        { user_api_key_auto_create_scopes: ['logs.view', 'x.y'] },
        'user_api_key_auto_create_scopes[1]',
      ],
      [
        'an organisation scope',
        { user_api_key_auto_create_scopes: ['audit_logs.list'] },
        'user_api_key_auto_create_scopes[0]',
      ],
      [
        'a service-key scope',
        { user_api_key_auto_create_scopes: ['workspace_user_api_keys.create'] },
        'user_api_key_auto_create_scopes[0]',
      ],
      ['rotation of 0 days', { user_api_key_rotation_period: 0 }, 'user_api_key_rotation_period'],
      ['rotation of 366 days', { user_api_key_rotation_period: 366 }, 'user_api_key_rotation_period'],
      ['rotation of 1.5 days', { user_api_key_rotation_period: 1.5 }, 'user_api_key_rotation_period'],
      ['yearly rotation', { user_api_key_rotation_period: 'yearly' }, 'user_api_key_rotation_period'],
      ['a negative life', { user_api_key_ttl: -1 }, 'user_api_key_ttl'],
      ['a life as text', { user_api_key_max_ttl: '60' }, 'user_api_key_max_ttl'],
      ['a default life above the longest', { user_api_key_ttl: 61, user_api_key_max_ttl: 60 }, 'user_api_key_ttl'],
      ['no keys at all', { user_api_key_count: 0 }, 'user_api_key_count'],
      ['fewer than unlimited', { user_api_key_count: -2 }, 'user_api_key_count'],
      ['a flag of 2', { debug_log: 2 }, 'debug_log'],
      ['a flag as boolean', { user_key_metadata: true }, 'user_key_metadata'],
      ['an unknown switch', { security_settings: { membersFly: true } }, 'security_settings.membersFly'],
      ['a switch as number', { security_settings: { membersViewLogs: 0 } }, 'security_settings.membersViewLogs'],
      ['an unknown category', { workspace_overrides: { billing: true } }, 'workspace_overrides.billing'],
      ['a category as text', { workspace_overrides: { logs: 'yes' } }, 'workspace_overrides.logs'],
      ['a category of null', { workspace_overrides: { logs: null } }, 'workspace_overrides.logs'],
      ['a session of 899 seconds', { session_settings: { max_session_ttl: 899 } }, 'session_settings.max_session_ttl'],
      [
        'a session of 900.5 seconds',
        { session_settings: { max_session_ttl: 900.5 } },
        'session_settings.max_session_ttl',
      ],
      ['an unknown session setting', { session_settings: { idle: 1 } }, 'session_settings.idle'],
      [
        'an unknown export field',
        { export_settings: { deniedFields: ['id', 'nope'] } },
        'export_settings.deniedFields[1]',
      ],
      [
        'is_success, which cannot be denied',
        { export_settings: { deniedFields: ['is_success'] } },
        'export_settings.deniedFields[0]',
      ],
      [
        'mode, which cannot be denied',
        { export_settings: { deniedFields: ['mode'] } },
        'export_settings.deniedFields[0]',
      ],
      ['an export field twice', { export_settings: { deniedFields: ['id', 'id'] } }, 'export_settings.deniedFields[1]'],
      [
        'saved-only mode of null',
        { data_plane_security_settings: { block_inline_config: null } },
        'data_plane_security_settings.block_inline_config',
      ],
      [
        'saved-only mode as text',
        { data_plane_security_settings: { block_inline_config: 'on' } },
        'data_plane_security_settings.block_inline_config',
      ],
      ['saved-only mode at the top', { block_inline_config: false }, 'block_inline_config'],
      ['a data plane of null', { data_plane_security_settings: null }, 'data_plane_security_settings'],
      [
        'a schema of another type',
        { metadata_schemas: { api_key: { type: 'array' } } },
        'metadata_schemas.api_key.type',
      ],
      [
        'a property that is no string',
        { metadata_schemas: { api_key: { type: 'object', properties: { a: { type: 'number' } } } } },
        'metadata_schemas.api_key.properties.a.type',
      ],
      [
        'a schema that closes',
        { metadata_schemas: { workspace: { type: 'object', additionalProperties: false } } },
        'metadata_schemas.workspace.additionalProperties',
      ],
      [
        'a pattern of 513 characters',
        {
          metadata_schemas: {
            workspace: { type: 'object', properties: { a: { type: 'string', pattern: longPattern } } },
          },
        },
        'metadata_schemas.workspace.properties.a.pattern',
      ],
      ['a gateway URL that may not be called', { ai_gateway_url: 'http://ai.example' }, 'ai_gateway_url'],
      ['an empty gateway URL', { mcp_gateway_url: '' }, 'mcp_gateway_url'],
      ['a cache age of 59 seconds', { cache_max_age: 59 }, 'cache_max_age'],
      ['a cache age above the bound', { cache_max_age: 25_923_001 }, 'cache_max_age'],
      ['another key that nobody knows, beside a good one', { debug_log: 1, more: {} }, 'more'],
    ])('%s is refused and nothing is changed', async (_title, body, param) => {
      const before = await get();
      refused(await on.put(SETTINGS, body), 400, 'AB01', param);
      expect(await get()).toEqual(before);
    });

    it('a flag of 2 is answered with both values that would do', async () => {
      expect((await on.put(SETTINGS, { debug_log: 2 })).body.error.message).toBe('debug_log must be one of 0, 1.');
    });

    it('a default life is judged with the longest one that stands', async () => {
      await put({ user_api_key_ttl: 100, user_api_key_max_ttl: 100 });
      refused(await on.put(SETTINGS, { user_api_key_max_ttl: 99 }), 400, 'AB01', 'user_api_key_max_ttl');
      refused(await on.put(SETTINGS, { user_api_key_ttl: 101 }), 400, 'AB01', 'user_api_key_ttl');
      await put({ user_api_key_max_ttl: 0, user_api_key_ttl: 101 });
      await put({ user_api_key_ttl: null, user_api_key_max_ttl: null });
    });

    it('belong to one organisation: another one is 403 by name, and unmoved by what this one does', async () => {
      const other = on.api.b.organisation_id;
      refused(await on.get(`${SETTINGS}?organisation_id=${other}`), 403, 'AB03', 'organisation_id');
      refused(await on.put(SETTINGS, { organisation_id: other, debug_log: 1 }), 403, 'AB03', 'organisation_id');
      refused(await on.put(SETTINGS, { organisation_id: B, debug_log: 1 }), 403, 'AB03', 'organisation_id');
      await put({ organisation_id: on.api.a.organisation_id, debug_log: 1 });
      expect(ok(await on.get(SETTINGS, on.api.b.admin_api_key)).debug_log).toBe(0);
      await put({ debug_log: null });
    });

    it('are for organisation keys with the scope: a workspace key is 403', async () => {
      for (const answer of [await on.get(SETTINGS, on.mine), await on.put(SETTINGS, { debug_log: 1 }, on.mine)]) {
        expect([answer.status, answer.body.error.code]).toEqual([403, 'AB03']);
      }
    });

    it('are announced in the change feed, and the audit log has them before and after', async () => {
      const from = await on.api.tables.lastChange();
      await put({ cache_max_age: 600 });
      const changes = await on.api.tables.changesAfter(from, 10);
      expect(changes).toContainEqual(
        expect.objectContaining({ topic: 'organisations', workspaceId: null, entityId: on.api.a.organisation_id }),
      );
      const rows = await on.api.tables.read(systemTenant(on.api.a.organisation_id), (tx) =>
        tx.list('audit_log', { where: { resource_type: 'organisation settings' }, orderBy: [['timestamp', 'desc']] }),
      );
      const row = rows.find(({ after }) => after?.includes('"cache_max_age":600'));
      expect(row).toMatchObject({ action: 'update', resource_id: on.api.a.organisation_id, response_status_code: 200 });
      expect(row?.before).toContain('"cache_max_age":null');
      await put({ cache_max_age: null });
    });
  });

  describe('opening a category to the workspaces', () => {
    const security = async (id: string) => {
      const row = await on.api.tables.systemRead((tx) => tx.find('workspaces', { id }));
      return row?.security_settings;
    };

    it('copies the organisation’s own values of export_settings and the data plane to every workspace', async () => {
      await put({ export_settings: { deniedFields: ['request'] } });
      expect((await security(on.second.id))?.export_settings).toBeUndefined();
      await put({
        export_settings: { deniedFields: ['response', 'cost'] },
        data_plane_security_settings: { block_inline_config: false },
        workspace_overrides: { export_settings: true, data_plane_security_settings: true },
      });
      for (const id of [on.api.a.workspace_id, on.second.id]) {
        expect(await security(id)).toMatchObject({
          export_settings: { deniedFields: ['response', 'cost'] },
          data_plane_security_settings: { block_inline_config: false },
        });
      }
      // From then on a workspace has its own: what the organisation changes later is not copied again.
      await put({ export_settings: { deniedFields: [] } });
      expect(await security(on.second.id)).toMatchObject({ export_settings: { deniedFields: ['response', 'cost'] } });
      await put({ workspace_overrides: null, export_settings: null });
      await put({ workspace_overrides: { export_settings: true } });
      expect(await security(on.second.id)).not.toHaveProperty('export_settings');
      await put({ workspace_overrides: null, data_plane_security_settings: { block_inline_config: true } });
    });

    it('of switches copies nothing: a workspace keeps the organisation’s until it sets its own', async () => {
      const before = await security(on.second.id);
      await put({ security_settings: { membersViewLogs: false }, workspace_overrides: { logs: true } });
      expect(await security(on.second.id)).toEqual(before);
      await put({ security_settings: null, workspace_overrides: null });
    });

    it('leaves the workspaces of other organisations alone', async () => {
      const before = await security(on.api.b.workspace_id);
      await put({ workspace_overrides: { data_plane_security_settings: true } });
      await put({ workspace_overrides: null });
      expect(await security(on.api.b.workspace_id)).toEqual(before);
    });
  });

  describe('changes at the same time', () => {
    it('of different settings both stand, or one is told that it lost; nobody gets a 500', async () => {
      for (let round = 0; round < 10; round++) {
        const [ttl, count] = [1_000 + round, 10 + round];
        const answers = await Promise.all([
          on.put(SETTINGS, { user_api_key_ttl: ttl }),
          on.put(SETTINGS, { user_api_key_count: count }),
        ]);
        for (const { status } of answers) expect([200, 409, 503]).toContain(status);
        const now = await get();
        if (answers[0]?.status === 200) expect(now.user_api_key_ttl).toBe(ttl);
        if (answers[1]?.status === 200) expect(now.user_api_key_count).toBe(count);
      }
      await put({ user_api_key_ttl: null, user_api_key_count: null });
    });
  });
});

/** Guardrails as another resource would answer for them: two that may be defaults in Alpha, and three that may not. */
const GUARDRAILS = [
  { id: '00000000-0000-7000-8000-0000000000a1', slug: 'pii', target: 'llm', status: 'active', workspace: false },
  { id: '00000000-0000-7000-8000-0000000000a2', slug: 'words', target: 'llm', status: 'active', workspace: false },
  { id: '00000000-0000-7000-8000-0000000000a3', slug: 'tools', target: 'mcp', status: 'active', workspace: false },
  { id: '00000000-0000-7000-8000-0000000000a4', slug: 'off', target: 'llm', status: 'inactive', workspace: false },
  { id: '00000000-0000-7000-8000-0000000000a5', slug: 'local', target: 'llm', status: 'active', workspace: true },
];
const DEFAULTS = '/v1/stand-in/defaults';

describe.each(['sqlite', 'postgres'] as const)('default guardrails on %s', (engine) => {
  it('are named by id or slug, replaced list by list, emptied by [], and answered with id and slug', async () => {
    let gone = '';
    const rows: AnyAction[] = organisationDefaults({
      organisationGuardrails: async (_tx, names) =>
        GUARDRAILS.filter((guardrail) => guardrail.target === 'llm' && guardrail.status === 'active')
          .filter((guardrail) => !guardrail.workspace && guardrail.id !== gone)
          .filter(({ id, slug }) => names.includes(id) || names.includes(slug))
          .map(({ id, slug }): GuardrailName => ({ id, slug })),
    }).map((row) => ({ ...row, id: `stand-in.${row.id}`, path: '/stand-in/defaults' }));
    const api = await startAdmin(await emptyTables(engine), { rows });
    try {
      const [pii, words] = GUARDRAILS.map(({ id, slug }) => ({ id, slug }));
      const get = async () => ok(await api.call('GET', DEFAULTS));
      const put = (body: unknown) => api.call('PUT', DEFAULTS, { body });
      const empty = { object: 'organisation-defaults', input_guardrails: [], output_guardrails: [] };
      expect(await get()).toEqual(empty);
      expect(ok(await put({ input_guardrails: ['words', pii?.id], output_guardrails: ['pii'] }))).toEqual({
        ...empty,
        input_guardrails: [words, pii],
        output_guardrails: [pii],
      });
      expect(ok(await put({ input_guardrails: ['pii'] }))).toEqual({
        ...empty,
        input_guardrails: [pii],
        output_guardrails: [pii],
      });
      expect(ok(await put({ output_guardrails: [] }))).toEqual({ ...empty, input_guardrails: [pii] });
      const before = await get();
      for (const [title, body, param] of [
        ['unknown', { input_guardrails: ['pii', 'nope'] }, 'input_guardrails[1]'],
        ['for MCP', { output_guardrails: ['tools'] }, 'output_guardrails[0]'],
        ['inactive', { input_guardrails: ['off'] }, 'input_guardrails[0]'],
        ['of a workspace', { input_guardrails: [GUARDRAILS[4]?.id] }, 'input_guardrails[0]'],
        ['named twice', { input_guardrails: ['pii', pii?.id] }, 'input_guardrails[1]'],
        ['no list', { input_guardrails: 'pii' }, 'input_guardrails'],
        ['null', { input_guardrails: null }, 'input_guardrails'],
        ['no text', { output_guardrails: [1] }, 'output_guardrails[0]'],
        [
          'one good list beside one bad',
          { input_guardrails: ['words'], output_guardrails: ['nope'] },
          'output_guardrails[0]',
        ],
        ['an unknown key', { guardrails: [] }, 'guardrails'],
      ] as const) {
        refused(await put(body), 400, 'AB01', param);
        expect(await get(), title).toEqual(before);
      }
      // A guardrail that goes later is not shown any more, and the settings endpoint does not disturb the lists.
      ok(await api.call('PUT', `/v1${SETTINGS}`, { body: { debug_log: 1 } }));
      expect(await get()).toEqual(before);
      gone = pii?.id ?? '';
      expect(await get()).toEqual(empty);
      // The other organisation has lists of its own.
      gone = '';
      expect(ok(await api.call('GET', DEFAULTS, { key: api.b.admin_api_key }))).toEqual(empty);
      const foreign = await put({ organisation_id: api.b.organisation_id, input_guardrails: [] });
      refused(foreign, 403, 'AB03', 'organisation_id');
    } finally {
      await api.close();
    }
  });

  it('while no guardrails exist the lists are empty, and any name is refused', async () => {
    const api = await startAdmin(await emptyTables(engine));
    try {
      const path = '/v1/admin/organisation/defaults';
      const empty = { object: 'organisation-defaults', input_guardrails: [], output_guardrails: [] };
      expect(ok(await api.call('GET', path))).toEqual(empty);
      expect(ok(await api.call('PUT', path, { body: { input_guardrails: [], output_guardrails: [] } }))).toEqual(empty);
      refused(await api.call('PUT', path, { body: { input_guardrails: ['x'] } }), 400, 'AB01', 'input_guardrails[0]');
      const denied = await api.call('PUT', path, { body: {}, key: api.a.workspace_api_key });
      expect([denied.status, denied.body.error.code]).toEqual([403, 'AB03']);
    } finally {
      await api.close();
    }
  });
});
