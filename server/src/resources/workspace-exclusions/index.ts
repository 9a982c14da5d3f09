/**
 * Workspaces that are exempt from the default guardrails of their organisation, input and output apart:
 * `GET` and `PUT /workspace-exclusions/input-guardrails` and `…/output-guardrails`.
 */
import { z } from 'zod';
import type { TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { refuse } from '../common.ts';
import { emptyAnswer, type Resource } from '../define.ts';
import { reference, tenantFields } from '../fields.ts';
import { singleton } from '../kinds/singleton.ts';
import type { AnyAction, Call } from '../resource.ts';

type Direction = Row<'guardrail_exclusions'>['direction'];

/** Entries of one body, which also bounds the values of one `IN`. */
const MAX_ENTRIES = 1_000;

const { organisation_id } = tenantFields;

const answer = z.object({
  object: z.literal('list'),
  total: z.number(),
  workspaces: z.array(z.object({ workspace_id: z.string(), workspace_slug: z.string(), excluded: z.literal(true) })),
});

const body = z.strictObject({
  organisation_id,
  workspaces: z
    .array(
      z.strictObject({
        workspace_id: reference.describe('UUID or slug.'),
        excluded: z.boolean().describe('True exempts the workspace, false ends its exemption.'),
      }),
    )
    .max(MAX_ENTRIES),
  override_existing: z
    .boolean()
    .default(false)
    .describe('True makes the entries the whole list: every other workspace loses its exemption.'),
});

type Body = z.output<typeof body>;

/** Active workspaces that are exempt, by slug. */
async function exempt(tx: TenantTx, direction: Direction): Promise<Row<'workspaces'>[]> {
  const rows = await tx.list('guardrail_exclusions', { where: { direction } });
  const ids = new Set(rows.map((row) => row.workspace_id));
  if (ids.size === 0) return [];
  const all = await tx.list('workspaces', { where: { status: 'active' }, orderBy: [['slug', 'asc']] });
  return all.filter((workspace) => ids.has(workspace.id));
}

/** Ids of the named workspaces and whether each is to be exempt. Throws 400 for an unknown one and for one named twice. */
async function resolve(tx: TenantTx, entries: Body['workspaces']): Promise<Map<string, boolean>> {
  const wanted = new Map<string, boolean>();
  if (entries.length === 0) return wanted;
  const names = entries.map((entry) => entry.workspace_id);
  const status = 'active' as const;
  const ids = names.map((name) => name.toLowerCase());
  // One after the other: with either in one statement SQLite reads every workspace.
  const found = [
    ...(await tx.list('workspaces', { where: { status, id: { in: ids } } })),
    ...(await tx.list('workspaces', { where: { status, slug: { in: names } } })),
  ];
  const byId = new Map(found.map((workspace) => [workspace.id, workspace]));
  const bySlug = new Map(found.map((workspace) => [workspace.slug, workspace]));
  for (const [index, entry] of entries.entries()) {
    const param = `workspaces[${index}].workspace_id`;
    const workspace = byId.get(entry.workspace_id.toLowerCase()) ?? bySlug.get(entry.workspace_id);
    if (workspace === undefined) throw refuse(param, 'names no workspace of your organisation; nothing was changed');
    if (wanted.has(workspace.id)) throw refuse(param, 'names a workspace that was named before');
    wanted.set(workspace.id, entry.excluded);
  }
  return wanted;
}

/** Makes the stored exemptions what the body asks for. */
async function apply(call: Call<unknown, unknown, Body>, direction: Direction): Promise<void> {
  const { tx, tenant, clock } = call;
  const wanted = await resolve(tx, call.body.workspaces);
  const rows = await tx.list('guardrail_exclusions', { where: { direction } });
  const now = new Set(rows.map((row) => row.workspace_id));
  const ends = [...now].filter((id) =>
    call.body.override_existing ? wanted.get(id) !== true : wanted.get(id) === false,
  );
  for (const workspace_id of ends) await tx.remove('guardrail_exclusions', { workspace_id, direction });
  for (const [workspace_id, excluded] of wanted) {
    if (!excluded || now.has(workspace_id)) continue;
    const row = { organisation_id: tenant.organisationId, workspace_id, direction, created_at: clock.now() };
    await tx.insert('guardrail_exclusions', row);
  }
}

const actionsOf = (direction: Direction): AnyAction[] =>
  singleton({
    name: `workspace-exclusions.${direction}`,
    tag: 'Workspace exclusions',
    path: `/workspace-exclusions/${direction}-guardrails`,
    // Exemptions are the organisation's to give: with an organisation-service key, not with a role.
    auth: 'key',
    scopes: 'organisation_exclusions',
    query: z.strictObject({ organisation_id }),
    resource: 'workspace_exclusions',
    read: {
      verb: 'list',
      summary: `List workspaces without the organisation's ${direction} guardrails`,
      response: answer,
      run: async ({ tx }) => {
        const workspaces = (await exempt(tx, direction)).map((workspace) => ({
          workspace_id: workspace.id,
          workspace_slug: workspace.slug,
          excluded: true as const,
        }));
        return { object: 'list' as const, total: workspaces.length, workspaces };
      },
    },
    update: {
      summary: `Exempt workspaces from the organisation's ${direction} guardrails`,
      description:
        'Each entry gives or ends the exemption of one workspace and the others keep theirs; with override_existing the ' +
        'entries become the whole list. All of a body is done, or nothing.',
      body,
      example: { body: { workspaces: [{ workspace_id: 'ws-research', excluded: true }] }, response: {} },
      response: emptyAnswer,
      run: async (call) => {
        const { tx, tenant } = call;
        const slugs = async () => (await exempt(tx, direction)).map((workspace) => workspace.slug);
        const before = await slugs();
        await apply(call, direction);
        tx.changed({ workspaceId: null, topic: 'guardrail_exclusions', entityId: tenant.organisationId });
        call.audit(tenant.organisationId, {
          before: { [`excluded_${direction}`]: before },
          after: { [`excluded_${direction}`]: await slugs() },
        });
        return {};
      },
    },
  });

export const workspaceExclusions: Resource = { actions: [...actionsOf('input'), ...actionsOf('output')] };
