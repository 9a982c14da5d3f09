/** Guardrails and their versions. */
import type { z } from 'zod';
import { checksSchema } from '../../guardrails/catalog.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { slugify, uuidv7 } from '../../kernel/id.ts';
import type { Where } from '../../store/ports.ts';
import type { Row, StoredCheck } from '../../store/schema.ts';
import { actorId, type Patch, refuse, refuseIssues, workspaceOf } from '../common.ts';
import { defineResource } from '../define.ts';
import { isUuid } from '../fields.ts';
import { issuesOf } from '../issues.ts';
import type { AnyAction, Call } from '../resource.ts';
import { toIso } from '../shapes.ts';
import { invoke } from './invoke.ts';
import { mappingActions, mappingsOf } from './mappings.ts';
import { type Guardrail, levelOf, PATH_PREFIX, PREFIXES, requireLevel, visible } from './rules.ts';
import {
  type CheckInput,
  type CreateBody,
  createBody,
  created,
  detail,
  filters,
  item,
  mergeActions,
  presentActions,
  type Target,
  type UpdateBody,
  updateBody,
  updated,
} from './schema.ts';
import { maskCheck, sealChecks, urlFaults } from './secrets.ts';

type AnyCall = Call<never, never, never> | Call;

const PREFIX = 'pg-';

function present(row: Guardrail) {
  return {
    id: row.id,
    name: row.name,
    slug: row.slug,
    organisation_id: row.organisation_id,
    workspace_id: row.workspace_id,
    target: row.target,
    status: row.status,
    owner_id: row.owner_id,
    created_by: row.owner_id,
    updated_by: row.updated_by,
    created_at: toIso(row.created_at),
    last_updated_at: toIso(row.last_updated_at),
    object: 'guardrail' as const,
  };
}

async function presentDetail(row: Guardrail, call: Call) {
  const version = await versionOf(call, row);
  const checks = version.checks.map((check, i) => maskCheck(call.vault, call.tenant, version.id, i, check));
  return {
    ...present(row),
    checks: await Promise.all(checks),
    actions: presentActions(version.actions),
    version_id: version.id,
    ...(row.target === 'mcp_tools' ? { mcp_server_mappings: await mappingsOf(call.tx, row.id) } : {}),
  };
}

async function versionOf(call: AnyCall, row: Guardrail): Promise<Row<'guardrail_versions'>> {
  const version = await call.tx.find('guardrail_versions', { id: row.version_id });
  if (!version) throw new SluiceError('internal', 'The guardrail has no current version.', { detail: row.id });
  return version;
}

/** Checks of a body under the catalogue's rules. Throws 400 whose `param` is the path of the fault. */
function checked({ checkHost }: Pick<Call, 'checkHost'>, given: readonly CheckInput[], target: Target): StoredCheck[] {
  const read = checksSchema(target).safeParse(given);
  if (!read.success) throw refuseIssues('', issuesOf(read.error, 'checks'));
  for (const [index, { parameters }] of read.data.entries()) {
    for (const { name, problem } of urlFaults(parameters ?? {}, checkHost)) {
      throw refuse(`checks[${index}].parameters.${name}`, problem);
    }
  }
  return read.data.map(({ parameters, ...check }) => ({ ...check, parameters: { ...parameters } }));
}

async function create(call: Call<unknown, unknown, CreateBody>) {
  const { body, clock } = call;
  const workspaceId = await workspaceOf(call);
  if (workspaceId === null && body.organisation_id === undefined) {
    throw refuse('workspace_id', 'is required, or organisation_id for a guardrail of the whole organisation');
  }
  requireLevel(call, workspaceId === null ? 'organisation' : 'workspace', 'create');
  const target = body.target ?? 'llm';
  const stored = checked(call, body.checks, target);
  const now = clock.now();
  const row: Guardrail = {
    id: uuidv7(clock),
    organisation_id: call.tenant.organisationId,
    workspace_id: workspaceId,
    slug: slugify(body.name, PREFIX),
    name: body.name,
    target,
    status: 'active',
    version_id: uuidv7(clock),
    owner_id: actorId(call.principal),
    updated_by: null,
    created_at: now,
    last_updated_at: now,
  };
  const checks = await sealChecks(call.vault, call.tenant, row.version_id, stored, null);
  return { row, checks, actions: mergeActions(null, body.actions) };
}

function newVersion(
  row: Guardrail,
  number: number,
  by: string,
  content: Pick<Row<'guardrail_versions'>, 'checks' | 'actions'>,
) {
  const { version_id: id, organisation_id, id: guardrail_id, last_updated_at: created_at } = row;
  return { id, organisation_id, guardrail_id, number, ...content, created_by: by, created_at };
}

const createAction: AnyAction = {
  id: 'guardrails.create',
  method: 'POST',
  path: '/guardrails',
  summary: 'Create a guardrail',
  description:
    'Returns the slug that configs, defaults and requests name. Without a workspace, and with `organisation_id`, it is a ' +
    'guardrail of the organisation.',
  example: {
    body: {
      name: 'No card numbers',
      checks: [{ id: 'gateway.pii', parameters: { categories: ['CREDIT_CARD'] } }],
      actions: { deny: true },
    },
  },
  tag: 'Guardrails',
  auth: 'key_or_login',
  scopes: PREFIXES.map((prefix) => `${prefix}.create`),
  tenant: 'organisation',
  params: null,
  query: null,
  body: createBody,
  response: created,
  writes: true,
  audit: { action: 'create', resource: 'guardrails' },
  run: async (call: Call<unknown, unknown, CreateBody>) => {
    const { row, checks, actions } = await create(call);
    await call.tx.insert('guardrails', row);
    const version = newVersion(row, 1, row.owner_id, { checks, actions });
    await call.tx.insert('guardrail_versions', version);
    call.audited(row.id, { before: null, after: { ...row, checks, actions }, table: 'guardrails' }, row.workspace_id);
    call.tx.changed({ workspaceId: row.workspace_id, topic: 'guardrails', entityId: row.id });
    const { id, slug, version_id, created_at, owner_id } = row;
    return { id, slug, version_id, created_at: toIso(created_at), created_by: owner_id };
  },
};

async function update(call: Call<unknown, unknown, UpdateBody>, row: Guardrail) {
  const { body, clock, tx } = call;
  requireLevel(call, levelOf(row), 'update');
  const former = await versionOf(call, row);
  const by = actorId(call.principal);
  const next: Guardrail = {
    ...row,
    name: body.name ?? row.name,
    version_id: uuidv7(clock),
    updated_by: by,
    last_updated_at: clock.now(),
  };
  const stored = body.checks === undefined ? await reopened(call, former) : checked(call, body.checks, row.target);
  const checks = await sealChecks(call.vault, call.tenant, next.version_id, stored, former);
  const actions = mergeActions(former.actions, body.actions);
  await tx.insert('guardrail_versions', newVersion(next, former.number + 1, by, { checks, actions }));
  call.audited(row.id, {
    before: { checks: former.checks, actions: former.actions },
    after: { checks, actions },
  });
  const patch: Patch<'guardrails'> = {
    name: next.name,
    version_id: next.version_id,
    updated_by: by,
    last_updated_at: next.last_updated_at,
  };
  return { patch, answer: { id: row.id, slug: row.slug, version_id: next.version_id } };
}

/** The checks of a version as a body would send them: masks stand for what is sealed, and keep it. */
function reopened(call: AnyCall, version: Row<'guardrail_versions'>): Promise<StoredCheck[]> {
  return Promise.all(version.checks.map((check, i) => maskCheck(call.vault, call.tenant, version.id, i, check)));
}

export const guardrails: readonly AnyAction[] = defineResource<'guardrails', CreateBody, UpdateBody>({
  name: 'guardrails',
  tag: 'Guardrails',
  table: 'guardrails',
  path: '/guardrails',
  param: 'guardrailId',
  pathPrefix: PATH_PREFIX,
  scopes: [...PREFIXES],
  tenant: 'organisation',
  object: 'guardrail',
  archives: true,
  visible,
  list: {
    query: filters,
    where: ({ query }) => {
      const { target } = query as z.output<typeof filters>;
      return (target === undefined ? {} : { target }) satisfies Where<'guardrails'>;
    },
    anyOf: ({ query }) => {
      const { ids } = query as z.output<typeof filters>;
      if (ids === undefined) return undefined;
      const uuids = ids.filter(isUuid).map((one) => one.toLowerCase());
      return [{ slug: { in: ids } }, { id: { in: uuids } }];
    },
    defaultPageSize: 100,
    maxPageSize: 1000,
    item,
  },
  detail,
  present: (row, call, full) => {
    if (!full) return present(row);
    requireLevel(call, levelOf(row), 'read');
    return presentDetail(row, call);
  },
  create: null,
  update: { body: updateBody, response: updated, run: update },
  remove: {
    check: async (call, row) => {
      requireLevel(call, levelOf(row), 'delete');
      const { id, slug, workspace_id: workspaceId } = row;
      const [used] = await call.references({ table: 'guardrails', id, slug, workspaceId });
      if (used === undefined) return;
      throw new SluiceError(
        'conflict',
        `This guardrail is still used: ${used.kind} ${used.name}. Take it out there first.`,
      );
    },
  },
  actions: [createAction, invoke, ...mappingActions],
});
