/** The routes of the administration API, written by hand and kept apart from the code. */

export const ID = '00000000-0000-7000-8000-000000000000';

/** Operation, method, path as declared, a path to call, and the scopes of which any one suffices (none: operator key). */
export const TABLE: readonly (readonly [string, string, string, string, readonly string[]])[] = [
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
  ...(['list', 'create', 'read', 'update', 'delete', 'test'] as const).map((verb) => {
    const of = verb === 'list' || verb === 'create' ? '' : '/:destinationId';
    const below = verb === 'test' ? '/test' : '';
    const method = { list: 'GET', create: 'POST', read: 'GET', update: 'PUT', delete: 'DELETE', test: 'POST' }[verb];
    const scope = verb === 'test' ? 'update' : verb;
    return [
      `log_destinations.${verb}`,
      method,
      `/log-destinations${of}${below}`,
      `/log-destinations${of === '' ? '' : `/${ID}`}${below}`,
      [`log_destinations.${scope}`, `organisation_log_destinations.${scope}`],
    ] as const;
  }),
  ['logs.list', 'GET', '/logs', '/logs', ['logs.list', 'logs.view']],
  ['logs.insert', 'POST', '/logs', '/logs', ['logs.write']],
  ['logs.tail', 'GET', '/logs/tail', '/logs/tail', ['logs.list', 'logs.view']],
  ['logs.histogram', 'GET', '/logs/histogram', '/logs/histogram', ['logs.list', 'logs.view']],
  ['logs.delete', 'DELETE', '/logs/:logId', `/logs/${ID}`, ['logs.write', 'organisation_settings.update']],
  ['logs.erase', 'POST', '/logs/erase', '/logs/erase', ['logs.write', 'organisation_settings.update']],
  ['logs.erasures.list', 'GET', '/logs/erasures', '/logs/erasures', ['logs.write', 'organisation_settings.update']],
  [
    'logs.erasures.read',
    'GET',
    '/logs/erasures/:erasureId',
    `/logs/erasures/${ID}`,
    ['logs.write', 'organisation_settings.update'],
  ],
  ['logs.exports.list', 'GET', '/logs/exports', '/logs/exports', ['logs.list', 'logs.view']],
  ['logs.exports.create', 'POST', '/logs/exports', '/logs/exports', ['logs.export']],
  ['logs.exports.read', 'GET', '/logs/exports/:exportId', `/logs/exports/${ID}`, ['logs.list', 'logs.view']],
  ['logs.exports.update', 'PUT', '/logs/exports/:exportId', `/logs/exports/${ID}`, ['logs.export']],
  ['logs.exports.start', 'POST', '/logs/exports/:exportId/start', `/logs/exports/${ID}/start`, ['logs.export']],
  ['logs.exports.cancel', 'POST', '/logs/exports/:exportId/cancel', `/logs/exports/${ID}/cancel`, ['logs.export']],
  ['logs.exports.download', 'GET', '/logs/exports/:exportId/download', `/logs/exports/${ID}/download`, ['logs.export']],
  [
    'logs.exports.field-restrictions',
    'GET',
    '/logs/exports/field-restrictions',
    '/logs/exports/field-restrictions',
    ['logs.export'],
  ],
  ['logs.read', 'GET', '/logs/:logId', `/logs/${ID}`, ['completions.write', 'logs.read', 'logs.view', 'logs.write']],
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
  ['audit-logs.verify', 'POST', '/audit-logs/verify', '/audit-logs/verify', ['audit_logs.list']],
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
  ['scim-groups.list', 'GET', '/scim/groups', '/scim/groups', ['workspaces.update']],
  ['scim-workspaces.list', 'GET', '/scim/workspaces', '/scim/workspaces', ['workspaces.update']],
  ['scim-workspaces.create', 'POST', '/scim/workspaces', '/scim/workspaces', ['workspaces.update']],
  ['scim-workspaces.delete', 'DELETE', '/scim/workspaces/:mappingId', `/scim/workspaces/${ID}`, ['workspaces.update']],
  ['scim_tokens.list', 'GET', '/scim/tokens', '/scim/tokens', ['organisation_users.create']],
  ['scim_tokens.create', 'POST', '/scim/tokens', '/scim/tokens', ['organisation_users.create']],
  ['scim_tokens.delete', 'DELETE', '/scim/tokens/:id', `/scim/tokens/${ID}`, ['organisation_users.create']],
  ...(
    [
      ['list', 'GET', '', 'list'],
      ['create', 'POST', '', 'create'],
      ['read', 'GET', '/:id', 'read'],
      ['update', 'PUT', '/:id', 'update'],
      ['delete', 'DELETE', '/:id', 'delete'],
      ['test', 'POST', '/:id/test', 'update'],
    ] as const
  ).map(
    ([verb, method, path, scope]) =>
      [
        `secret_references.${verb}`,
        method,
        `/secret-references${path}`,
        `/secret-references${path.replace(':id', ID)}`,
        [`secret_references.${scope}`],
      ] as const,
  ),
  ...(
    [
      ['list', 'GET', '', 'read'],
      ['create', 'POST', '', 'update'],
      ['read', 'GET', '/:id', 'read'],
      ['update', 'PUT', '/:id', 'update'],
      ['delete', 'DELETE', '/:id', 'update'],
    ] as const
  ).map(
    ([verb, method, path, scope]) =>
      [
        `sso_clients.${verb}`,
        method,
        `/admin/organisation/sso-clients${path}`,
        `/admin/organisation/sso-clients${path.replace(':id', ID)}`,
        [`organisation_settings.${scope}`],
      ] as const,
  ),
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
  [
    'guardrails.checks',
    'GET',
    '/guardrails/checks',
    '/guardrails/checks',
    ['guardrails.list', 'organisation_guardrails.list'],
  ],
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
  ['integrations.kinds', 'GET', '/provider-kinds', '/provider-kinds', both('list')],
  ['integrations.test', 'POST', '/integrations/:slug/test', '/integrations/x/test', both('update')],
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
  ['oauth-approvals.list', 'GET', '/oauth/approvals', '/oauth/approvals', []],
  ['oauth-approvals.delete', 'DELETE', '/oauth/approvals/:approvalId', `/oauth/approvals/${ID}`, []],
  ['auth.self', 'GET', '/auth/self', '/auth/self', []],
  ['limits.list', 'GET', '/limits', '/limits', ['policies.list', 'completions.write']],
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
export const ALIASES: Readonly<Record<string, readonly string[]>> = {
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
export const PREFIXES: Readonly<Record<string, readonly ['/v1' | '/v2']>> = { 'batches.update': ['/v2'] };
export const prefixesOf = (operation: string) => PREFIXES[operation] ?? (['/v1', '/v2'] as const);

function all(verb: string): string[] {
  return ['organisation_service', 'workspace_service', 'workspace_user'].map((type) => `${type}_api_keys.${verb}`);
}

function both(verb: string): string[] {
  return [`organisation_integrations.${verb}`, `workspace_integrations.${verb}`];
}
