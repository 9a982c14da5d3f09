/** Groups of a directory, as administrators see them. The directory itself uses the protocol (`scim/`). */
import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { MembershipSource, Row } from '../../store/schema.ts';
import { refuse, unknownReference } from '../common.ts';
import type { Resource } from '../define.ts';
import { organisationTenantFields, queryInteger } from '../fields.ts';
import { action, type Call } from '../resource.ts';

type Group = Row<'scim_groups'>;

const MAX_NAME = 255;
const CONTROLS = /[\p{Cc}\p{Zl}\p{Zp}]/u;
const MAX_PAGE = 100;

/** What a membership says of a group that gives it. */
export const sourceOf = (groupId: string): MembershipSource => `scim:${groupId}`;

export const groupName = z
  .string()
  .trim()
  .min(1)
  .max(MAX_NAME)
  .refine((name) => !CONTROLS.test(name), 'must not contain control characters');

/** Query of lists of groups and of their mappings: pages are counted from 1. */
export const pages = {
  ...organisationTenantFields,
  page: queryInteger(1, 100_000).optional().describe('1-indexed. Default 1.'),
  page_size: queryInteger(1, MAX_PAGE).optional().describe('Default 50.'),
};

export interface Page {
  readonly page?: number | undefined;
  readonly page_size?: number | undefined;
}

/** Where a page begins and ends, and what its answer says of it. */
export function slice({ page = 1, page_size = 50 }: Page) {
  return { shown: { page, page_size }, part: { limit: page_size, offset: (page - 1) * page_size } };
}

/**
 * Groups give places in every workspace: for owners, admins and keys of the organisation. The scope alone does not say so,
 * because admins of a workspace have it there.
 */
export function checkRunsOrganisation({ principal }: Pick<Call, 'principal'>): void {
  if (principal.kind === 'organisation-service') return;
  if (principal.kind === 'user' && principal.role !== 'member') return;
  throw new SluiceError(
    'forbidden',
    'Groups and their mappings are for owners and admins of the organisation, and for its keys. Use one of these.',
  );
}

/** The group that a body names by id (404 `AB02`), or by name, which makes one that is not there. */
export async function namedGroup(
  { tx, clock }: Pick<Call, 'tx' | 'clock'>,
  named: { readonly scim_group_id?: string | undefined; readonly scim_group_name?: string | undefined },
): Promise<Group> {
  const { scim_group_id: id, scim_group_name: name } = named;
  if (id !== undefined) {
    const group = await tx.find('scim_groups', { id });
    if (group === undefined) throw unknownReference('scim_group_id', 'SCIM group');
    return group;
  }
  if (name === undefined) throw refuse('scim_group_id', 'is required, or scim_group_name');
  const name_key = name.toLowerCase();
  const found = await tx.find('scim_groups', { name_key });
  if (found !== undefined) return found;
  const now = clock.now();
  const row: Group = {
    id: uuidv7(clock),
    organisation_id: tx.tenant.organisationId,
    display_name: name,
    name_key,
    external_id: null,
    version: 1,
    created_at: now,
    last_updated_at: now,
  };
  await tx.insert('scim_groups', row);
  return row;
}

export const mapping = z
  .object({
    id: z.string(),
    workspace_id: z.string(),
    scim_group: z.string().describe('Name of the group.'),
    scim_group_id: z.string(),
    role: z.enum(['admin', 'manager', 'member']),
  })
  .meta({ title: 'ScimMapping' });

export function presentMapping(row: Row<'scim_mappings'>, group: Pick<Group, 'display_name'>): z.input<typeof mapping> {
  return {
    id: row.id,
    workspace_id: row.workspace_id,
    scim_group: group.display_name,
    scim_group_id: row.group_id,
    role: row.role,
  };
}

const item = z.object({
  id: z.string(),
  display_name: z.string(),
  member_count: z.int(),
  mappings: z.array(mapping),
});

async function presentGroups(tx: TenantTx, groups: readonly Group[]): Promise<z.input<typeof item>[]> {
  if (groups.length === 0) return [];
  const group_id = { in: groups.map((group) => group.id) };
  const counted = await tx.totals('scim_group_members', { where: { group_id }, by: ['group_id'] });
  const counts = new Map(counted.map(({ by, count }) => [by.group_id, count]));
  const mappings = Map.groupBy(await tx.list('scim_mappings', { where: { group_id } }), (row) => row.group_id);
  return groups.map((group) => ({
    id: group.id,
    display_name: group.display_name,
    member_count: counts.get(group.id) ?? 0,
    mappings: (mappings.get(group.id) ?? []).map((row) => presentMapping(row, group)),
  }));
}

const list = action({
  id: 'scim-groups.list',
  method: 'GET',
  path: '/scim/groups',
  summary: 'List the groups of the directory',
  tag: 'SCIM',
  auth: 'key_or_login',
  scopes: ['workspaces.update'],
  tenant: 'organisation',
  params: null,
  query: z.strictObject({ ...pages, search: groupName.optional().describe('Part of the name, in any case.') }),
  body: null,
  response: z.object({ groups: z.array(item), page: z.int(), page_size: z.int(), total_count: z.int() }),
  writes: false,
  audit: null,
  run: async (call) => {
    checkRunsOrganisation(call);
    const { tx, query } = call;
    const where = query.search === undefined ? {} : { name_key: { contains: query.search.toLowerCase() } };
    const { shown, part } = slice(query);
    const groups = await tx.list('scim_groups', { where, orderBy: [['created_at', 'asc']], ...part });
    const total_count = await tx.count('scim_groups', { where });
    return { groups: await presentGroups(tx, groups), ...shown, total_count };
  },
});

export const scimGroups: Resource = { actions: [list] };
