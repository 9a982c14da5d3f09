/** Erasure of stored requests: `DELETE /logs/{id}`, `POST /logs/erase`, `/logs/erasures`. */
import { z } from 'zod';
import type { Principal } from '../../../auth/principal.ts';
import { SluiceError } from '../../../kernel/errors.ts';
import { uuidv7 } from '../../../kernel/id.ts';
import { Secret } from '../../../kernel/secret.ts';
import type { TenantTx, Where } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { isoDate, text, toIso, toIsoOrNull, toMillis } from '../../body-fields.ts';
import { actorId, refuse } from '../../common.ts';
import { isUuid, tenantFields, uuid } from '../../fields.ts';
import { listOf, pageFields, pageOf } from '../../kinds/lists.ts';
import { notFound } from '../../look-up.ts';
import { type AnyAction, action, type Call } from '../../resource.ts';
import { Service, type Work, withServices } from '../../services.ts';
import { KEPT_LOGS, reachOf } from '../reach.ts';
import { MOST_PENDING, subjectPlace } from './pending.ts';

/** Carries erasures out. */
export interface ErasureService {
  /** A hint that one was added. */
  readonly wake: () => void;
  /** Ids of the log destinations that may have been sent requests of a workspace, or of the organisation for null. */
  readonly destinations: (organisationId: string, workspaceId: string | null) => Promise<readonly string[]>;
}

export const ERASURES = new Service<ErasureService>('erasure of stored requests');

type Erasure = Row<'log_erasures'>;

const TAG = 'Logs';
const MOST_CHARACTERS = 128;
const DEFAULT_PAGE_SIZE = 50;
const MAX_PAGE_SIZE = 100;
/** Exports that an answer names. */
const MOST_EXPORTS = 100;
const RETRY_S = 60;

const erasureItem = z.object({
  id: z.string(),
  object: z.literal('log-erasure'),
  organisation_id: z.string(),
  workspace_id: z.string().nullable().describe('Null: all workspaces.'),
  selects: z
    .enum(['id', 'end_user', 'api_key_id', 'trace_id'])
    .describe('The property that the request for the erasure has named. Its value is not shown.'),
  before: z.string().nullable().describe('Requests from before this time; null for a single one.'),
  status: z
    .enum(['pending', 'done'])
    .describe(
      '`pending`: no answer shows the requests, and files still have them. `done`: no file has them, on any node, in the object store or in ClickHouse.',
    ),
  records: z.int().describe('Requests that were removed from files, so far.'),
  bodies: z.int().describe('Those of them whose bodies were removed.'),
  feedback: z.int().describe('Feedback on them that was removed.'),
  damaged_files: z.int().describe('Files that cannot be read, in which such requests may be.'),
  nodes: z.array(z.string()).describe('Nodes whose disks have nothing of them any more.'),
  exports: z.array(z.string()).describe('Exports from before, which may have such requests. They are not reached.'),
  destinations: z
    .array(z.string())
    .describe('Log destinations that were sent requests before, or may have been. What they have is not reached.'),
  created_at: z.string(),
  created_by: z.string(),
  done_at: z.string().nullable(),
});

function present(row: Erasure): z.input<typeof erasureItem> {
  const parts = Object.entries(row.nodes);
  const sum = (of: 'records' | 'bodies' | 'feedback' | 'damaged_files') =>
    parts.reduce((total, [, part]) => total + part[of], 0);
  return {
    id: row.id,
    object: 'log-erasure',
    organisation_id: row.organisation_id,
    workspace_id: row.workspace_id,
    selects: row.selects,
    before: row.selects === 'id' ? null : toIso(row.before),
    status: row.status,
    records: sum('records'),
    bodies: sum('bodies'),
    feedback: sum('feedback'),
    damaged_files: sum('damaged_files'),
    nodes: parts.filter(([, { done }]) => done).map(([node]) => node),
    exports: row.exports,
    destinations: row.destinations,
    created_at: toIso(row.created_at),
    created_by: row.created_by ?? row.organisation_id,
    done_at: toIsoOrNull(row.done_at),
  };
}

/** Owners and admins, and keys of the organisation that act for nobody: who sends requests must not be able to remove their traces. */
function checkMayErase({ role, kind }: Principal): void {
  if (role === 'owner' || role === 'admin' || kind === 'organisation-service') return;
  throw new SluiceError(
    'forbidden',
    'Stored requests can be erased by an owner or admin of the organisation, or with an organisation key. Ask one of them.',
  );
}

/** Runs in the transaction of the call, so that no answer after it shows what is erased. */
async function begin(
  call: Pick<Call, 'tx' | 'tenant' | 'clock' | 'vault' | 'principal' | 'audit' | 'onCommit' | 'service'>,
  selects: Erasure['selects'],
  value: string,
  before: number,
  destinations: readonly string[],
) {
  const { tx, tenant, clock, vault, principal } = call;
  if ((await tx.count('log_erasures', { where: { status: 'pending' } })) >= MOST_PENDING) {
    throw new SluiceError(
      'throttled',
      `${MOST_PENDING} erasures are pending, which is the most at a time. Try again when some are done.`,
      { retryAfter: RETRY_S },
    );
  }
  const id = uuidv7(clock);
  const now = clock.now();
  const row: Erasure = {
    id,
    organisation_id: tenant.organisationId,
    workspace_id: tenant.workspaceId,
    selects,
    subject: await vault.seal(tenant, subjectPlace(id), new Secret(value)),
    before,
    status: 'pending',
    nodes: {},
    rewritten_at: null,
    exports: await exportsBefore(tx, tenant.workspaceId),
    destinations: [...destinations],
    done_at: null,
    created_by: actorId(principal),
    created_at: now,
    last_updated_at: now,
  };
  await tx.insert('log_erasures', row);
  call.audit(id, { before: null, after: present(row) });
  call.onCommit(() => call.service(ERASURES)?.wake());
  return present(row);
}

/** Asked before the transaction: those of the organisation are not among the rows of a workspace. */
async function destinationsOf({ service, tenant }: Pick<Call, 'service' | 'tenant'>, workspaceId: string | null) {
  return (await service(ERASURES)?.destinations(tenant.organisationId, workspaceId)) ?? [];
}

async function exportsBefore(tx: TenantTx, workspaceId: string | null): Promise<string[]> {
  const rows = await tx.list('log_exports', {
    where: workspaceId === null ? {} : { workspace_id: workspaceId },
    orderBy: [
      ['created_at', 'desc'],
      ['id', 'desc'],
    ],
    limit: MOST_EXPORTS,
  });
  return rows.filter(({ runs }) => runs > 0).map(({ id }) => id);
}

const common = {
  tag: TAG,
  component: 'LogErasure',
  auth: 'key_or_login',
  // Organisation keys have no `logs.write`: they send no requests.
  scopes: ['logs.write', 'organisation_settings.update'],
  tenant: 'workspace_optional',
  workspace: 'past',
} as const;

const eraseLog = action({
  ...common,
  id: 'logs.delete',
  method: 'DELETE',
  path: '/logs/:logId',
  summary: 'Erase a request',
  description:
    'Its record and its bodies. No answer shows it from now on; files are written anew within a day. For owners, admins and organisation keys.',
  params: z.strictObject({ logId: z.string() }),
  query: z.strictObject({ ...tenantFields }),
  body: null,
  response: erasureItem,
  writes: true,
  audit: { action: 'delete', resource: 'logs' },
  ahead: async (
    call,
  ): Promise<Work<{ readonly workspaceId: string | null; readonly destinations: readonly string[] }>> => {
    checkMayErase(call.principal);
    const id = call.params.logId.toLowerCase();
    if (!isUuid(id)) throw notFound();
    const { scope } = await reachOf(call, 'logs.view');
    return withServices({ logs: KEPT_LOGS }, async ({ logs }) => {
      const row = await logs.store.find(scope, id);
      if (row === null) throw notFound();
      const workspaceId = typeof row.workspace_id === 'string' ? row.workspace_id : null;
      return { workspaceId, destinations: await destinationsOf(call, workspaceId) };
    });
  },
  run: async (call) => {
    const { destinations = [] } = call.asked ?? {};
    return begin(call, 'id', call.params.logId.toLowerCase(), Number.MAX_SAFE_INTEGER, destinations);
  },
});

const SELECTORS = ['end_user', 'api_key_id', 'trace_id'] as const;

const eraseBody = z
  .strictObject({
    ...tenantFields,
    end_user: text(MOST_CHARACTERS, 1).optional().describe('`_user` of the metadata of the requests.'),
    api_key_id: uuid.optional(),
    trace_id: text(MOST_CHARACTERS, 1).optional(),
    before: isoDate.optional().describe('Requests that arrived before this time; until now when absent.'),
  })
  .superRefine((body, context) => {
    const given = SELECTORS.filter((name) => body[name] !== undefined);
    if (given.length === 1) return;
    const message =
      given.length === 0 ? 'or api_key_id or trace_id is required' : `cannot be combined with ${given.at(-1)}`;
    context.addIssue({ code: 'custom', path: [given[0] ?? 'end_user'], message });
  });

const erase = action({
  ...common,
  id: 'logs.erase',
  method: 'POST',
  path: '/logs/erase',
  summary: 'Erase requests of an end user, an API key or a trace',
  description:
    'Their records and their bodies, in the named workspace or in all. No answer shows them from now on; files are written anew within a day. For owners, admins and organisation keys.',
  example: { body: { end_user: 'ada' } },
  params: null,
  query: z.strictObject({ ...tenantFields }),
  body: eraseBody,
  response: erasureItem,
  writes: true,
  audit: { action: 'delete', resource: 'logs' },
  ahead: async (call): Promise<Work<readonly string[]>> => {
    checkMayErase(call.principal);
    return withServices({}, () => destinationsOf(call, call.tenant.workspaceId));
  },
  run: async (call) => {
    const { body, clock } = call;
    const now = clock.now();
    const before = body.before === undefined ? now + 1 : toMillis(body.before);
    if (before > now + 1) throw refuse('before', 'must not be in the future');
    for (const name of SELECTORS) {
      const value = body[name];
      if (value !== undefined) return begin(call, name, value, before, call.asked ?? []);
    }
    throw new Error('one of them is there');
  },
});

function seen({ tenant }: Pick<Call, 'tenant'>): Where<'log_erasures'> {
  return tenant.workspaceId === null ? {} : { workspace_id: tenant.workspaceId };
}

const list = action({
  ...common,
  id: 'logs.erasures.list',
  method: 'GET',
  path: '/logs/erasures',
  summary: 'List erasures',
  description: 'Newest first. For owners, admins and organisation keys.',
  params: null,
  query: z.strictObject({ ...tenantFields, ...pageFields(MAX_PAGE_SIZE) }),
  body: null,
  response: listOf(erasureItem),
  writes: false,
  audit: null,
  run: async (call) => {
    checkMayErase(call.principal);
    const where = seen(call);
    const rows = await call.tx.list('log_erasures', {
      ...pageOf(call.query, DEFAULT_PAGE_SIZE),
      where,
      orderBy: [
        ['created_at', 'desc'],
        ['id', 'desc'],
      ],
    });
    const total = await call.tx.count('log_erasures', { where });
    return { object: 'list' as const, total, data: rows.map(present) };
  },
});

const read = action({
  ...common,
  id: 'logs.erasures.read',
  method: 'GET',
  path: '/logs/erasures/:erasureId',
  summary: 'Get an erasure',
  params: z.strictObject({ erasureId: z.string() }),
  query: z.strictObject({ ...tenantFields }),
  body: null,
  response: erasureItem,
  writes: false,
  audit: null,
  run: async (call) => {
    checkMayErase(call.principal);
    const id = call.params.erasureId.toLowerCase();
    const row = isUuid(id) ? await call.tx.find('log_erasures', { ...seen(call), id }) : undefined;
    if (row === undefined) throw notFound();
    return present(row);
  },
});

export const logErasures: readonly AnyAction[] = [erase, list, read, eraseLog];
