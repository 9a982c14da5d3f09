/** Which workspaces the members of a directory's groups belong to. */
import { z } from 'zod';
import { SluiceError } from '../../../kernel/errors.ts';
import { uuidv7 } from '../../../kernel/id.ts';
import type { Row } from '../../../store/schema.ts';
import { checkGivesIn } from '../../admin/give.ts';
import { keepByHand, setSources } from '../../admin/workspaces/sources.ts';
import { findWorkspace, refuse, unknownReference } from '../../common.ts';
import type { Resource } from '../../define.ts';
import { isUuid, reference, tenantFields, uuid } from '../../fields.ts';
import { notFound } from '../../look-up.ts';
import { action, type Call } from '../../resource.ts';
import {
  checkRunsOrganisation,
  groupName,
  mapping,
  namedGroup,
  pages,
  presentMapping,
  slice,
  sourceOf,
} from '../groups.ts';

type Mapping = Row<'scim_mappings'>;

/** Mappings of one organisation. */
const MAX_MAPPINGS = 5000;
/** Groups with such names say by them which workspace they are for. */
const RESERVED = /^ws-.+-role-.+$/i;

const ROLES = ['admin', 'manager', 'member'] as const;
const role = z
  .string()
  .transform((value) => value.toLowerCase())
  .pipe(z.enum(ROLES))
  .meta({ type: 'string', description: 'admin, manager or member, in any case; answered in lower case.' });

const body = z
  .strictObject({
    organisation_id: tenantFields.organisation_id,
    workspace_id: reference.describe('Slug or UUID.'),
    role,
    scim_group_id: uuid.optional().describe('Either this or scim_group_name.'),
    scim_group_name: groupName.optional().describe('A group that is not there is made, without members.'),
  })
  .refine((given) => (given.scim_group_id === undefined) !== (given.scim_group_name === undefined), {
    path: ['scim_group_id'],
    message: 'or scim_group_name must be given, and not both',
  });

type Body = z.output<typeof body>;

const shared = {
  path: '/scim/workspaces',
  tag: 'SCIM',
  auth: 'key_or_login',
  scopes: ['workspaces.update'],
  tenant: 'organisation',
} as const;

const list = action({
  ...shared,
  id: 'scim-workspaces.list',
  method: 'GET',
  summary: 'List the mappings of groups to workspaces',
  params: null,
  query: z.strictObject({
    ...pages,
    workspace_id: reference.optional().describe('Slug or UUID.'),
    scim_group_id: uuid.optional(),
    role: role.optional(),
  }),
  body: null,
  response: z.object({ mappings: z.array(mapping), page: z.int(), page_size: z.int(), total_count: z.int() }),
  writes: false,
  audit: null,
  run: async (call) => {
    checkRunsOrganisation(call);
    const { tx, query } = call;
    const { workspace_id: named, scim_group_id: group_id, role: wanted } = query;
    const workspace = named === undefined ? undefined : await findWorkspace(tx, named);
    if (named !== undefined && workspace === undefined) throw unknownReference('workspace_id', 'workspace');
    if (group_id !== undefined && (await tx.find('scim_groups', { id: group_id })) === undefined) {
      throw unknownReference('scim_group_id', 'SCIM group');
    }
    const where = {
      ...(workspace === undefined ? {} : { workspace_id: workspace.id }),
      ...(group_id === undefined ? {} : { group_id }),
      ...(wanted === undefined ? {} : { role: wanted }),
    };
    const { shown, part } = slice(query);
    const rows = await tx.list('scim_mappings', { where, orderBy: [['created_at', 'desc']], ...part });
    const total_count = await tx.count('scim_mappings', { where });
    const ids = [...new Set(rows.map((row) => row.group_id))];
    const groups = ids.length === 0 ? [] : await tx.list('scim_groups', { where: { id: { in: ids } } });
    const byId = new Map(groups.map((group) => [group.id, group]));
    const mappings = rows.flatMap((row) => {
      const group = byId.get(row.group_id);
      return group === undefined ? [] : [presentMapping(row, group)];
    });
    return { mappings, ...shown, total_count };
  },
});

/** All mappings of a group give one role: else a group would have to be split to be understood. */
function checkMappings(others: readonly Mapping[], workspaceId: string, given: Body): void {
  if (others.some((other) => other.workspace_id === workspaceId)) {
    throw new SluiceError(
      'conflict',
      'This group is mapped to this workspace already. To change the role, delete the mappings of the group and make them anew.',
      { param: 'workspace_id' },
    );
  }
  const other = others.find((one) => one.role !== given.role);
  if (other === undefined) return;
  throw refuse('role', `must be ${other.role}, the role of the group’s other mappings`);
}

async function map(call: Call<unknown, unknown, Body>) {
  checkRunsOrganisation(call);
  const { tx, clock, body: given } = call;
  const { workspace_id: named, role: wanted } = given;
  const workspace = await findWorkspace(tx, named);
  if (workspace === undefined) throw unknownReference('workspace_id', 'workspace');
  // A group gives its members the role for as long as it is mapped, whoever puts them into it.
  await checkGivesIn(call, { workspace_id: workspace.id, role: wanted }, 'role');
  if (given.scim_group_name !== undefined && RESERVED.test(given.scim_group_name)) {
    throw refuse(
      'scim_group_name',
      'must not have the form ws-…-role-…, which is reserved. Name the group otherwise in your directory',
    );
  }
  if ((await tx.count('scim_mappings', {})) >= MAX_MAPPINGS) {
    throw new SluiceError('conflict', `An organisation has at most ${MAX_MAPPINGS} mappings. Delete one first.`);
  }
  const group = await namedGroup(call, given);
  checkMappings(await tx.list('scim_mappings', { where: { group_id: group.id } }), workspace.id, given);
  const row: Mapping = {
    id: uuidv7(clock),
    organisation_id: call.tenant.organisationId,
    workspace_id: workspace.id,
    group_id: group.id,
    role: wanted,
    created_at: clock.now(),
  };
  await tx.insert('scim_mappings', row);
  const members = await tx.list('scim_group_members', { where: { group_id: group.id } });
  const userIds = members.map((member) => member.user_id);
  await setSources({ tx, clock, workspaceId: workspace.id, source: sourceOf(group.id), role: wanted, userIds });
  call.audit(row.id, { before: null, after: { ...row, members: members.length } }, workspace.id);
  return presentMapping(row, group);
}

const create = action({
  ...shared,
  id: 'scim-workspaces.create',
  method: 'POST',
  summary: 'Map a group to a workspace',
  description:
    'The members of the group belong to the workspace at once, with this role unless something else gives them a higher one. A group may be mapped to many workspaces, with one role.',
  example: { body: { workspace_id: 'ws-research', role: 'member', scim_group_name: 'Research' } },
  params: null,
  query: null,
  body,
  response: mapping,
  writes: true,
  audit: { action: 'create', resource: 'scim-workspaces' },
  run: map,
});

const remove = action({
  ...shared,
  id: 'scim-workspaces.delete',
  method: 'DELETE',
  path: '/scim/workspaces/:mappingId',
  summary: 'Delete a mapping',
  description:
    'Members stay, as if they had been added by hand: later changes of the group do not touch them. Remove them from the workspace one by one.',
  params: z.strictObject({ mappingId: z.string() }),
  query: z.strictObject({ organisation_id: tenantFields.organisation_id }),
  body: null,
  response: z.object({ success: z.literal(true) }),
  writes: true,
  audit: { action: 'delete', resource: 'scim-workspaces' },
  run: async (call) => {
    checkRunsOrganisation(call);
    const { tx, clock } = call;
    const id = call.params.mappingId.toLowerCase();
    const row = isUuid(id) ? await tx.find('scim_mappings', { id }) : undefined;
    if (row === undefined) throw notFound();
    const { workspace_id: workspaceId, group_id: groupId } = row;
    await tx.remove('scim_mappings', { id });
    await keepByHand({ tx, clock, workspaceId, source: sourceOf(groupId) });
    call.audit(id, { before: row, after: null }, workspaceId);
    return { success: true as const };
  },
});

export const scimWorkspaces: Resource = { actions: [list, create, remove] };
