import { idProblem, readChecks } from '../../guardrails/catalog.ts';
import { slugify, uuidv7 } from '../../kernel/id.ts';
import type { Steps } from '../../kernel/turns.ts';
import type { Row, StoredCheck } from '../../store/schema.ts';
import { toIso } from '../body-fields.ts';
import { actorId, refuse, refuseIssues } from '../common.ts';
import { defineResource, itemAction } from '../define.ts';
import { isUuid } from '../fields.ts';
import { issuesOf } from '../issues.ts';
import { currentVersion } from '../kinds/versions.ts';
import type { Reference } from '../references.ts';
import type { Call } from '../resource.ts';
import { resourceSpec } from '../spec.ts';
import { checkCatalogue } from './check-catalogue.ts';
import { invoke } from './invoke.ts';
import { mappingActions, mappingsOf } from './mappings.ts';
import { type Guardrail, LEVELS, visible } from './rules.ts';
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
  const version = await currentVersion(call, 'guardrail_versions', row);
  const checks = version.checks.map((check, i) => maskCheck(call.vault, call.tenant, version.id, i, check));
  return {
    ...present(row),
    checks: await Promise.all(checks),
    actions: presentActions(version.actions),
    version_id: version.id,
    ...(row.target === 'mcp_tools' ? { mcp_server_mappings: await mappingsOf(call.tx, row.id) } : {}),
  };
}

/**
 * Checks of a body under the catalogue's rules. Throws 400 whose `param` is the path of the fault.
 *
 * @param target null where only the row knows it
 */
function* checked(
  given: readonly CheckInput[],
  target: Target | null,
  { checkHost }: Pick<Call, 'checkHost'>,
): Steps<StoredCheck[]> {
  const read = yield* readChecks(target, given);
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
  const workspaceId = await LEVELS.place(call, 'a guardrail');
  const target = body.target ?? 'llm';
  const stored = call.prepared as StoredCheck[];
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
  const { id, slug, version_id, created_at, owner_id } = row;
  return {
    row,
    version: { id: version_id, checks, actions: mergeActions(null, body.actions) },
    answer: { id, slug, version_id, created_at: toIso(created_at), created_by: owner_id },
  };
}

async function update(call: Call<unknown, unknown, UpdateBody>, row: Guardrail) {
  const { body, clock } = call;
  const former = await currentVersion(call, 'guardrail_versions', row);
  const id = uuidv7(clock);
  const sent = call.prepared as StoredCheck[] | null;
  for (const [index, check] of (sent ?? []).entries()) {
    const problem = idProblem(check.id, row.target);
    if (problem !== null) throw refuse(`checks[${index}].id`, problem);
  }
  const stored = sent ?? (await reopened(call, former));
  const checks = await sealChecks(call.vault, call.tenant, id, stored, former);
  return {
    patch: {
      name: body.name ?? row.name,
      version_id: id,
      updated_by: actorId(call.principal),
      last_updated_at: clock.now(),
    },
    version: { id, checks, actions: mergeActions(former.actions, body.actions) },
    answer: { id: row.id, slug: row.slug, version_id: id },
  };
}

/** The checks of a version as a body would send them: masks stand for what is sealed, and keep it. */
function reopened(call: Call, version: Row<'guardrail_versions'>): Promise<StoredCheck[]> {
  return Promise.all(version.checks.map((check, i) => maskCheck(call.vault, call.tenant, version.id, i, check)));
}

const spec = resourceSpec({
  name: 'guardrails',
  tag: 'Guardrails',
  table: 'guardrails',
  path: '/guardrails',
  param: 'guardrailId',
  // Older descriptions write `guard_<id>` in paths.
  pathPrefix: 'guard_',
  scopes: LEVELS.scopes,
  levels: LEVELS,
  versions: { table: 'guardrail_versions', of: 'guardrail_id' },
  tenant: 'organisation',
  object: 'guardrail',
  archives: true,
  visible,
  list: {
    query: filters,
    where: ({ query: { target } }) => (target === undefined ? {} : { target }),
    anyOf: ({ query: { ids } }) => {
      if (ids === undefined) return undefined;
      const uuids = ids.filter(isUuid).map((one) => one.toLowerCase());
      return [{ slug: { in: ids } }, { id: { in: uuids } }];
    },
    defaultPageSize: 100,
    maxPageSize: 1000,
    item,
    present,
  },
  detail,
  present: presentDetail,
  create: {
    description:
      'Returns the slug that configs, defaults and requests name. Without a workspace, and with `organisation_id`, it is a ' +
      'guardrail of the organisation.',
    example: {
      body: {
        name: 'No card numbers',
        checks: [{ id: 'gateway.pii', parameters: { categories: ['CREDIT_CARD'] } }],
        actions: { deny: true, async: false, on_success: {}, on_fail: {} },
      },
    },
    body: createBody,
    response: created,
    prepare: ({ checks, target = 'llm' }, given) => checked(checks, target, given),
    run: create,
  },
  update: {
    body: updateBody,
    response: updated,
    prepare: function* ({ checks }, given) {
      return checks === undefined ? null : yield* checked(checks, null, given);
    },
    run: update,
  },
  remove: {
    referred: ({ kind, name }: Reference) => `This guardrail is still used: ${kind} ${name}. Take it out there first.`,
  },
});

export const guardrails = defineResource({
  ...spec,
  actions: [checkCatalogue, itemAction(spec, invoke), ...mappingActions.map((one) => one(spec))],
});
