/** Exports of request logs: `/logs/exports`. */
import { z } from 'zod';
import { SluiceError } from '../../../kernel/errors.ts';
import { uuidv7 } from '../../../kernel/id.ts';
import type { TenantTx } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { toIso } from '../../body-fields.ts';
import { actorId, refuse, requireWorkspace, unknownReference } from '../../common.ts';
import { changedColumns } from '../../define.ts';
import { tenantFields } from '../../fields.ts';
import { listOf, pageFields, pageOf } from '../../kinds/lists.ts';
import { type AnyAction, action, type Call } from '../../resource.ts';
import { Service, type Work, withServices } from '../../services.ts';
import { KEPT_LOGS, reachOf } from '../reach.ts';
import { signFileLink } from './file-link.ts';
import { type ChosenRows, chosenRows, type ExportFilters } from './filters.ts';
import { checkFields, findExport, mayReadBodies, restrictionsOf, seenExports } from './rights.ts';
import { createBody, exportItem, made, present, said, updateBody } from './schema.ts';

/** What the routes need of those that write the files. */
export interface ExportService {
  /** Rows of an export with `all`. */
  readonly maxRows: number;
  /** A hint that an export is to be looked at. */
  readonly wake: (id: string) => void;
}

export const EXPORTS = new Service<ExportService>('exports of request logs');

type Export = Row<'log_exports'>;

const TAG = 'Logs';
const READS = ['logs.list', 'logs.view'] as const;
const WRITES = ['logs.export'] as const;
const DEFAULT_PAGE_SIZE = 50;
const MAX_PAGE_SIZE = 100;
/** Exports of an organisation that are started and not at their end. */
const MOST_STARTED = 10;
/** Claims: `due_at` of a row that waits for nothing. */
const NEVER = Number.MAX_SAFE_INTEGER;

const params = z.strictObject({ exportId: z.string() });
const query = z.strictObject({ ...tenantFields });

const common = {
  tag: TAG,
  component: 'LogExport',
  auth: 'key_or_login',
  tenant: 'workspace_optional',
  workspace: 'past',
} as const;

/** Counts the rows that an export would have, outside of any transaction. */
async function countAhead(
  call: Call,
  workspaceId: string,
  asked: { readonly filters: ExportFilters; readonly requested_data: readonly string[]; readonly all: boolean },
): Promise<Work<number>> {
  await checkSlug(call.tx, workspaceId, asked.filters.workspace_slug);
  const reach = await reachOf({ ...call, tenant: { ...call.tenant, workspaceId } }, 'logs.view');
  await checkFields(call.tx, { ...reach, seesBodies: mayReadBodies(call) }, workspaceId, asked.requested_data);
  const maxRows = call.service(EXPORTS)?.maxRows ?? 0;
  const given = { now: call.clock.now() + 1, maxRows };
  const chosen = await chosenRows(call, reach, { filters: asked.filters, whole: asked.all }, given);
  return withServices({ logs: KEPT_LOGS, exports: EXPORTS }, async ({ logs }) => {
    const { skip, limit, selection } = chosen;
    const counted = await logs.store.count(selection, skip + limit);
    return checkedTotal(counted, chosen, asked.all);
  });
}

/** The rows of an export, of which `counted` were found. Throws 400 for more than there may be. */
export function checkedTotal(counted: number, { skip, limit }: ChosenRows, whole: boolean): number {
  if (whole && counted > limit) {
    throw refuse(
      'all',
      `would export more than ${limit} requests, which is the most of one file (SLUICE_EXPORT_MAX_ROWS): narrow the filters`,
    );
  }
  return Math.max(0, Math.min(counted - skip, limit));
}

async function checkSlug(tx: TenantTx, workspaceId: string, given: string | undefined): Promise<void> {
  if (given === undefined || given.toLowerCase() === workspaceId) return;
  const workspace = await tx.find('workspaces', { id: workspaceId });
  if (workspace?.slug === given) return;
  throw unknownReference('filters.workspace_slug', 'workspace but the one of the export');
}

function describe(filters: ExportFilters, now: number): string {
  const { time_of_generation_min: min, time_of_generation_max: max } = filters;
  const from = min === undefined ? '' : ` from ${min}`;
  return `Requests${from} until ${max ?? toIso(now)}`;
}

const create = action({
  ...common,
  id: 'logs.exports.create',
  method: 'POST',
  path: '/logs/exports',
  summary: 'Create an export of requests',
  description:
    'A draft: nothing is written before it is started. Without `all` the file has one page of at most 50000 requests, oldest first.',
  example: {
    body: {
      filters: { time_of_generation_min: '2026-05-01T00:00:00Z', time_of_generation_max: '2026-06-01T00:00:00Z' },
      requested_data: ['id', 'created_at', 'ai_model', 'total_units', 'cost'],
    },
  },
  scopes: WRITES,
  tenant: 'workspace',
  params: null,
  query,
  body: createBody,
  response: made,
  writes: true,
  audit: { action: 'create', resource: 'log_exports' },
  ahead: async (call): Promise<Work<number>> =>
    countAhead(call, requireWorkspace(call), { ...call.body, all: call.body.all === true }),
  run: async (call) => {
    const { tx, clock, tenant, principal, body } = call;
    const { filters, requested_data, format = 'jsonl', all = false, bom = false } = body;
    const now = clock.now();
    const row: Export = {
      id: uuidv7(clock),
      organisation_id: tenant.organisationId,
      workspace_id: requireWorkspace(call),
      user_id: principal.userId,
      filters,
      requested_data,
      format,
      whole: all,
      bom,
      description: body.description ?? describe(filters, now),
      status: 'draft',
      error: null,
      total: call.asked ?? 0,
      runs: 0,
      started_at: 0,
      covers: null,
      parts: [],
      place: null,
      incomplete: [],
      expires_at: null,
      step: 'done',
      cancel_requested: false,
      failures: 0,
      due_at: NEVER,
      holder: null,
      held_until: 0,
      created_by: actorId(principal),
      created_at: now,
      last_updated_at: now,
    };
    await tx.insert('log_exports', row);
    call.audit(row.id, { before: null, after: present(row) });
    return { id: row.id, total: row.total, object: 'export' as const };
  },
});

const list = action({
  ...common,
  id: 'logs.exports.list',
  method: 'GET',
  path: '/logs/exports',
  summary: 'List exports',
  description: 'Newest first. A user key sees those of its user.',
  scopes: READS,
  params: null,
  query: z.strictObject({ ...tenantFields, ...pageFields(MAX_PAGE_SIZE) }),
  body: null,
  response: listOf(exportItem),
  writes: false,
  audit: null,
  run: async (call) => {
    const where = await seenExports(call);
    const page = pageOf(call.query, DEFAULT_PAGE_SIZE);
    const rows = await call.tx.list('log_exports', {
      ...page,
      where,
      orderBy: [
        ['created_at', 'desc'],
        ['id', 'desc'],
      ],
    });
    const total = await call.tx.count('log_exports', { where });
    return { object: 'list' as const, total, data: rows.map(present) };
  },
});

const read = action({
  ...common,
  id: 'logs.exports.read',
  method: 'GET',
  path: '/logs/exports/:exportId',
  summary: 'Get an export',
  scopes: READS,
  params,
  query,
  body: null,
  response: exportItem,
  writes: false,
  audit: null,
  run: async (call) => present(await findExport(call, call.params.exportId)),
});

const update = action({
  ...common,
  id: 'logs.exports.update',
  method: 'PUT',
  path: '/logs/exports/:exportId',
  summary: 'Change an export',
  description: 'While it is a draft. `filters` are replaced as a whole; other fields that are left out stay.',
  scopes: WRITES,
  params,
  query,
  body: updateBody,
  response: made,
  writes: true,
  audit: { action: 'update', resource: 'log_exports' },
  ahead: async (call): Promise<Work<number>> => {
    const { body } = call;
    const row = await findExport(call, call.params.exportId);
    checkState(row, ['draft'], 'changed');
    const requested_data = body.requested_data ?? row.requested_data;
    const all = body.all ?? row.whole;
    if (all && (body.filters.page_size ?? body.filters.current_page) !== undefined) {
      throw refuse('filters.page_size', 'and current_page cannot be combined with all: true, which the export has');
    }
    return countAhead(call, row.workspace_id, { filters: body.filters, requested_data, all });
  },
  run: async (call) => {
    const { tx, body } = call;
    const row = await findExport(call, call.params.exportId);
    checkState(row, ['draft'], 'changed');
    const now = call.clock.now();
    const patch: Partial<Export> = {
      filters: body.filters,
      requested_data: body.requested_data ?? row.requested_data,
      format: body.format ?? row.format,
      whole: body.all ?? row.whole,
      bom: body.bom ?? row.bom,
      description: body.description ?? row.description,
      total: call.asked ?? 0,
      last_updated_at: now,
    };
    await tx.update('log_exports', { id: row.id }, patch);
    call.audit(row.id, changedColumns('log_exports', row, patch), row.workspace_id);
    return { id: row.id, total: patch.total ?? 0, object: 'export' as const };
  },
});

/** Notes another state of an export, and tells the job that writes it. */
async function move(call: Call, row: Export, patch: Partial<Export>): Promise<void> {
  await call.tx.update('log_exports', { id: row.id }, patch);
  call.audit(row.id, changedColumns('log_exports', row, { status: patch.status }), row.workspace_id);
  call.onCommit(() => call.service(EXPORTS)?.wake(row.id));
}

/** Throws 400 for an export in another state. */
function checkState({ status }: Export, allowed: readonly Export['status'][], what: string): void {
  if (allowed.includes(status)) return;
  const states = allowed.join(', ').replace(/, ([^,]+)$/, ' or $1');
  throw new SluiceError(
    'validation',
    `An export that is ${status} cannot be ${what}: that takes one that is ${states}.`,
  );
}

const start = action({
  ...common,
  id: 'logs.exports.start',
  method: 'POST',
  path: '/logs/exports/:exportId/start',
  summary: 'Start an export',
  description:
    'A draft, or anew one that failed or was stopped. An organisation writes one file at a time; others wait as `in_progress`.',
  scopes: WRITES,
  params,
  query,
  body: null,
  response: said,
  writes: true,
  audit: { action: 'export', resource: 'log_exports' },
  run: async (call) => {
    const { tx, clock } = call;
    const row = await findExport(call, call.params.exportId);
    checkState(row, ['draft', 'failed', 'stopped'], 'started');
    if (row.step !== 'done') {
      throw new SluiceError('conflict', 'The last run of this export is being cleaned up. Try again in a few seconds.');
    }
    const reach = await reachOf({ ...call, tenant: { ...call.tenant, workspaceId: row.workspace_id } }, 'logs.view');
    await checkFields(tx, { ...reach, seesBodies: mayReadBodies(call) }, row.workspace_id, row.requested_data);
    if ((await tx.count('log_exports', { where: { status: 'in_progress' } })) >= MOST_STARTED) {
      throw new SluiceError(
        'throttled',
        `${MOST_STARTED} exports are in progress, which is the most at a time. Wait for one of them, or cancel one.`,
        { retryAfter: 30 },
      );
    }
    const now = clock.now();
    const patch: Partial<Export> = {
      status: 'in_progress',
      error: null,
      runs: row.runs + 1,
      started_at: now,
      covers: null,
      parts: [],
      place: null,
      incomplete: [],
      step: 'begin',
      cancel_requested: false,
      failures: 0,
      due_at: 0,
      last_updated_at: now,
    };
    await move(call, row, patch);
    return { message: 'The export is started.', object: 'export' as const };
  },
});

const cancel = action({
  ...common,
  id: 'logs.exports.cancel',
  method: 'POST',
  path: '/logs/exports/:exportId/cancel',
  summary: 'Cancel an export',
  description: 'Its file is deleted. It can be started anew.',
  scopes: WRITES,
  params,
  query,
  body: null,
  response: said,
  writes: true,
  audit: { action: 'manage', resource: 'log_exports' },
  run: async (call) => {
    const { clock } = call;
    const row = await findExport(call, call.params.exportId);
    checkState(row, ['in_progress'], 'cancelled');
    const patch: Partial<Export> = {
      status: 'stopped',
      cancel_requested: true,
      due_at: 0,
      last_updated_at: clock.now(),
    };
    await move(call, row, patch);
    return { message: 'The export is stopped.', object: 'export' as const };
  },
});

const download = action({
  ...common,
  id: 'logs.exports.download',
  method: 'GET',
  path: '/logs/exports/:exportId/download',
  summary: 'Get a link to the file of an export',
  description:
    'The link works for 15 minutes, without a credential, while the caller could still ask for it. The file is deleted 7 days after the export.',
  scopes: WRITES,
  params,
  query,
  body: null,
  response: z.object({ signed_url: z.string() }),
  writes: true,
  audit: { action: 'export', resource: 'log_exports' },
  // A GET may write with this alone; refusals leave an audit row, too.
  ahead: async () => null,
  run: async (call) => {
    const { tx, principal, tenant, clock, vault, publicUrl } = call;
    const row = await findExport(call, call.params.exportId);
    checkState(row, ['success'], 'downloaded');
    if (row.expires_at === null || row.expires_at <= clock.now()) {
      throw new SluiceError(
        'validation',
        'The file of this export is deleted. Create a new export of the same requests.',
      );
    }
    const reach = await reachOf({ ...call, tenant: { ...tenant, workspaceId: row.workspace_id } }, 'logs.view');
    await checkFields(tx, { ...reach, seesBodies: mayReadBodies(call) }, row.workspace_id, row.requested_data);
    const { organisationId } = tenant;
    const { userId, keyId } = principal;
    const token = signFileLink(vault, { organisationId, exportId: row.id, run: row.runs, userId, keyId }, clock.now());
    call.audit(row.id, undefined, row.workspace_id);
    return { signed_url: `${publicUrl}/v1/logs/exports/${row.id}/file?token=${token}` };
  },
});

const restrictions = action({
  ...common,
  id: 'logs.exports.field-restrictions',
  method: 'GET',
  path: '/logs/exports/field-restrictions',
  summary: 'Read which fields exports may not have',
  component: 'LogExportFieldRestrictions',
  description: 'Of a workspace; without one, of the organisation.',
  scopes: WRITES,
  params: null,
  query,
  body: null,
  response: z.object({
    workspace_id: z.string().nullable(),
    deniedFields: z.array(z.string()),
    source: z.enum(['organisation', 'workspace', 'none']),
    object: z.literal('export-field-restrictions'),
  }),
  writes: false,
  audit: null,
  run: async ({ tx, tenant }) => {
    const { workspaceId } = tenant;
    const { deniedFields, source } = await restrictionsOf(tx, workspaceId);
    return { workspace_id: workspaceId, deniedFields, source, object: 'export-field-restrictions' as const };
  },
});

export const logExports: readonly AnyAction[] = [restrictions, create, list, read, update, start, cancel, download];
