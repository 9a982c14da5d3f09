/** Rate-limits policies: how often, or with how many tokens, the requests they select may come. */
import { z } from 'zod';
import { uuidv7 } from '../../../kernel/id.ts';
import type { Where } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { name, text, toIso } from '../../body-fields.ts';
import { type Patch, requireWorkspace } from '../../common.ts';
import { defineResource, emptyAnswer } from '../../define.ts';
import { tenantFields } from '../../fields.ts';
import type { Call } from '../../resource.ts';
import { resourceSpec } from '../../spec.ts';
import {
  atLeastOne,
  checkConditions,
  checkGroups,
  conditions,
  conditionsAnswer,
  groupBy,
  groupByAnswer,
  unchangeable,
} from '../policy-fields.ts';
import { checkReach } from '../reach.ts';
import { simulateAction } from '../simulate.ts';

type PolicyRow = Row<'rate_policies'>;

const target = z.enum(['llm', 'mcp_tools']);
const type = z.enum(['requests', 'tokens']);
const unit = z.enum(['rpm', 'rph', 'rpd', 'rpw']);
const status = z.enum(['active', 'archived']);
const value = z.int().min(1).describe('Requests or tokens per minute, hour, day or week.');
const description = text(500).nullable().optional();

const createBody = z.strictObject({
  ...tenantFields,
  name: name.nullable().optional(),
  description,
  target: target.default('llm').describe('The calls it limits: calls of models, or calls of MCP tools.'),
  conditions,
  group_by: groupBy,
  type,
  unit,
  value,
});

const updateBody = atLeastOne(
  z.strictObject({
    name: name.nullable().optional(),
    description,
    conditions: conditions.optional(),
    unit: unit.optional(),
    value: value.optional(),
    type: unchangeable,
    target: unchangeable,
    group_by: unchangeable,
    workspace_id: unchangeable,
    organisation_id: unchangeable,
  }),
);

type CreateBody = z.output<typeof createBody>;
type UpdateBody = z.output<typeof updateBody>;

const answer = z.object({
  id: z.string(),
  name: z.string().nullable(),
  description: z.string().nullable(),
  target,
  conditions: conditionsAnswer,
  group_by: groupByAnswer,
  type,
  unit,
  value: z.number(),
  status,
  workspace_id: z.string(),
  organisation_id: z.string(),
  created_at: z.string(),
  last_updated_at: z.string(),
  object: z.literal('policy_rate_limits'),
});

function present(row: PolicyRow): z.input<typeof answer> {
  return {
    id: row.id,
    name: row.name,
    description: row.description,
    target: row.target,
    conditions: row.conditions,
    group_by: row.group_by,
    type: row.type,
    unit: row.unit,
    value: row.value,
    status: row.status,
    workspace_id: row.workspace_id,
    organisation_id: row.organisation_id,
    created_at: toIso(row.created_at),
    last_updated_at: toIso(row.last_updated_at),
    object: 'policy_rate_limits',
  };
}

const filters = z.object({
  status: status.default('active'),
  type: type.optional(),
  unit: unit.optional(),
  target: target.optional(),
  search: text(255).optional().describe('Part of the name.'),
});

async function create(call: Call<unknown, unknown, CreateBody>) {
  const { body, tenant, clock } = call;
  const workspaceId = requireWorkspace(call);
  checkConditions(body.target, body.conditions);
  checkGroups(body.target, body.group_by);
  const now = clock.now();
  const row: PolicyRow = {
    id: uuidv7(clock),
    organisation_id: tenant.organisationId,
    workspace_id: workspaceId,
    name: body.name ?? null,
    description: body.description ?? null,
    target: body.target,
    conditions: body.conditions,
    group_by: body.group_by,
    type: body.type,
    unit: body.unit,
    value: body.value,
    status: 'active',
    created_at: now,
    last_updated_at: now,
  };
  await checkReach(call, 'rate_policies', row);
  return { row, answer: { id: row.id, object: 'policy_rate_limits' as const } };
}

/** The columns that an update changes. */
function changed(body: UpdateBody, row: PolicyRow): Patch<'rate_policies'> {
  const patch: Patch<'rate_policies'> = {};
  if (body.conditions !== undefined) {
    checkConditions(row.target, body.conditions);
    patch.conditions = body.conditions;
  }
  if (body.name !== undefined) patch.name = body.name;
  if (body.description !== undefined) patch.description = body.description;
  if (body.unit !== undefined) patch.unit = body.unit;
  if (body.value !== undefined) patch.value = body.value;
  return patch;
}

const spec = resourceSpec({
  name: 'policies.rate-limits',
  tag: 'Policies',
  table: 'rate_policies',
  path: '/policies/rate-limits',
  param: 'id',
  scopes: ['policies'],
  tenant: 'workspace_optional',
  object: 'policy_rate_limits',
  noun: 'rate-limits policy',
  archives: true,
  list: {
    query: filters,
    where: ({ query }) => {
      const { search, status: state, type: kind, unit: per, target: of } = query;
      return {
        status: state,
        ...(kind === undefined ? {} : { type: kind }),
        ...(per === undefined ? {} : { unit: per }),
        ...(of === undefined ? {} : { target: of }),
        ...(search === undefined || search === '' ? {} : { name: { contains: search } }),
      } satisfies Where<'rate_policies'>;
    },
    defaultPageSize: 50,
    maxPageSize: 100,
    item: answer,
    present,
  },
  get: {
    query: z.object({ status: status.default('active') }),
    where: ({ query }) => ({ status: query.status }),
  },
  detail: answer,
  present,
  create: {
    body: createBody,
    response: z.object({ id: z.string(), object: z.literal('policy_rate_limits') }),
    run: create,
  },
  update: {
    body: updateBody,
    response: emptyAnswer,
    run: async (call, row) => {
      const patch = changed(call.body, row);
      if (patch.conditions !== undefined) await checkReach(call, 'rate_policies', { ...row, ...patch });
      return { patch, answer: {} };
    },
  },
  remove: {},
  actions: [
    simulateAction({
      kind: 'rate',
      table: 'rate_policies',
      name: 'rate-limits',
      bodies: { policy: createBody.omit({ workspace_id: true, organisation_id: true }), changes: updateBody },
      created: create,
      changed: (changes: UpdateBody, row) => ({ ...row, ...changed(changes, row) }),
      counting: async (...asked) => (await import('./counting.ts')).rateCounting(...asked),
    }),
  ],
});

export const rateLimits = defineResource(spec);
