/** Feedback on requests: `POST`, `GET /feedback`, `GET`, `PUT /feedback/{id}`. */
import { z } from 'zod';
import { uuidv7 } from '../../kernel/id.ts';
import type { StoredLog, Where } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { MICROS, opinionColumns, subjectColumns } from '../../telemetry/feedback.ts';
import { text } from '../body-fields.ts';
import { requireWorkspace } from '../common.ts';
import type { Resource } from '../define.ts';
import { isUuid, tenantFields } from '../fields.ts';
import { listOf, pageFields, pageOf } from '../kinds/lists.ts';
import { ownRequests, sightOf } from '../logs/sight.ts';
import { notFound } from '../look-up.ts';
import { action, type Call } from '../resource.ts';
import { createBody, feedbackItem, type Item, present, updateBody, written } from './schema.ts';
import { lookUp } from './traces.ts';

const DEFAULT_PAGE_SIZE = 50;
const ID = 'feedbackId';
const TAG = 'Feedback';
const READS = ['feedbacks.read', 'logs.view'] as const;
const WRITES = ['feedbacks.write', 'logs.write'] as const;

const asList = (body: Item | Item[]): readonly Item[] => (Array.isArray(body) ? body : [body]);

const create = action<unknown, unknown, Item | Item[], z.input<typeof written>, ReadonlyMap<string, StoredLog>>({
  id: 'feedback.create',
  method: 'POST',
  path: '/feedback',
  summary: 'Give feedback on requests',
  description:
    'One feedback, or a list of up to 100. All of a list are stored, or none. A feedback on a trace that the workspace ' +
    'has no request of is stored, too.',
  example: {
    body: { trace_id: 'conversation-17', value: 5, weight: 0.5, metadata: { comment: 'helpful', _user: 'ada' } },
  },
  tag: TAG,
  component: 'Feedback',
  auth: 'key_or_login',
  scopes: WRITES,
  tenant: 'workspace',
  params: null,
  query: z.strictObject({ ...tenantFields }),
  body: createBody,
  takes: 'one_or_many',
  response: written,
  writes: true,
  audit: null,
  unaudited: true,
  ahead: async (call) =>
    lookUp(
      call,
      asList(call.body).map(({ trace_id }) => trace_id),
    ),
  run: async (call) => {
    const { principal, tenant, clock, tx } = call;
    const workspaceId = requireWorkspace(call);
    const now = clock.now();
    const rows = asList(call.body).map(({ trace_id, value, weight = 1, metadata = null }): Row<'feedback'> => {
      const record = call.asked?.get(trace_id) ?? null;
      const user = record?.user_id;
      return {
        id: uuidv7(clock),
        organisation_id: tenant.organisationId,
        workspace_id: workspaceId,
        trace_id,
        ...opinionColumns({ value, weight, metadata }),
        ...subjectColumns(record),
        source: 'api',
        api_key_id: principal.keyId,
        user_id: typeof user === 'string' ? user : principal.userId,
        created_at: now,
        last_updated_at: now,
      };
    });
    for (const row of rows) await tx.insert('feedback', row);
    return {
      status: 'success' as const,
      message: rows.length === 1 ? 'The feedback is stored.' : `${rows.length} feedbacks are stored.`,
      feedback_ids: rows.map(({ id }) => id),
      matched: rows.map(({ matched }) => matched),
    };
  },
});

const update = action({
  id: 'feedback.update',
  method: 'PUT',
  path: `/feedback/:${ID}`,
  summary: 'Change a feedback',
  description: 'A field that is left out keeps its value.',
  tag: TAG,
  component: 'Feedback',
  auth: 'key_or_login',
  scopes: WRITES,
  tenant: 'workspace',
  params: z.strictObject({ [ID]: z.string() }),
  query: z.strictObject({ ...tenantFields }),
  body: updateBody,
  response: written,
  writes: true,
  audit: null,
  unaudited: true,
  run: async (call) => {
    const { tx, clock, body } = call;
    const row = await find(call);
    const { value, weight = row.weight_micros / MICROS, metadata = row.metadata } = body;
    const patch = { ...opinionColumns({ value, weight, metadata }), last_updated_at: clock.now() };
    await tx.update('feedback', { id: row.id }, patch);
    return {
      status: 'success' as const,
      message: 'The feedback is changed.',
      feedback_ids: [row.id],
      matched: [row.matched],
    };
  },
});

const read = action({
  id: 'feedback.read',
  method: 'GET',
  path: `/feedback/:${ID}`,
  summary: 'Get a feedback',
  tag: TAG,
  component: 'Feedback',
  auth: 'key_or_login',
  scopes: READS,
  tenant: 'workspace_optional',
  params: z.strictObject({ [ID]: z.string() }),
  query: z.strictObject({ ...tenantFields }),
  body: null,
  response: feedbackItem,
  writes: false,
  audit: null,
  run: async (call) => {
    const row = await find(call);
    const { noMetadata } = await sightOf(call, row.workspace_id);
    return present(row, noMetadata === null);
  },
});

const list = action({
  id: 'feedback.list',
  method: 'GET',
  path: '/feedback',
  summary: 'List feedback, newest first',
  tag: TAG,
  component: 'Feedback',
  auth: 'key_or_login',
  scopes: READS,
  tenant: 'workspace',
  params: null,
  query: z.strictObject({
    ...pageFields(100),
    ...tenantFields,
    trace_id: text(255, 1).optional().describe('Feedback on this trace only.'),
  }),
  body: null,
  response: listOf(feedbackItem),
  writes: false,
  audit: null,
  run: async (call) => {
    const { tx, query } = call;
    const page = pageOf(query, DEFAULT_PAGE_SIZE);
    const workspaceId = requireWorkspace(call);
    const sight = await sightOf(call, workspaceId);
    const { trace_id } = query;
    const where: Where<'feedback'> = {
      workspace_id: workspaceId,
      ...(trace_id === undefined ? {} : { trace_id }),
      ...ownRequests(sight, call.principal.userId),
    };
    const total = await tx.count('feedback', { where });
    const rows = await tx.list('feedback', { where, orderBy: [['created_at', 'desc']], ...page });
    return { object: 'list' as const, total, data: rows.map((row) => present(row, sight.noMetadata === null)) };
  },
});

/** The feedback of the path, which the caller may see. */
async function find(call: Call<unknown>): Promise<Row<'feedback'>> {
  const id = String((call.params as Readonly<Record<string, unknown>>)[ID]).toLowerCase();
  const row = isUuid(id) ? await call.tx.find('feedback', { id }) : undefined;
  if (row === undefined) throw notFound();
  const own = ownRequests(await sightOf(call, row.workspace_id), call.principal.userId);
  if (own.user_id !== undefined && row.user_id !== own.user_id) throw notFound();
  return row;
}

export const feedback: Resource = { actions: [list, create, read, update] };
