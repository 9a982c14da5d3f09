/**
 * The administration routes as the matrix sees them: what each path parameter, query field and body field can name. The
 * routes are those of the catalogue; a parameter or an id-like field that nothing here knows fails the matrix, so a
 * route cannot be added without being put before it.
 */
import { z } from 'zod';
import { operatorActions } from '../../src/admin/operator.ts';
import { type AdminRow, pathsOf } from '../../src/admin/route.ts';
import { isObject, type JsonObject } from '../../src/kernel/json.ts';
import { ACTIONS } from '../../src/resources/catalog.ts';
import type { Kind, Tenant } from './world.ts';

export const ROWS: readonly AdminRow[] = [...ACTIONS, ...operatorActions(async () => ({}))];

/** What a path parameter names: by `operation path` or by the path before it, without the parameters in it. */
const PARAMETERS: Readonly<Record<string, Kind>> = {
  '/api-keys': 'api_key',
  '/configs': 'config',
  '/configs/versions': 'config_version',
  '/deployments': 'deployment',
  '/guardrails': 'guardrail',
  '/logs': 'log',
  '/feedback': 'feedback',
  '/log-destinations': 'log_destination',
  '/logs/exports': 'log_export',
  '/logs/erasures': 'log_erasure',
  'logs.exports.cancel /logs/exports': 'running_export',
  'logs.exports.download /logs/exports': 'written_export',
  '/integrations': 'integration',
  '/providers': 'provider',
  '/scim/workspaces': 'scim_mapping',
  '/scim/tokens': 'scim_token',
  '/secret-references': 'secret_reference',
  '/admin/organisation/sso-clients': 'sso_client',
  '/oauth/approvals': 'oauth_approval',
  '/virtual-keys': 'virtual_key',
  '/batches': 'batch',
  '/policies/rate-limits': 'rate_policy',
  '/policies/usage-limits': 'usage_policy',
  '/policies/usage-limits/entities': 'usage_entity',
  '/admin/users': 'user',
  '/admin/users/invites': 'invite',
  '/admin/workspaces': 'workspace',
  '/admin/workspaces/users': 'member',
  '/admin/workspaces/members': 'member',
  '/operator/organisations': 'organisation',
  '/organisations': 'organisation',
  // Access is set for integrations of the organisation only.
  'integrations.workspaces /integrations': 'shared_integration',
  'integrations.workspaces.update /integrations': 'shared_integration',
  // And so have only those objects with owners.
  'integrations.objects /integrations': 'shared_integration',
  'integrations.objects.adopt /integrations': 'shared_integration',
};

/** Parameters for what no tenant keeps here: any id is as good as another. */
const ELSEWHERE: Readonly<Record<string, Kind>> = { mcpServerId: 'mcp_server' };

/** Parameters that name no object. */
const PLAIN: Readonly<Record<string, string>> = { metadataKey: 'team' };

/** What a field of a query or a body names; `operation field` before `field`. Null: no object of a tenant. */
const FIELDS: Readonly<Record<string, Kind | null>> = {
  organisation_id: 'organisation',
  workspace_id: 'workspace',
  user_id: 'user',
  'defaults.config_id': 'config',
  'defaults.user_api_key_config': 'config',
  integration_id: 'integration',
  scim_group_id: 'scim_group',
  virtual_key_id: 'virtual_key',
  ids: 'api_key',
  'guardrails.list ids': 'guardrail',
  // Of the provider.
  'integrations.objects.adopt ids': null,
  'integrations.objects.adopt ids[]': null,
  // Names that the caller gives its own requests.
  ...Object.fromEntries(
    ['trace_id', 'span_id', 'parent_span_id'].flatMap((name) => [
      [`metadata.${name}`, null],
      [`[].metadata.${name}`, null],
    ]),
  ),
  workspace: 'workspace',
  workspace_slug: 'workspace',
  'auth_settings.workspaces_allowed[]': 'workspace',
  'auth_settings.remove_workspaces_allowed[]': 'workspace',
  from: 'workspace',
  'passthrough.workspaces[]': 'workspace',
  users: 'user',
  'users[]': 'user',
  'users[].id': 'newcomer',
  'workspaces[].id': 'workspace',
  'group_mappings[].workspace_id': 'workspace',
  'workspaces[].workspace_id': 'workspace',
  input_file_id: 'file',
  output_file_id: 'file',
  error_file_id: 'file',
  internal_output_file_id: 'file',
  'api-keys.create workspace user user_id': 'member',
  // Refused with every value.
  'api-keys.create workspace service user_id': null,
  'api-keys.create organisation service user_id': null,
  'policies.usage-limits.simulate policy_id': 'usage_policy',
  'policies.rate-limits.simulate policy_id': 'rate_policy',
  // Names that the caller chooses, of the catalogue of providers, or of nothing that exists yet.
  slug: null,
  slugs: null,
  default_provider_slug: null,
  'workspaces[].default_provider_slug': null,
  ai_provider_id: null,
  'models[].slug': null,
  'models[].base_model_slug': null,
  'secret_mappings[].secret_reference_id': 'secret_reference',
  'allowed_workspaces[]': 'workspace',
  // A name at an identity provider.
  client_id: null,
  // Names within a secret manager.
  'auth_config.aws_access_key_id': null,
  'auth_config.aws_external_id': null,
  'auth_config.azure_entra_tenant_id': null,
  'auth_config.azure_entra_client_id': null,
  'auth_config.azure_managed_client_id': null,
  'auth_config.vault_role_id': null,
  'auth_config.vault_secret_id': null,
  'input_guardrails[]': 'guardrail',
  'output_guardrails[]': 'guardrail',
  'defaults.input_guardrails[]': 'guardrail',
  'defaults.output_guardrails[]': 'guardrail',
  input_guardrails: null,
  output_guardrails: null,
  'checks[].id': null,
  capability_ids: null,
  'capability_ids[]': null,
  mcp_integration_capability_ids: null,
  'mcp_integration_capability_ids[]': null,
  usage_id: null,
  request_id: null,
  // Conditions on the requests that the caller sees anyway.
  'limits.list api_key_id': 'api_key',
  api_key_ids: null,
  user_ids: null,
  trace_id: null,
  span_id: null,
  prompt_slug: null,
  '[].trace_id': null,
  's3.access_key_id': null,
  'filters.api_key_ids': null,
  'logs.erase api_key_id': null,
  'logs.erase end_user': null,
  'filters.user_ids': null,
  'filters.trace_id': null,
  'filters.span_id': null,
  'filters.prompt_slug': null,
  'filters.workspace_slug': 'workspace',
};

/** Fields whose names say that they name something. */
const NAMES = /(^|_)(ids?|slugs?|users?|config|guardrails)$/;

const groupMapped = (t: Tenant) => ({
  group_mappings: [{ group: 'made', workspace_id: t.workspaceId, workspace_role: 'member' }],
});
const mapped = (t: Tenant) => ({
  secret_mappings: [{ target_field: 'key', secret_reference_id: t.objects.secret_reference.slug ?? '' }],
});

/** Body of a call that succeeds for whoever may make it, before a channel puts something else into it. */
const BODIES: Readonly<Record<string, (own: Tenant, n: number) => JsonObject>> = {
  'api-keys.create organisation service': (_t, n) => ({ name: `made ${n}`, scopes: ['workspaces.read'] }),
  'api-keys.create workspace service': (t, n) => ({
    name: `made ${n}`,
    scopes: ['configs.read'],
    workspace_id: t.workspaceId,
  }),
  'api-keys.create workspace user': (t, n) => ({
    name: `made ${n}`,
    scopes: ['configs.read'],
    workspace_id: t.workspaceId,
    user_id: t.objects.user.id,
  }),
  'api-keys.update': () => ({ description: 'changed' }),
  'api-keys.rotate': () => ({}),
  'batches.update': () => ({ request_counts: { total: 1, completed: 0, failed: 1 } }),
  'configs.create': (t, n) => ({ name: `made ${n}`, config: { retry: { attempts: 1 } }, workspace_id: t.workspaceId }),
  'configs.update': () => ({ name: 'changed' }),
  'deployments.create': (t, n) => ({
    name: `made ${n}`,
    slug: `made-${n}`,
    auth_settings: { gateway_base_url: 'https://gateway.example', workspaces_allowed: [t.workspaceId] },
  }),
  'deployments.update': () => ({ name: 'changed' }),
  'deployments.verify-ping': () => ({ code: 'made' }),
  'feedback.create': (_t, n) => ({ trace_id: `made ${n}`, value: 1 }),
  'feedback.update': () => ({ value: 2 }),
  'logs.insert': (_t, n) => ({
    request: { url: 'https://provider.example/v1/chat/completions', body: {} },
    response: { body: {} },
    metadata: { trace_id: `made-${n}`, span_id: `made-${n}` },
  }),
  'guardrails.create': (t, n) => ({
    name: `made ${n}`,
    checks: [{ id: 'default.contains', parameters: { words: ['made'] } }],
    workspace_id: t.workspaceId,
  }),
  'guardrails.update': () => ({ name: 'changed' }),
  'guardrails.invoke': (t) => ({ phase: 'input', text: '{"made":1}', workspace_id: t.workspaceId }),
  'guardrails.mcp-servers.replace': (t) => ({ mcp_servers: { [t.objects.mcp_server.id]: {} } }),
  'guardrails.mcp-servers.update': () => ({ run_on: ['beforeToolCall'] }),
  'integrations.create': (t, n) => ({
    ...mapped(t),
    name: `made ${n}`,
    slug: `made-${n}`,
    ai_provider_id: 'openai',
    key: 'sk-made',
  }),
  'integrations.update': (t) => ({ ...mapped(t), description: 'changed' }),
  'integrations.models.update': () => ({ models: [{ slug: 'made', enabled: true, is_custom: true }] }),
  'integrations.objects.adopt': (t, n) => ({ workspace: t.workspaceId, kinds: ['file'], ids: [`made-${n}`] }),
  'integrations.workspaces.update': (t) => ({ workspaces: [{ id: t.workspaceId, enabled: true }] }),
  'providers.create': (t, n) => ({
    ...mapped(t),
    name: `made ${n}`,
    slug: `made-${n}`,
    integration_id: t.objects.integration.slug ?? '',
    workspace_id: t.workspaceId,
  }),
  'providers.update': () => ({ note: 'changed' }),
  'scim-workspaces.create': (t) => ({
    workspace_id: t.workspaceId,
    role: 'member',
    scim_group_id: t.objects.scim_group.id,
  }),
  'scim_tokens.create': (_t, n) => ({ name: `made ${n}` }),
  'secret_references.create': (_t, n) => ({
    name: `made ${n}`,
    slug: `made-${n}`,
    manager_type: 'hashicorp_vault',
    auth_config: { vault_auth_type: 'token', vault_addr: 'https://vault.example', vault_token: 'hvs.made' },
    secret_path: 'secret/data/made',
  }),
  'secret_references.update': () => ({ description: 'changed' }),
  'sso_clients.create': (t, n) => ({
    ...groupMapped(t),
    name: `made ${n}`,
    slug: `made-${n}`,
    issuer: 'https://issuer.example',
    client_id: 'made',
    client_secret: 'made',
  }),
  'sso_clients.update': (t) => ({ ...groupMapped(t), name: 'changed' }),
  'virtual_keys.create': (t, n) => ({
    ...mapped(t),
    name: `made ${n}`,
    slug: `made-${n}`,
    provider: 'openai',
    key: 'sk-made',
    workspace_id: t.workspaceId,
  }),
  'virtual_keys.update': (t) => ({ ...mapped(t), note: 'changed' }),
  'virtual_keys.migrate': (t) => ({ virtual_key_id: t.objects.virtual_key.slug ?? '', workspace_id: t.workspaceId }),
  'analytics.what-if': (t) => ({
    ...FIRST_MONTHS,
    workspace_id: t.workspaceId,
    map: [{ from: 'openai__gpt-4o', to: 'openai__gpt-4o-mini' }],
  }),
  'log_destinations.create': (t, n) => ({
    name: `made ${n}`,
    kind: 'webhook',
    webhook: { url: 'https://receiver.example/made' },
    workspace_id: t.workspaceId,
  }),
  'log_destinations.update': () => ({ name: 'changed' }),
  'log_destinations.test': () => ({}),
  'integrations.test': () => ({}),
  'logs.erase': () => ({ trace_id: 'trace-of-nobody' }),
  'logs.exports.create': (t) => ({ filters: {}, requested_data: ['id'], workspace_id: t.workspaceId }),
  'logs.exports.update': () => ({ filters: { ai_model: 'made' } }),
  'policies.rate-limits.create': (t, n) => ({
    name: `made ${n}`,
    conditions: [{ key: 'metadata.team', value: 'nobody' }],
    group_by: [{ key: 'api_key' }],
    type: 'requests',
    unit: 'rpm',
    value: 1_000_000,
    workspace_id: t.workspaceId,
  }),
  'policies.rate-limits.update': () => ({ value: 1_000_000 }),
  'policies.usage-limits.create': (t, n) => ({
    name: `policy-${n}`,
    workspace_id: t.workspaceId,
    conditions: [{ key: 'api_key', value: '*' }],
    group_by: [{ key: 'api_key' }],
    type: 'cost',
    credit_limit: 1_000_000,
  }),
  'policies.usage-limits.simulate': (t) => ({
    workspace_id: t.workspaceId,
    policy_id: t.objects.usage_policy.id,
    start_time: '2026-01-01T00:00:00Z',
    end_time: '2026-01-02T00:00:00Z',
  }),
  'policies.rate-limits.simulate': (t) => ({
    workspace_id: t.workspaceId,
    policy_id: t.objects.rate_policy.id,
    start_time: '2026-01-01T00:00:00Z',
    end_time: '2026-01-02T00:00:00Z',
  }),
  'policies.usage-limits.update': () => ({ credit_limit: 1_000_000 }),
  'workspaces.create': (_t, n) => ({ name: `made ${n}` }),
  'workspaces.update': () => ({ description: 'changed' }),
  'organisation.settings.update': () => ({ user_api_key_count: 40 }),
  'organisation.defaults.update': () => ({ input_guardrails: [] }),
  'workspace-exclusions.input.update': (t) => ({ workspaces: [{ workspace_id: t.workspaceId, excluded: true }] }),
  'workspace-exclusions.output.update': (t) => ({ workspaces: [{ workspace_id: t.workspaceId, excluded: true }] }),
  'workspace-users.create': (t) => ({ users: [{ id: t.objects.newcomer.id, role: 'member' }] }),
  'workspace-users.update': () => ({ role: 'member' }),
  'users.update': (t) => ({ workspaces: [{ id: t.workspaceSlug, role: 'member' }] }),
  'invites.create': (t, n) => ({
    email: `made-${n}@example.com`,
    role: 'member',
    workspaces: [{ id: t.workspaceSlug, role: 'member' }],
  }),
  'operator.organisations.create': (_t, n) => ({
    name: `Made ${n}`,
    owner: { email: `made-${n}@example.com`, first_name: 'Ada', last_name: 'Made' },
  }),
  'operator.organisations.update': () => ({}),
};

/** Routes that take `workspace_id` with some callers only to refuse it. */
const WITHOUT_WORKSPACE = new Set(['api-keys.create organisation service']);

const RANGE = () => ({
  time_of_generation_min: '2026-01-01T00:00:00Z',
  time_of_generation_max: '2027-01-01T00:00:00Z',
});

/** Query parameters without which a route answers nothing. */
const QUERIES: Readonly<Record<string, (own: Tenant) => Record<string, string>>> = {
  'analytics.graphs.feedbacks': RANGE,
  'analytics.graphs.feedbacks.scores': RANGE,
  'analytics.graphs.feedbacks.weighted': RANGE,
  'analytics.graphs.feedbacks.ai-models': RANGE,
  'integrations.models.delete': () => ({ slugs: 'made' }),
  // Providers use it.
  'integrations.delete': () => ({ force: 'true' }),
  'audit-logs.list': () => ({ start_time: '2020-01-01T00:00:00Z', end_time: '2100-01-01T00:00:00Z' }),
};

/** When the records of the matrix were made. */
const FIRST_MONTHS = {
  time_of_generation_min: '1970-01-01T00:00:00Z',
  time_of_generation_max: '1970-06-01T00:00:00Z',
} as const;

/** One place of a route that can name an object. */
export interface Channel {
  readonly route: Route;
  readonly at: 'path' | 'query' | 'body';
  /** Parameter or field, `workspaces[].id`. */
  readonly field: string;
  readonly kind: Kind;
}

export interface Route {
  /** Operation id, with the values of its enumerated parameters. */
  readonly name: string;
  readonly row: AdminRow;
  /** Its paths, with enumerated parameters filled in. */
  readonly paths: readonly [string, ...string[]];
  readonly scopes: readonly string[];
  readonly channels: readonly Channel[];
  /** Whether the query, else the body, takes `workspace_id`. */
  readonly workspaceAt: 'query' | 'body' | null;
  readonly queryNames: readonly string[];
}

const schemaOf = (schema: z.ZodType | null): JsonObject =>
  schema === null
    ? {}
    : (z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any', reused: 'inline' }) as JsonObject);

/** Every field of a schema that holds a text, as `a.b`, `a[].b`; of a list of texts the list itself. */
function textFields(schema: unknown, prefix = ''): string[] {
  if (!isObject(schema as JsonObject)) return [];
  const { properties, items, anyOf, oneOf, allOf, type } = schema as JsonObject;
  const out: string[] = [];
  for (const branch of [anyOf, oneOf, allOf].flat()) if (branch) out.push(...textFields(branch, prefix));
  if (isObject(properties as JsonObject)) {
    for (const [name, inner] of Object.entries(properties as JsonObject)) {
      out.push(...textFields(inner, prefix === '' ? name : `${prefix}.${name}`));
    }
  }
  if (items) out.push(...textFields(items, `${prefix}[]`));
  if ((type === 'string' || [type].flat().includes('string')) && prefix !== '') out.push(prefix);
  return [...new Set(out)];
}

/** Fields that name something, or an error for one that nothing above knows. */
function referencesOf(name: string, schema: z.ZodType | null, faults: string[]): [string, Kind][] {
  const out: [string, Kind][] = [];
  for (const field of textFields(schemaOf(schema))) {
    const leaf = field.replace(/(\[\])+$/, '');
    const last = leaf.slice(Math.max(leaf.lastIndexOf('.'), leaf.lastIndexOf(']')) + 1);
    const known = [`${name} ${field}`, field].find((key) => key in FIELDS);
    if (known === undefined) {
      if (NAMES.test(last) && !/^config(\.|$)/.test(field)) faults.push(`${name}: what does the field ${field} name?`);
      continue;
    }
    const kind = FIELDS[known];
    if (kind) out.push([field, kind]);
  }
  return out;
}

function combinations(row: AdminRow): Record<string, string>[] {
  const properties = schemaOf(row.params).properties as JsonObject | undefined;
  let out: Record<string, string>[] = [{}];
  for (const [name, schema] of Object.entries(properties ?? {})) {
    const values = isObject(schema) && Array.isArray(schema.enum) ? schema.enum.map(String) : null;
    if (values) out = out.flatMap((one) => values.map((value) => ({ ...one, [name]: value })));
  }
  return out.filter((one) => row.params === null || Object.keys(one).length === 0 || takes(row, one));
}

/** Whether the parameters are ones that the row takes: some pairs of values are refused. */
function takes(row: AdminRow, values: Record<string, string>): boolean {
  const named = [...row.path.matchAll(/:(\w+)/g)].map((match) => match[1] ?? '');
  return row.params?.safeParse(Object.fromEntries(named.map((name) => [name, values[name] ?? 'x']))).success === true;
}

/** The routes, and what is missing here to put each of them before the matrix. */
export function readRoutes(rows: readonly AdminRow[]): { routes: Route[]; faults: string[] } {
  const faults: string[] = [];
  const routes = rows.flatMap((row) =>
    combinations(row).map((values): Route => {
      const name = [row.id, ...Object.values(values)].join(' ');
      const fill = (text: string) => text.replace(/[:{](\w+)\}?/g, (whole, param: string) => values[param] ?? whole);
      const paths = pathsOf(row).map(fill) as [string, ...string[]];
      const route: Omit<Route, 'channels'> = {
        name,
        row,
        paths,
        scopes: row.scopes.map(fill),
        workspaceAt: WITHOUT_WORKSPACE.has(name) ? null : workspaceAt(row),
        queryNames: Object.keys((schemaOf(row.query).properties as JsonObject | undefined) ?? {}),
      };
      const channels: Channel[] = [];
      const whole = { ...route, channels };
      const segments = paths[0].slice('/v1'.length).split('/');
      for (const [at, segment] of segments.entries()) {
        if (!segment.startsWith(':') || segment.slice(1) in ELSEWHERE || segment.slice(1) in PLAIN) continue;
        const before = segments
          .slice(0, at)
          .filter((one) => !one.startsWith(':'))
          .join('/');
        const kind = PARAMETERS[`${row.id} ${before}`] ?? PARAMETERS[before];
        if (kind) channels.push({ route: whole, at: 'path', field: segment.slice(1), kind });
        else faults.push(`${name}: what does the parameter ${segment} after ${before} name?`);
      }
      for (const at of ['query', 'body'] as const) {
        for (const [field, kind] of referencesOf(name, row[at], faults))
          channels.push({ route: whole, at, field, kind });
      }
      if (row.body !== null && row.method !== 'DELETE' && BODIES[name] === undefined) {
        faults.push(`${name}: what is a body that succeeds?`);
      }
      return whole;
    }),
  );
  return { routes, faults };
}

const workspaceAt = (row: AdminRow) =>
  has(row.query, 'workspace_id') ? 'query' : has(row.body, 'workspace_id') ? 'body' : null;

const has = (schema: z.ZodType | null, field: string): boolean =>
  field in ((schemaOf(schema).properties as JsonObject | undefined) ?? {});

export interface Built {
  readonly method: string;
  readonly path: string;
  readonly body: JsonObject | null;
}

let made = 0;

/** The call of a route on `own` objects, through one of its paths. */
export function build(
  route: Route,
  own: Tenant,
  options: {
    readonly path?: string;
    /** Puts something else into one place. */
    readonly channel?: Channel;
    readonly value?: string;
    /** The caller is bound to no workspace: names the tenant's where the route can take it. */
    readonly nameWorkspace?: boolean;
  } = {},
): Built {
  const { channel, value = '', nameWorkspace = false } = options;
  made += 1;
  let path = options.path ?? route.paths[0];
  for (const { at, field, kind } of route.channels) {
    if (at !== 'path') continue;
    const object = own.objects[kind];
    const text = channel?.at === 'path' && channel.field === field ? value : (object.slug ?? object.id);
    path = path.replace(`:${field}`, encodeURIComponent(text));
  }
  // Aliases may name their parameters otherwise.
  path = path.replace(/:(\w+)/g, (_, name: string) => {
    const kind = ELSEWHERE[name];
    const plain = PLAIN[name];
    if (plain !== undefined) return plain;
    const other = channel?.at === 'path' ? value : own.objects.user.id;
    return encodeURIComponent(kind === undefined ? other : own.objects[kind].id);
  });
  const range = /^analytics\.(graphs|groups|summary)/.test(route.row.id) ? FIRST_MONTHS : {};
  const query: Record<string, string> = { ...range, ...QUERIES[route.name]?.(own) };
  let body: JsonObject | null = BODIES[route.name]?.(own, made) ?? null;
  if (nameWorkspace && route.row.tenant !== 'none') {
    if (route.workspaceAt === 'query') query.workspace_id = own.workspaceId;
    if (route.workspaceAt === 'body') body = { ...body, workspace_id: own.workspaceId };
  }
  if (channel?.at === 'query') query[channel.field] = value;
  if (channel?.at === 'query' && channel.field === 'workspace_id' && body !== null) {
    const { workspace_id: _other, ...rest } = body;
    body = rest;
  }
  if (channel?.at === 'body') {
    body = put({ ...body }, channel.field.replace(/\[\]/g, '.[]').split('.'), value) as JsonObject;
    if (channel.field === 'workspace_id') delete query.workspace_id;
  }
  const text = new URLSearchParams(query).toString();
  return { method: route.row.method, path: text === '' ? path : `${path}?${text}`, body };
}

/** `value` at a path of names, `[]` for the first of a list; what else stands there stays. */
function put(into: unknown, path: readonly string[], value: string): unknown {
  const [name, ...rest] = path;
  if (name === undefined) return value;
  if (name === '[]') {
    const list = Array.isArray(into) ? into : [];
    return [put(list[0], rest, value), ...list.slice(1)];
  }
  const object = isObject(into as JsonObject) ? (into as JsonObject) : {};
  return { ...object, [name]: put(object[name], rest, value) };
}
