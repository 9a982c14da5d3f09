/** The audit log of an organisation: `GET /audit-logs`. */
import { z } from 'zod';
import type { Principal } from '../../auth/principal.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { TenantTx, Where } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { isoDate, text, toIso, toMillis } from '../body-fields.ts';
import { refuse } from '../common.ts';
import type { Resource } from '../define.ts';
import { isUuid, queryInteger, reference, tenantFields } from '../fields.ts';
import { pageFields, pageOf } from '../kinds/lists.ts';
import { action } from '../resource.ts';
import { afterCommit, Service } from '../services.ts';
import { resourceType } from './chain.ts';
import { explainFinding, type Verified } from './verify.ts';

/** Follows the chain of an organisation's log; stops when `signal` is aborted. */
export const AUDIT_CHECK = new Service<(organisationId: string, signal: AbortSignal) => Promise<Verified>>(
  'check of the audit log',
);

const DEFAULT_PAGE_SIZE = 50;
const METHODS = ['POST', 'PUT', 'PATCH', 'DELETE'] as const;
const ACTIONS = ['create', 'update', 'delete', 'publish', 'export', 'rotate', 'manage', 'duplicate'] as const;

const exact = text(2_048, 1).optional();

const query = z.strictObject({
  ...pageFields(100),
  page_size: queryInteger(0, 100).optional().describe('Default 50; 0 answers the total only.'),
  organisation_id: tenantFields.organisation_id,
  start_time: isoDate.describe('Rows from this time on.'),
  end_time: isoDate.describe('Rows up to this time; after start_time.'),
  method: z.enum(METHODS).optional(),
  uri: exact.describe('The path as it was called, without its query.'),
  request_id: exact.describe('As in the header x-gateway-request-id of the answer.'),
  user_id: exact.describe('The signed-in user, or the API key.'),
  user_type: z.enum(['user', 'api_key']).optional(),
  workspace_id: reference.optional().describe('UUID or slug, of a deleted workspace too.'),
  response_status_code: queryInteger(100, 599).optional(),
  resource_type: exact.describe('For example `configs`, `api keys`.'),
  action: z.enum(ACTIONS).optional(),
  client_ip: exact,
  country: exact,
});

type AuditQuery = z.output<typeof query>;

const jsonText = z.string().nullable();

const record = z.object({
  id: z.string(),
  timestamp: z.string(),
  method: z.string(),
  uri: z.string(),
  request_id: z.string(),
  request_body: jsonText.describe('JSON text, secrets masked; null without a body.'),
  query_params: jsonText.describe('JSON text, secrets masked.'),
  request_headers: jsonText.describe('JSON text; the values of most headers are masked.'),
  user_id: z.string().nullable().describe('The signed-in user or the API key; null for the operator and for Sluice.'),
  user_type: z.enum(['user', 'api_key']).describe('`api_key` for every credential that is not a signed-in user.'),
  actor: z.enum(['user', 'api_key', 'operator', 'system']).describe('The actor; `system` is a job of Sluice.'),
  actor_name: z
    .string()
    .nullable()
    .describe('Name of the user, or of the user whose key it is, as it is now; null for others. Not in the hash.'),
  key_name: z.string().nullable().describe('Name of the API key as it is now; null for others. Not in the hash.'),
  organisation_id: z.string(),
  workspace_id: z.string().nullable(),
  response_status_code: z.int(),
  resource_type: z.string(),
  resource_id: z.string().nullable(),
  action: z.string(),
  client_ip: z.string().nullable(),
  country: z.string().nullable(),
  before: jsonText.describe('JSON text of the object before, or of what an update changed in it; secrets masked.'),
  after: jsonText.describe('The same after the call; null for what was refused or deleted.'),
  seq: z.int().nullable().describe('Place in the hash chain of the organisation, from 1.'),
  hash: z.string().nullable().describe('Proof of the row and of all before it; see `sluice audit verify`.'),
});

const list = action({
  id: 'audit-logs.list',
  method: 'GET',
  path: '/audit-logs',
  summary: 'List the rows of the audit log',
  description:
    'Every write of the administration API and of the console, carried out or refused, newest first. For organisation ' +
    'keys, owners and admins.',
  tag: 'Audit logs',
  auth: 'key_or_login',
  scopes: ['audit_logs.list'],
  // Not `organisation`: the workspace is a filter here, and it may be one that was deleted.
  tenant: 'none',
  params: null,
  query,
  body: null,
  response: z.object({ object: z.literal('list'), total: z.int().min(0), records: z.array(record) }),
  writes: false,
  audit: null,
  run: async ({ query: asked, principal, tx }) => {
    organisationOnly(principal);
    const page = pageOf(asked, DEFAULT_PAGE_SIZE);
    const where = await conditions(tx, asked);
    const total = await tx.count('audit_log', { where });
    const rows =
      page.limit === 0
        ? []
        : await tx.list('audit_log', {
            where,
            orderBy: [
              ['timestamp', 'desc'],
              // By the clock too; with the time it is the order of an index.
              ['id', 'desc'],
            ],
            ...page,
          });
    return { object: 'list' as const, total, records: await named(tx, rows) };
  },
});

function organisationOnly({ workspaceId }: Pick<Principal, 'workspaceId'>): void {
  if (workspaceId === null) return;
  throw new SluiceError('forbidden', 'The audit log is the organisation’s: this needs an organisation key.');
}

async function conditions(tx: TenantTx, asked: AuditQuery): Promise<Where<'audit_log'>> {
  const [start, end] = [toMillis(asked.start_time), toMillis(asked.end_time)];
  if (end <= start) throw refuse('end_time', 'must be after start_time');
  const { method, uri, request_id, user_id, user_type, response_status_code, action, client_ip, country } = asked;
  const { resource_type, workspace_id } = asked;
  return {
    timestamp: { gte: start, lte: end },
    method,
    uri,
    request_id,
    user_id,
    user_type: user_type === 'api_key' ? { in: ['api_key', 'operator', 'system'] } : user_type,
    workspace_id: workspace_id === undefined ? undefined : { in: await workspaceIds(tx, workspace_id) },
    response_status_code,
    resource_type: resource_type === undefined ? undefined : { in: spellings(resource_type) },
    action,
    client_ip,
    country,
  };
}

/** Ids of the workspace with this id, or of all that have or had this slug. Throws 404 for a name that never was. */
async function workspaceIds(tx: TenantTx, name: string): Promise<string[]> {
  const byId = isUuid(name) ? await tx.find('workspaces', { id: name.toLowerCase() }) : undefined;
  if (byId) return [byId.id];
  const bySlug = await tx.list('workspaces', { where: { slug: name }, orderBy: [['created_at', 'asc']], limit: 100 });
  if (bySlug.length > 0) return bySlug.map(({ id }) => id);
  throw new SluiceError(
    'unknown_reference',
    'workspace_id names no workspace of your organisation; GET /v1/admin/workspaces lists them.',
    {
      param: 'workspace_id',
    },
  );
}

/** A resource type as rows are stored, and as they were before there was a chain. */
function spellings(name: string): string[] {
  const words = resourceType(name);
  return [...new Set([words, words.replaceAll(' ', '-'), words.replaceAll(' ', '_'), name])];
}

/** Rows with the names of their actors: read here, because a row keeps its hash when a name changes. */
async function named(tx: TenantTx, rows: readonly Row<'audit_log'>[]): Promise<z.input<typeof record>[]> {
  const idsOf = (actor: Row<'audit_log'>['user_type']) => [
    ...new Set(rows.flatMap(({ user_type, user_id }) => (user_type === actor && user_id !== null ? [user_id] : []))),
  ];
  const keyIds = idsOf('api_key');
  const keys = keyIds.length === 0 ? [] : await tx.list('api_keys', { where: { id: { in: keyIds } } });
  const keyOf = new Map(keys.map((key) => [key.id, key]));
  const userIds = [...new Set([...idsOf('user'), ...keys.flatMap(({ user_id }) => user_id ?? [])])];
  const users = userIds.length === 0 ? [] : await tx.list('users', { where: { id: { in: userIds } } });
  const nameOf = new Map(users.map((user) => [user.id, `${user.first_name} ${user.last_name}`.trim() || user.email]));
  return rows.map((row) => {
    const key = row.user_type === 'api_key' ? keyOf.get(row.user_id ?? '') : undefined;
    const user = row.user_type === 'user' ? row.user_id : key?.user_id;
    return { ...present(row), actor_name: nameOf.get(user ?? '') ?? null, key_name: key?.name ?? null };
  });
}

function present(row: Row<'audit_log'>): Omit<z.input<typeof record>, 'actor_name' | 'key_name'> {
  const { user_type: actor, timestamp, resource_type, ...rest } = row;
  return {
    ...rest,
    timestamp: toIso(timestamp),
    user_type: actor === 'user' ? 'user' : 'api_key',
    actor,
    resource_type: resourceType(resource_type),
  };
}

const verify = action({
  id: 'audit-logs.verify',
  method: 'POST',
  path: '/audit-logs/verify',
  summary: 'Verify the audit log',
  description:
    'Follows the chain of the organisation’s log from its first row, as `sluice audit verify` does, and says whether each row is ' +
    'what Sluice wrote. Keep `last_hash` elsewhere: the hash of a row never changes. A process verifies one log at a time.',
  tag: 'Audit logs',
  auth: 'key_or_login',
  scopes: ['audit_logs.list'],
  tenant: 'none',
  params: null,
  query: null,
  body: null,
  response: z.object({
    object: z.literal('audit_verification'),
    valid: z.boolean(),
    first_seq: z.int().describe('Place of the first row; more than 1 when older rows were removed after their time.'),
    last_seq: z.int().describe('Place of the last good row; 0 without rows.'),
    rows: z.int().describe('Good rows, up to the finding where there is one.'),
    unchained: z.int().describe('Rows from before the chain, of which nothing can be said.'),
    last_hash: z.string().nullable().describe('Of the last good row.'),
    finding: z
      .object({
        kind: z.enum(['gap', 'altered', 'tail', 'head', 'unknown_key', 'anchor', 'unchained']),
        message: z.string(),
      })
      .nullable()
      .describe('The first thing that is wrong; rows behind it were not looked at.'),
  }),
  writes: false,
  readOnly: true,
  audit: null,
  run: async ({ principal }) => {
    organisationOnly(principal);
    return afterCommit({ check: AUDIT_CHECK }, async ({ check, signal }) => {
      const { begins, rows, unchained, last, finding } = await check(principal.organisationId, signal);
      return {
        object: 'audit_verification' as const,
        valid: finding === null,
        first_seq: begins,
        last_seq: rows,
        rows: rows - begins + 1,
        unchained,
        last_hash: last === '' ? null : last,
        finding: finding === null ? null : { kind: finding.kind, message: explainFinding(finding) },
      };
    });
  },
});

export const auditLogs: Resource = { actions: [list, verify] };
