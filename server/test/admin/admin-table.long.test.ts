/**
 * The administration API's route table against a second one, written by hand and kept apart: who may
 * do what. A row that is added, removed, widened or narrowed in the code must be changed here too, on purpose.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildOpenApi } from '../../src/admin/openapi.ts';
import { operatorActions } from '../../src/admin/operator.ts';
import { type AdminRow, checkTable, expandAll, pathsOf } from '../../src/admin/route.ts';
import type { Principal, PrincipalKind } from '../../src/auth/principal.ts';
import { SCOPES, scopesOf } from '../../src/auth/scopes.ts';
import { SluiceError } from '../../src/kernel/errors.ts';
import { ACTIONS } from '../../src/resources/catalog.ts';
import { type AdminHarness, type Answer, emptyTables, startAdmin } from '../support/admin.ts';

const ID = '00000000-0000-7000-8000-000000000000';

/** Operation, method, path as declared, a path to call, and the scopes of which any one suffices (none: operator key). */
const TABLE: readonly (readonly [string, string, string, string, readonly string[]])[] = [
  ...[
    'requests',
    'cost',
    'latency',
    'tokens',
    'users',
    'users/requests',
    'errors',
    'errors/rate',
    'errors/stacks',
    'errors/status-codes',
    'requests/rescued',
    'cache/hit-rate',
    'cache/latency',
  ].map((graph) => {
    const path = `/analytics/graphs/${graph}`;
    return [`analytics.graphs.${graph.replace('/', '.')}`, 'GET', path, path, ['analytics.view']] as const;
  }),
  ...(
    [
      ['analytics', ['analytics.view']],
      ['logs', ['logs.list', 'logs.view']],
    ] as const
  ).flatMap(([area, scopes]) => [
    ...['users', 'ai-models', 'provider', 'workspaces'].map((by) => {
      const path = `/${area}/groups/${by}`;
      return [`${area}.groups.${by}`, 'GET', path, path, scopes] as const;
    }),
    [
      `${area}.groups.metadata`,
      'GET',
      `/${area}/groups/metadata/:metadataKey`,
      `/${area}/groups/metadata/_user`,
      scopes,
    ] as const,
    [`${area}.groups.by`, 'GET', `/${area}/groups/:groupBy`, `/${area}/groups/model`, scopes] as const,
    [`${area}.groups.values`, 'GET', `/${area}/metadata/:metadataKey`, `/${area}/metadata/_user`, scopes] as const,
  ]),
  ['analytics.summary.cache', 'GET', '/analytics/summary/cache', '/analytics/summary/cache', ['analytics.view']],
  ['analytics.what-if', 'POST', '/analytics/what-if', '/analytics/what-if', ['analytics.view']],
  ['logs.list', 'GET', '/logs', '/logs', ['logs.list', 'logs.view']],
  ['logs.insert', 'POST', '/logs', '/logs', ['logs.write']],
  ['logs.tail', 'GET', '/logs/tail', '/logs/tail', ['logs.list', 'logs.view']],
  ['logs.histogram', 'GET', '/logs/histogram', '/logs/histogram', ['logs.list', 'logs.view']],
  ['logs.read', 'GET', '/logs/:logId', `/logs/${ID}`, ['completions.write', 'logs.view', 'logs.write']],
  ...['feedbacks', 'feedbacks/scores', 'feedbacks/weighted', 'feedbacks/ai-models'].map((graph) => {
    const path = `/analytics/graphs/${graph}`;
    return [`analytics.graphs.${graph.replace('/', '.')}`, 'GET', path, path, ['analytics.view']] as const;
  }),
  ['api-keys.list', 'GET', '/api-keys', '/api-keys', all('list')],
  ['api-keys.read', 'GET', '/api-keys/:id', `/api-keys/${ID}`, all('read')],
  ['api-keys.update', 'PUT', '/api-keys/:id', `/api-keys/${ID}`, all('update')],
  ['api-keys.delete', 'DELETE', '/api-keys/:id', `/api-keys/${ID}`, all('delete')],
  [
    'api-keys.create',
    'POST',
    '/api-keys/:type/:subType',
    '/api-keys/organisation/service',
    ['organisation_service_api_keys.create'],
  ],
  [
    'api-keys.create',
    'POST',
    '/api-keys/:type/:subType',
    '/api-keys/workspace/service',
    ['workspace_service_api_keys.create'],
  ],
  [
    'api-keys.create',
    'POST',
    '/api-keys/:type/:subType',
    '/api-keys/workspace/user',
    ['workspace_user_api_keys.create'],
  ],
  ['api-keys.rotate', 'POST', '/api-keys/:id/rotate', `/api-keys/${ID}/rotate`, all('rotate')],
  ['audit-logs.list', 'GET', '/audit-logs', '/audit-logs', ['audit_logs.list']],
  ['batches.update', 'PUT', '/batches/:id', '/v2/batches/gw_batch_x', ['organisation_settings.update']],
  ['configs.list', 'GET', '/configs', '/configs', ['configs.list']],
  ['configs.create', 'POST', '/configs', '/configs', ['configs.create']],
  ['configs.read', 'GET', '/configs/:slug', '/configs/x', ['configs.read']],
  ['configs.update', 'PUT', '/configs/:slug', '/configs/x', ['configs.update']],
  ['configs.delete', 'DELETE', '/configs/:slug', '/configs/x', ['configs.delete']],
  ['configs.versions', 'GET', '/configs/:slug/versions', '/configs/x/versions', ['configs.read']],
  ['configs.version', 'GET', '/configs/:slug/versions/:versionId', `/configs/x/versions/${ID}`, ['configs.read']],
  [
    'configs.restore',
    'POST',
    '/configs/:slug/versions/:versionId/restore',
    `/configs/x/versions/${ID}/restore`,
    ['configs.update'],
  ],
  ['feedback.list', 'GET', '/feedback', '/feedback', ['feedbacks.read', 'logs.view']],
  ['feedback.create', 'POST', '/feedback', '/feedback', ['feedbacks.write', 'logs.write']],
  ['feedback.read', 'GET', '/feedback/:feedbackId', `/feedback/${ID}`, ['feedbacks.read', 'logs.view']],
  ['feedback.update', 'PUT', '/feedback/:feedbackId', `/feedback/${ID}`, ['feedbacks.write', 'logs.write']],
  ['deployments.list', 'GET', '/deployments', '/deployments', ['deployments.list']],
  ['deployments.create', 'POST', '/deployments', '/deployments', ['deployments.create']],
  ['deployments.read', 'GET', '/deployments/:id', `/deployments/${ID}`, ['deployments.read']],
  ['deployments.update', 'PUT', '/deployments/:id', `/deployments/${ID}`, ['deployments.update']],
  ['deployments.delete', 'DELETE', '/deployments/:id', `/deployments/${ID}`, ['deployments.delete']],
  ['deployments.ping', 'GET', '/deployments/:id/ping', `/deployments/${ID}/ping`, ['deployments.read']],
  [
    'deployments.verify-ping',
    'POST',
    '/deployments/:id/verify-ping',
    `/deployments/${ID}/verify-ping`,
    ['deployments.read'],
  ],
  ...(
    [
      ['list', 'GET', '', 'list'],
      ['create', 'POST', '', 'create'],
      ['read', 'GET', '/:guardrailId', 'read'],
      ['update', 'PUT', '/:guardrailId', 'update'],
      ['delete', 'DELETE', '/:guardrailId', 'delete'],
      ['mcp-servers.list', 'GET', '/:guardrailId/mcp-servers', 'read'],
      ['mcp-servers.replace', 'PUT', '/:guardrailId/mcp-servers', 'update'],
      ['mcp-servers.update', 'PUT', '/:guardrailId/mcp-servers/:mcpServerId', 'update'],
      ['mcp-servers.delete', 'DELETE', '/:guardrailId/mcp-servers/:mcpServerId', 'update'],
    ] as const
  ).map(
    ([operation, method, path, verb]) =>
      [
        `guardrails.${operation}`,
        method,
        `/guardrails${path}`,
        `/guardrails${path.replace(/:\w+/g, ID)}`,
        [`guardrails.${verb}`, `organisation_guardrails.${verb}`],
      ] as const,
  ),
  ['guardrails.invoke', 'POST', '/guardrails/:guardrailId/invoke', `/guardrails/${ID}/invoke`, ['guardrails.invoke']],
  ['integrations.list', 'GET', '/integrations', '/integrations', both('list')],
  ['integrations.create', 'POST', '/integrations', '/integrations', both('create')],
  ['integrations.read', 'GET', '/integrations/:slug', '/integrations/x', both('read')],
  ['integrations.update', 'PUT', '/integrations/:slug', '/integrations/x', both('update')],
  ['integrations.delete', 'DELETE', '/integrations/:slug', '/integrations/x', both('delete')],
  ['integrations.models', 'GET', '/integrations/:slug/models', '/integrations/x/models', both('read')],
  ['integrations.models.update', 'PUT', '/integrations/:slug/models', '/integrations/x/models', both('update')],
  ['integrations.models.delete', 'DELETE', '/integrations/:slug/models', '/integrations/x/models', both('update')],
  ['integrations.workspaces', 'GET', '/integrations/:slug/workspaces', '/integrations/x/workspaces', both('read')],
  [
    'integrations.workspaces.update',
    'PUT',
    '/integrations/:slug/workspaces',
    '/integrations/x/workspaces',
    ['organisation_integrations.update'],
  ],
  [
    'integrations.objects',
    'GET',
    '/integrations/:slug/objects',
    '/integrations/x/objects',
    ['organisation_integrations.read'],
  ],
  [
    'integrations.objects.adopt',
    'POST',
    '/integrations/:slug/objects/adopt',
    '/integrations/x/objects/adopt',
    ['organisation_integrations.update'],
  ],
  ['logs.decision', 'GET', '/logs/:logId/decision', `/logs/${ID}/decision`, ['logs.view']],
  ['invites.list', 'GET', '/admin/users/invites', '/admin/users/invites', ['organisation_users.list']],
  ['invites.read', 'GET', '/admin/users/invites/:inviteId', `/admin/users/invites/${ID}`, ['organisation_users.read']],
  ['invites.create', 'POST', '/admin/users/invites', '/admin/users/invites', ['organisation_users.create']],
  [
    'invites.delete',
    'DELETE',
    '/admin/users/invites/:inviteId',
    `/admin/users/invites/${ID}`,
    ['organisation_users.delete'],
  ],
  [
    'invites.resend',
    'POST',
    '/admin/users/invites/:inviteId/resend',
    `/admin/users/invites/${ID}/resend`,
    ['organisation_users.create'],
  ],
  ['operator.health', 'GET', '/operator/health', '/operator/health', []],
  ['operator.organisations.create', 'POST', '/operator/organisations', '/operator/organisations', []],
  ['operator.organisations.list', 'GET', '/operator/organisations', '/operator/organisations', []],
  ['operator.organisations.update', 'PUT', '/operator/organisations/:id', `/operator/organisations/${ID}`, []],
  ...(['defaults', 'settings'] as const).flatMap((part) => {
    const path = `/admin/organisation/${part}`;
    return [
      [`organisation.${part}.read`, 'GET', path, path, ['organisation_settings.read']],
      [`organisation.${part}.update`, 'PUT', path, path, ['organisation_settings.update']],
    ] as const;
  }),
  [
    'organisation.webhook_secret.create',
    'POST',
    '/admin/organisation/webhook-secret',
    '/admin/organisation/webhook-secret',
    ['organisation_settings.update'],
  ],
  [
    'policies.usage-limits.alerts',
    'GET',
    '/policies/usage-limits/:id/alerts',
    `/policies/usage-limits/${ID}/alerts`,
    ['policies.read'],
  ],
  ['policies.usage-limits.list', 'GET', '/policies/usage-limits', '/policies/usage-limits', ['policies.list']],
  ['policies.usage-limits.create', 'POST', '/policies/usage-limits', '/policies/usage-limits', ['policies.create']],
  [
    'policies.usage-limits.read',
    'GET',
    '/policies/usage-limits/:id',
    `/policies/usage-limits/${ID}`,
    ['policies.read'],
  ],
  [
    'policies.usage-limits.update',
    'PUT',
    '/policies/usage-limits/:id',
    `/policies/usage-limits/${ID}`,
    ['policies.update'],
  ],
  [
    'policies.usage-limits.delete',
    'DELETE',
    '/policies/usage-limits/:id',
    `/policies/usage-limits/${ID}`,
    ['policies.delete'],
  ],
  [
    'policies.usage-limits.entities',
    'GET',
    '/policies/usage-limits/:id/entities',
    `/policies/usage-limits/${ID}/entities`,
    ['policies.read'],
  ],
  [
    'policies.usage-limits.reset',
    'PUT',
    '/policies/usage-limits/:id/entities/:entityId/reset',
    `/policies/usage-limits/${ID}/entities/${ID}/reset`,
    ['policies.update'],
  ],
  ...(['usage', 'rate'] as const).map((kind) => {
    const path = `/policies/${kind}-limits/simulate`;
    return [`policies.${kind}-limits.simulate`, 'POST', path, path, ['policies.read']] as const;
  }),
  ['policies.rate-limits.list', 'GET', '/policies/rate-limits', '/policies/rate-limits', ['policies.list']],
  ['policies.rate-limits.create', 'POST', '/policies/rate-limits', '/policies/rate-limits', ['policies.create']],
  ['policies.rate-limits.read', 'GET', '/policies/rate-limits/:id', `/policies/rate-limits/${ID}`, ['policies.read']],
  [
    'policies.rate-limits.update',
    'PUT',
    '/policies/rate-limits/:id',
    `/policies/rate-limits/${ID}`,
    ['policies.update'],
  ],
  [
    'policies.rate-limits.delete',
    'DELETE',
    '/policies/rate-limits/:id',
    `/policies/rate-limits/${ID}`,
    ['policies.delete'],
  ],
  ['providers.list', 'GET', '/providers', '/providers', ['providers.list']],
  ['providers.create', 'POST', '/providers', '/providers', ['providers.create']],
  ['providers.models', 'GET', '/providers/models', '/providers/models', ['providers.list']],
  ['providers.read', 'GET', '/providers/:slug', '/providers/x', ['providers.read']],
  ['providers.update', 'PUT', '/providers/:slug', '/providers/x', ['providers.update']],
  ['providers.delete', 'DELETE', '/providers/:slug', '/providers/x', ['providers.delete']],
  ['users.list', 'GET', '/admin/users', '/admin/users', ['organisation_users.list']],
  ['users.read', 'GET', '/admin/users/:userId', `/admin/users/${ID}`, ['organisation_users.read']],
  ['utils.test-auth', 'GET', '/utils/test-auth', '/utils/test-auth', []],
  [
    'organisation-members.list',
    'GET',
    '/organisations/:organisationId/members',
    `/organisations/${ID}/members`,
    ['organisation_users.list'],
  ],
  ...(['sign-in-link', 'ownership'] as const).map(
    (deed) =>
      [
        `users.${deed}`,
        'POST',
        `/admin/users/:userId/${deed}`,
        `/admin/users/${ID}/${deed}`,
        ['organisation_users.update'],
      ] as const,
  ),
  ['users.update', 'PUT', '/admin/users/:userId', `/admin/users/${ID}`, ['organisation_users.update']],
  ['users.delete', 'DELETE', '/admin/users/:userId', `/admin/users/${ID}`, ['organisation_users.delete']],
  ['virtual_keys.list', 'GET', '/virtual-keys', '/virtual-keys', ['virtual_keys.list']],
  ['virtual_keys.create', 'POST', '/virtual-keys', '/virtual-keys', ['virtual_keys.create']],
  ['virtual_keys.read', 'GET', '/virtual-keys/:slug', '/virtual-keys/x', ['virtual_keys.read']],
  ['virtual_keys.update', 'PUT', '/virtual-keys/:slug', '/virtual-keys/x', ['virtual_keys.update']],
  ['virtual_keys.delete', 'DELETE', '/virtual-keys/:slug', '/virtual-keys/x', ['virtual_keys.delete']],
  ['virtual_keys.migrate', 'POST', '/virtual-keys/migrate', '/virtual-keys/migrate', ['virtual_keys.update']],
  ['workspaces.list', 'GET', '/admin/workspaces', '/admin/workspaces', ['workspaces.list']],
  ['workspaces.create', 'POST', '/admin/workspaces', '/admin/workspaces', ['workspaces.create']],
  ['workspaces.read', 'GET', '/admin/workspaces/:workspaceId', '/admin/workspaces/x', ['workspaces.read']],
  ['workspaces.update', 'PUT', '/admin/workspaces/:workspaceId', '/admin/workspaces/x', ['workspaces.update']],
  ['workspaces.delete', 'DELETE', '/admin/workspaces/:workspaceId', '/admin/workspaces/x', ['workspaces.delete']],
  ...(
    [
      ['list', 'GET', ''],
      ['create', 'POST', ''],
      ['read', 'GET', '/:userId'],
      ['update', 'PUT', '/:userId'],
      ['delete', 'DELETE', '/:userId'],
    ] as const
  ).map(
    ([verb, method, path]) =>
      [
        `workspace-users.${verb}`,
        method,
        `/admin/workspaces/:workspaceId/users${path}`,
        `/admin/workspaces/x/users${path.replace(':userId', ID)}`,
        [`workspace_users.${verb}`],
      ] as const,
  ),
  ...(['input', 'output'] as const).flatMap((direction) => {
    const path = `/workspace-exclusions/${direction}-guardrails`;
    return [
      [`workspace-exclusions.${direction}.list`, 'GET', path, path, ['organisation_exclusions.list']],
      [`workspace-exclusions.${direction}.update`, 'PUT', path, path, ['organisation_exclusions.update']],
    ] as const;
  }),
];

/** Paths beside `/v1` and `/v2` of the declared one. */
const ALIASES: Readonly<Record<string, readonly string[]>> = {
  ...each('integrations.models', ['', '.update', '.delete'], () => [
    '/v1/integrations/:slug/integration-models',
    '/v2/integrations/:slug/integration-models',
  ]),
  'analytics.graphs.cache.hit-rate': ['/v1/analytics/graphs/cache-hit-rate'],
  'analytics.graphs.cache.latency': ['/v1/analytics/graphs/cache-latency'],
  'analytics.graphs.errors.rate': ['/v1/analytics/graphs/errors-rate'],
  'analytics.graphs.errors.stacks': ['/v1/analytics/graphs/errors-stack'],
  'analytics.graphs.errors.status-codes': ['/v1/analytics/graphs/errors-status-code'],
  'analytics.graphs.feedbacks.scores': ['/v1/analytics/graphs/feedbacks/score'],
  'analytics.graphs.requests.rescued': ['/v1/analytics/graphs/requests-rescued'],
  'analytics.graphs.users.requests': ['/v1/analytics/graphs/users-requests'],
  'organisation-members.list': ['/v1/organisation/:organisationId/members', '/v2/organisation/:organisationId/members'],
  ...each('workspaces', ['.list', '.create'], () => ['/v2/workspaces']),
  ...each('workspaces', ['.read', '.update', '.delete'], () => ['/v2/workspaces/:workspaceId']),
  ...each('workspace-users', ['.list', '.create'], () => memberAliases('')),
  ...each('workspace-users', ['.read', '.update', '.delete'], () => memberAliases('/:userId')),
};

function each(resource: string, verbs: readonly string[], paths: () => string[]): Record<string, string[]> {
  return Object.fromEntries(verbs.map((verb) => [resource + verb, paths()]));
}

function memberAliases(path: string): string[] {
  const bases = ['/v1/admin/workspaces/:workspaceId/members', '/v2/admin/workspaces/:workspaceId/members'];
  return [...bases, '/v2/workspaces/:workspaceId/users', '/v2/workspaces/:workspaceId/members'].map(
    (base) => base + path,
  );
}

/** Rows that do not stand under both version prefixes. */
const PREFIXES: Readonly<Record<string, readonly ['/v1' | '/v2']>> = { 'batches.update': ['/v2'] };
const prefixesOf = (operation: string) => PREFIXES[operation] ?? (['/v1', '/v2'] as const);

function all(verb: string): string[] {
  return ['organisation_service', 'workspace_service', 'workspace_user'].map((type) => `${type}_api_keys.${verb}`);
}

function both(verb: string): string[] {
  return [`organisation_integrations.${verb}`, `workspace_integrations.${verb}`];
}

const rows: readonly AdminRow[] = [...ACTIONS, ...operatorActions(async () => ({}))];
const served = TABLE.flatMap(([operation, method, path]) =>
  [...prefixesOf(operation).map((prefix) => prefix + path), ...(ALIASES[operation] ?? [])].map(
    (full) => `${method} ${full} ${operation}`,
  ),
);
const unique = (list: readonly string[]) => [...new Set(list)].sort();

let admin: AdminHarness;
/** Principals by the token that a request presents: authentication has tests of its own. */
const principals = new Map<string, Principal>();

beforeAll(async () => {
  admin = await startAdmin(await emptyTables('sqlite'), {
    admin: {
      authenticator: {
        authenticate: (token) => {
          const principal = principals.get(token);
          if (!principal) throw new SluiceError('unauthenticated', 'The API key is not valid.');
          return principal;
        },
        invalidate: () => {},
      },
    },
  });
});

afterAll(async () => {
  await admin?.close();
});

const KINDS: readonly PrincipalKind[] = [
  'organisation-service',
  'workspace-service',
  'workspace-user',
  'user',
  'operator',
  'deployment',
];

function become(kind: PrincipalKind, scopes: Iterable<string>, role: Principal['role'] = null): string {
  const token = `${kind} ${role} ${principals.size}`.replaceAll(' ', '-');
  principals.set(token, {
    kind,
    keyId: kind === 'user' ? null : ID,
    keyName: null,
    organisationId: kind === 'operator' ? '' : admin.a.organisation_id,
    workspaceId: kind.startsWith('workspace') ? admin.a.workspace_id : null,
    userId: kind === 'user' || kind === 'workspace-user' ? admin.a.user_id : null,
    role,
    scopes: new Set(scopes),
    defaults: {},
    rateLimits: [],
    usageLimits: null,
    expiresAt: null,
  });
  return token;
}

/** Whether the chain let the call through to the action; what the action says is not this test's business. */
function passed(answer: Answer): boolean {
  const message: string = answer.body?.error?.message ?? '';
  return answer.status !== 401 && !/^This needs the |^The operator key /.test(message);
}

const call = (method: string, path: string, key: string | null) =>
  admin.call(method, path.startsWith('/v2/') ? path : `/v1${path}`, {
    key,
    ...(method === 'GET' || method === 'DELETE' ? {} : { body: { '?': 1 } }),
  });

const declared = new WeakMap<AdminRow, readonly string[]>();

/** The scopes that a row names, with every value of its path parameters that makes one. */
function declaredScopes(row: AdminRow): readonly string[] {
  const known = declared.get(row);
  if (known) return known;
  const all = row.scopes.flatMap((scope) => expandAll(scope, row.params)).filter((scope) => SCOPES.has(scope));
  const scopes = unique(all);
  declared.set(row, scopes);
  return scopes;
}

/** The table above by operation. */
const WRITTEN = new Map<string, { readonly at: string; readonly scopes: string; readonly auth: string }>();
for (const [id, method, path] of TABLE) {
  const scopes = unique(TABLE.filter((row) => row[0] === id).flatMap((row) => row[4]));
  const auth = id.startsWith('workspace-exclusions.') ? 'key' : 'key_or_login';
  const open = id === 'utils.test-auth' ? 'any_credential' : 'operator';
  WRITTEN.set(id, {
    at: `${method} ${path}`,
    scopes: scopes.join(),
    auth: scopes.length === 0 ? open : auth,
  });
}

/** Where rows and the table above part. */
function differences(list: readonly AdminRow[]): string[] {
  const out: string[] = [];
  const seen = new Set<string>();
  for (const row of list) {
    if (seen.has(row.id) || !WRITTEN.has(row.id)) out.push(`${row.id} is not written here`);
    seen.add(row.id);
    out.push(...differencesOf(row));
  }
  for (const id of WRITTEN.keys()) if (!seen.has(id)) out.push(`${id} is not declared`);
  return out;
}

function differencesOf(row: AdminRow): readonly string[] {
  const out: string[] = [];
  const expected = WRITTEN.get(row.id);
  if (expected !== undefined) {
    if (expected.at !== `${row.method} ${row.path}`) out.push(`${row.id} is at ${row.method} ${row.path}`);
    if (expected.auth !== row.auth) out.push(`${row.id} is open to ${row.auth}`);
    const scopes = declaredScopes(row).join();
    if (scopes !== expected.scopes) out.push(`${row.id} needs ${scopes}`);
  }
  const aliases = (row.aliases ?? []).join();
  if (aliases !== (ALIASES[row.id] ?? []).join()) out.push(`${row.id} is also at ${aliases}`);
  return out;
}

describe('the table is what is served and what is documented', () => {
  it('the code declares exactly the rows written here, with their scopes', () => {
    expect(differences(rows)).toEqual([]);
  });

  it('any one row or scope taken away, added or exchanged is noticed', () => {
    const [extra] = rows;
    if (!extra) throw new Error('no rows');
    const unnoticed: string[] = [];
    let mutants = 0;
    const notice = (name: string, found: readonly string[]) => {
      mutants += 1;
      if (found.length === 0) unnoticed.push(name);
    };
    notice('one more row', differences([...rows, { ...extra, id: 'more' }]));
    for (const row of rows) {
      notice(`${row.id}: no row`, differences(rows.filter((one) => one !== row)));
      // Of a list that differs in one row the others are the same.
      const put = (name: string, changed: object) =>
        notice(`${row.id}: ${name}`, differencesOf({ ...row, ...changed } as AdminRow));
      for (const auth of ['public', 'login', 'key', 'key_or_login', 'any_credential', 'operator'].filter(
        (auth) => auth !== row.auth,
      )) {
        put(`auth ${auth}`, { auth });
      }
      put('another path', { path: `${row.path}/other` });
      put('one more path', { aliases: [...(row.aliases ?? []), '/v1/other'] });
      for (const scope of row.scopes) {
        put(`without ${scope}`, { scopes: row.scopes.filter((one) => one !== scope) });
      }
      const held = declaredScopes(row);
      for (const scope of SCOPES) {
        if (held.includes(scope)) continue;
        put(`with ${scope}`, { scopes: [...row.scopes, scope] });
        if (row.scopes.length > 0) put(`${scope} instead`, { scopes: [scope, ...row.scopes.slice(1)] });
      }
    }
    expect(unnoticed).toEqual([]);
    expect(mutants).toBeGreaterThan(rows.length * SCOPES.size);
  });

  it('the listener serves exactly these paths, HEAD with every GET, and 405 for the rest of their methods', () => {
    const routes = admin.routes.filter(([, , operation]) => operation !== null);
    const own = routes.filter(([method]) => method !== 'HEAD').map((route) => route.join(' '));
    expect(unique(own)).toEqual(unique(served));
    const heads = routes.filter(([method]) => method === 'HEAD').map(([, path]) => path);
    const gets = served.filter((route) => route.startsWith('GET ')).map((route) => route.split(' ')[1] ?? '');
    expect(unique(heads)).toEqual(unique(gets));
  });

  it('what begins like one of these paths and is none is 404 on every method, and never goes to a provider', async () => {
    const areas = unique(served.map((route) => route.split(' ')[1]?.split('/').slice(0, 3).join('/') ?? ''));
    expect(areas).toContain('/v1/admin');
    for (const area of areas) {
      for (const method of ['GET', 'POST', 'DELETE', 'PATCH']) {
        const { status, body } = await admin.call(method, `${area}/none/of/these/x/y`, { key: null });
        expect([method, area, status, body.error.code]).toEqual([method, area, 404, 'AB08']);
      }
    }
    const { body } = await admin.call('POST', '/v1/admin/workspacez', { key: null });
    expect(body.error.message).toBe('Unknown path /v1/admin/workspacez. Did you mean POST /v1/admin/workspaces?');
  });

  it('OpenAPI documents exactly these operations', () => {
    const document = buildOpenApi(ACTIONS, '1.2.3') as {
      paths: Record<string, Record<string, { operationId: string }>>;
    };
    const documented = Object.entries(document.paths).flatMap(([path, item]) =>
      Object.entries(item).map(([method, { operationId }]) => {
        const operation = operationId.replace(/\.alias\d+$/, '');
        return `${method.toUpperCase()} ${path.replace(/\{(\w+)\}/g, ':$1')} ${operation}`;
      }),
    );
    const wanted = served.filter((route) => {
      const [, path = '', operation = ''] = route.split(' ');
      return path.startsWith('/v1') || operation in PREFIXES || (ALIASES[operation] ?? []).includes(path);
    });
    expect(unique(documented)).toEqual(unique(wanted));
  });

  it.each([
    ['without a scope', { scopes: [] }, /names no scope/],
    ['with an unknown scope', { scopes: ['configs.publish'] }, /unknown scope/],
    ['with a scope that no path parameter completes', { scopes: ['{type}.list'] }, /unknown scope/],
    ['that nobody is asked for', { auth: 'public', scopes: [] }, /no public routes/],
    ['whose write is not audited', { method: 'POST', writes: true, audit: null }, /needs an audit action/],
    ['whose GET writes', { writes: true, audit: { action: 'create', resource: 'x' } }, /GET reads/],
    ['with a path parameter that is not declared', { path: '/configs/:other' }, /path parameters/],
  ])('a row %s stops the start', (_title, patch, message) => {
    const row = rows.find(({ id }) => id === 'configs.list');
    expect(() => checkTable([{ ...row, ...patch } as AdminRow])).toThrow(message);
    expect(() => checkTable([row as AdminRow])).not.toThrow();
  });

  it('two rows with one id, or on one path, stop the start', () => {
    const row = rows.find(({ id }) => id === 'configs.list') as AdminRow;
    expect(() => checkTable([row, row])).toThrow(/id is used twice/);
    expect(() => checkTable([row, { ...row, id: 'other' } as AdminRow])).toThrow(/served twice/);
  });

  it('no route answers without a credential, on any of its paths and methods', async () => {
    for (const row of rows) {
      for (const path of pathsOf(row)) {
        const url = path.replace(':type', 'workspace').replace(':subType', 'service').replace(/:\w+/g, 'x');
        const answer = await admin.call(row.method, url, { key: null });
        expect([row.id, url, answer.status, answer.body.error.code]).toEqual([row.id, url, 401, 'AB05']);
      }
    }
  });
});

/** Whether a route without scopes is open to the kind: the operator's own to its key, one for any credential to all others. */
const opens = (kind: string, operation: string): boolean =>
  (WRITTEN.get(operation)?.auth === 'any_credential') !== (kind === 'operator');

describe('principal × route', () => {
  it.each(KINDS)(
    'a %s principal with every scope of its kind passes exactly where a scope of the row exists for it',
    async (kind) => {
      const token = become(kind, scopesOf(kind), kind === 'user' ? 'owner' : null);
      for (const [operation, method, , path, scopes] of TABLE) {
        const allowed =
          scopes.length === 0
            ? opens(kind, operation)
            : kind !== 'operator' && scopes.some((scope) => scopesOf(kind).has(scope));
        const answer = await call(method, path, token);
        expect([operation, passed(answer), answer.status === 403 && allowed], answer.text).toEqual([
          operation,
          allowed,
          false,
        ]);
      }
    },
  );

  it.each(KINDS)('a %s principal without any scope passes nowhere but on operator routes', async (kind) => {
    const token = become(kind, [], kind === 'user' ? 'admin' : null);
    for (const [operation, method, , path, scopes] of TABLE) {
      const answer = await call(method, path, token);
      expect([operation, passed(answer)], answer.text).toEqual([
        operation,
        scopes.length === 0 && opens(kind, operation),
      ]);
      if (!passed(answer)) expect([answer.status, answer.body.error.code]).toEqual([403, 'AB03']);
    }
  });

  it('each scope alone opens its rows, and every other scope together does not', async () => {
    for (const kind of ['organisation-service', 'workspace-service', 'workspace-user'] as const) {
      for (const [operation, method, , path, scopes] of TABLE) {
        const own = scopes.filter((scope) => scopesOf(kind).has(scope));
        for (const scope of own) {
          const answer = await call(method, path, become(kind, [scope]));
          expect([operation, scope, passed(answer)], answer.text).toEqual([operation, scope, true]);
        }
        const others = [...SCOPES].filter((scope) => !scopes.includes(scope));
        const answer = await call(method, path, become(kind, others));
        expect([operation, passed(answer)], answer.text).toEqual([
          operation,
          scopes.length === 0 && opens(kind, operation),
        ]);
      }
    }
  });

  it('a signed-in member has rights only in a workspace that was joined, by the role there', async () => {
    const token = become('user', [], 'member');
    const outside = await admin.call('GET', '/v1/configs', { key: token });
    expect([outside.status, outside.body.error.param]).toEqual([400, 'workspace_id']);
    expect(outside.body.error.message).toContain('you have rights in workspaces only');
    const mine = await admin.call('GET', `/v1/configs?workspace_id=${admin.a.workspace_slug}`, { key: token });
    expect(mine.status, mine.text).toBe(200);
    const names = ['ws-invented', admin.b.workspace_id, admin.b.workspace_slug, ID];
    const answers = await Promise.all(
      names.map((name) => admin.call('GET', `/v1/configs?workspace_id=${name}`, { key: token })),
    );
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect(answers[0]?.body.error.code).toBe('AB03');
    expect(answers[0]?.body.error.message).toBe('workspace_id is not a workspace that you belong to.');
    const { workspace_id, user_id } = admin.a;
    await admin.tables.systemWrite((tx) =>
      tx.update('workspace_members', { workspace_id, user_id }, { role: 'member' }),
    );
    const body = { name: 'x', config: {}, workspace_id };
    const write = await admin.call('POST', '/v1/configs', { key: token, body });
    expect([write.status, passed(write)]).toEqual([403, false]);
    expect((await admin.call('GET', `/v1/configs?workspace_id=${workspace_id}`, { key: token })).status).toBe(200);
  });
});
