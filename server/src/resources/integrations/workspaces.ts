/**
 * Which workspaces may use an organisation's integration, with which limits. An integration whose access was
 * never set is open to the whole organisation; the first change makes the list the truth, and a workspace without an
 * entry then follows `global_workspace_access`.
 */
import { z } from 'zod';
import type { TenantTx } from '../../store/ports.ts';
import type { IntegrationAccess, Row } from '../../store/schema.ts';
import { usageLimitsOf } from '../body-fields.ts';
import { findWorkspace, refuse, unknownReference } from '../common.ts';
import { emptyAnswer, itemAction } from '../define.ts';
import { tenantFields } from '../fields.ts';
import { childList } from '../kinds/child.ts';
import { upsert } from '../kinds/upsert.ts';
import type { AnyAction, Call } from '../resource.ts';
import { isOpenTo } from '../runtime-rows.ts';
import type { ResourceSpec } from '../spec.ts';
import { accessUsage, followUpdate, presentUsage } from '../usage-counters.ts';
import { createDefaultProvider, type Integration } from './rules.ts';
import { WORKSPACES, type WorkspacesBody, workspaceAnswer, workspacesBody } from './schema.ts';

type PathCall<B = unknown> = Call<unknown, unknown, B>;

export function presentAccess(access: IntegrationAccess) {
  return {
    enabled: access.enabled,
    usage_limits: access.usage_limits ?? [],
    rate_limits: access.rate_limits ?? [],
  };
}

/** Number of active workspaces that may use the integration. */
export async function countWorkspaces(tx: TenantTx, row: Integration): Promise<number> {
  if (row.workspace_id !== null) return 1;
  const workspaces = await tx.list('workspaces', { where: { status: 'active' } });
  const access = await tx.list('integration_workspaces', { where: { integration_id: row.id } });
  const own = new Map(access.map((entry) => [entry.workspace_id, entry]));
  return workspaces.filter((workspace) => isOpenTo(row, own.get(workspace.id) ?? null)).length;
}

/**
 * The ids of the workspaces that may pass any request through, each once; null for none. Throws 400 for an integration of
 * one workspace, which needs no such thing, and 404 for an unknown workspace.
 */
export async function readPassthrough(
  call: Pick<Call, 'tx' | 'principal'>,
  workspaceId: string | null,
  given: { readonly workspaces: readonly string[] } | null | undefined,
): Promise<string[] | null> {
  if (given == null || given.workspaces.length === 0) return null;
  const ids = new Set<string>();
  const bound = call.principal.workspaceId;
  for (const [index, name] of given.workspaces.entries()) {
    const workspace = await findWorkspace(call.tx, name);
    // A caller that is bound to one workspace learns of no other.
    if (!workspace || (bound !== null && bound !== workspace.id))
      throw unknownReference(`passthrough.workspaces[${index}]`, 'workspace');
    ids.add(workspace.id);
  }
  if (workspaceId !== null) {
    throw refuse(
      'passthrough',
      'cannot be set: this integration belongs to one workspace, which reaches all of its account',
    );
  }
  return [...ids];
}

type Spec = ResourceSpec<'integrations'>;

export function workspaceActions(spec: Spec): AnyAction[] {
  return [
    childList(spec, {
      name: 'workspaces',
      summary: 'List the workspaces of an integration',
      withoutWorkspace: true,
      table: 'integration_workspaces',
      where: (row) => ({ integration_id: row.id }),
      item: workspaceAnswer,
      envelope: WORKSPACES,
      present: presentAll,
    }),
    itemAction(spec, {
      name: 'workspaces.update',
      path: '/workspaces',
      method: 'PUT',
      summary: 'Set which workspaces may use an integration',
      verb: 'update',
      scopes: ['organisation_integrations.update'],
      query: z.strictObject({ organisation_id: tenantFields.organisation_id }),
      body: workspacesBody,
      response: emptyAnswer,
      audit: 'update',
      run: async (call, row) => {
        if (row.workspace_id !== null) {
          throw refuse('workspaces', 'cannot be set: this integration belongs to one workspace');
        }
        await setAccess(call, row);
        return { answer: {} };
      },
    }),
  ];
}

async function presentAll(access: readonly Row<'integration_workspaces'>[], { tx }: Call, row: Integration) {
  const ids = access.map((entry) => entry.workspace_id);
  const workspaces = ids.length === 0 ? [] : await tx.list('workspaces', { where: { id: { in: ids } } });
  const slugs = new Map(workspaces.map((workspace) => [workspace.id, workspace.slug]));
  const counted = await accessUsage(tx, row.id);
  return access.map((entry) => ({
    id: entry.workspace_id,
    slug: slugs.get(entry.workspace_id) ?? '',
    ...presentAccess(entry),
    usage_limits: (entry.usage_limits ?? []).map((limit) =>
      presentUsage(limit, counted(entry.workspace_id, limit), { exhausted: false, lastResetAt: null }),
    ),
  }));
}

async function setAccess(call: PathCall<WorkspacesBody>, row: Integration): Promise<void> {
  const { body, tx } = call;
  const now = call.clock.now();
  const entries = await resolve(call);

  const existing = await tx.list('integration_workspaces', { where: { integration_id: row.id } });
  const old = new Map(existing.map((entry) => [entry.workspace_id, entry]));
  const global = globalAccess(body, now) ?? (row.global_workspace_access === null ? { enabled: false } : null);
  await tx.update(
    'integrations',
    { id: row.id },
    { ...(global === null ? {} : { global_workspace_access: global }), last_updated_at: now },
  );
  const wanted = entries.map(({ entry, workspace }): Row<'integration_workspaces'> => {
    const before = old.get(workspace.id);
    return {
      organisation_id: row.organisation_id,
      integration_id: row.id,
      workspace_id: workspace.id,
      enabled: entry.enabled,
      usage_limits: entry.usage_limits === undefined ? (before?.usage_limits ?? null) : entry.usage_limits,
      rate_limits: entry.rate_limits === undefined ? (before?.rate_limits ?? null) : entry.rate_limits,
      created_at: before?.created_at ?? now,
      last_updated_at: now,
    };
  });
  const others = body.override_existing_workspace_access === true ? 'go' : 'stay';
  await upsert(tx, 'integration_workspaces', ['integration_id', 'workspace_id'], existing, wanted, { others });
  for (const [index, { entry, workspace }] of entries.entries()) {
    await settleProviders(call, row, workspace.id, entry, index);
  }
  const workspaces = await tx.list('integration_workspaces', { where: { integration_id: row.id } });
  await followAccess(call, row, {
    now,
    entries,
    removed: existing.filter((entry) => !workspaces.some(({ workspace_id: id }) => id === entry.workspace_id)),
    workspaces,
    global,
  });
  call.audit(row.id, {
    before: { workspaces: existing, global_workspace_access: row.global_workspace_access },
    after: { workspaces, global_workspace_access: global ?? row.global_workspace_access },
  });
  tx.changed({ workspaceId: null, topic: 'integrations', entityId: row.id });
}

function globalAccess({ global_workspace_access: given }: WorkspacesBody, now: number) {
  if (given?.usage_limits == null) return given;
  return { ...given, usage_limits: usageLimitsOf(given.usage_limits, now, 'global_workspace_access.usage_limits') };
}

type Entry = NonNullable<WorkspacesBody['workspaces']>[number];

/** The workspaces that the body names, each once. Throws 404 for an unknown one. */
async function resolve(call: PathCall<WorkspacesBody>): Promise<{ entry: Entry; workspace: Row<'workspaces'> }[]> {
  const out: { entry: Entry; workspace: Row<'workspaces'> }[] = [];
  const seen = new Set<string>();
  for (const [index, entry] of (call.body.workspaces ?? []).entries()) {
    const workspace = await findWorkspace(call.tx, entry.id);
    if (!workspace) throw unknownReference(`workspaces[${index}].id`, 'workspace');
    if (seen.has(workspace.id)) throw refuse(`workspaces[${index}].id`, 'names a workspace that is named already');
    seen.add(workspace.id);
    const limits = usageLimitsOf(entry.usage_limits, call.clock.now(), `workspaces[${index}].usage_limits`);
    out.push({ entry: { ...entry, usage_limits: limits }, workspace });
  }
  return out;
}

/**
 * Makes what was counted follow: of the workspaces that were named, of those that lost their entry, and, when the limits
 * of all others were set, of all that have counted without an entry.
 */
async function followAccess(
  { body, tx, clock }: PathCall<WorkspacesBody>,
  row: Integration,
  done: {
    readonly now: number;
    readonly entries: readonly { readonly entry: Entry; readonly workspace: Row<'workspaces'> }[];
    readonly removed: readonly Row<'integration_workspaces'>[];
    readonly workspaces: readonly Row<'integration_workspaces'>[];
    readonly global: IntegrationAccess | null;
  },
): Promise<void> {
  const own = new Map(done.workspaces.map((entry) => [entry.workspace_id, entry.usage_limits]));
  const others = (done.global ?? row.global_workspace_access)?.usage_limits ?? null;
  const changed = new Map(done.entries.map(({ entry, workspace }) => [workspace.id, entry.reset_usage === true]));
  for (const { workspace_id: id } of done.removed) changed.set(id, false);
  if (body.global_workspace_access !== undefined) {
    const counted = await tx.list('usage_buckets', { where: { owner_kind: 'integration', owner_id: row.id } });
    for (const { workspace_id: id } of counted) if (!own.has(id) && !changed.has(id)) changed.set(id, false);
  }
  for (const [workspaceId, reset] of changed) {
    const limits = own.has(workspaceId) ? (own.get(workspaceId) ?? null) : others;
    const owner = { kind: 'integration', id: row.id, label: row.slug, at: done.now } as const;
    await followUpdate(tx, clock, { ...owner, usage_limits: limits, workspaceId }, reset);
  }
}

/** Gives an enabled workspace its first provider. */
async function settleProviders(
  call: PathCall<WorkspacesBody>,
  row: Integration,
  workspaceId: string,
  entry: Entry,
  index: number,
): Promise<void> {
  const mine = { integration_id: row.id, workspace_id: workspaceId } as const;
  if (!entry.enabled || (entry.create_default_provider ?? call.body.create_default_provider) === false) return;
  if ((await call.tx.count('providers', { where: { ...mine, status: { not: 'archived' } } })) > 0) return;
  const own = entry.default_provider_slug;
  const param = own ? `workspaces[${index}].default_provider_slug` : 'default_provider_slug';
  await createDefaultProvider(call, row, workspaceId, own || call.body.default_provider_slug, param);
}
