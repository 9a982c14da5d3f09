/** Who owns what at an integration's provider account: lists it, and gives objects to a workspace. */
import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import type { Row } from '../../store/schema.ts';
import { OWNED_KINDS } from '../../store/training-tables.ts';
import { text, toIso } from '../body-fields.ts';
import { actorId, findWorkspace, refuse, unknownReference } from '../common.ts';
import { itemAction } from '../define.ts';
import { isUuid, reference, tenantFields } from '../fields.ts';
import { levelOf } from '../kinds/levels.ts';
import { pageOf } from '../kinds/lists.ts';
import type { AnyAction, Call } from '../resource.ts';
import { isOpenTo } from '../runtime-rows.ts';
import { afterCommit, type Work, withServices } from '../services.ts';
import type { ResourceSpec } from '../spec.ts';
import { ACCOUNTS, LISTED_KINDS, type ListedKind, type ProviderAccount, type ProviderAccounts } from './accounts.ts';
import { type Integration, LEVELS } from './rules.ts';

/** Of one call. */
const MOST = 1000;

const kind = z.enum(OWNED_KINDS);

const listQuery = z.strictObject({
  organisation_id: tenantFields.organisation_id,
  kind: kind.optional().describe('Needed with `unowned`: file, job or batch.'),
  workspace: reference.optional().describe('UUID or slug of the workspace that owns them.'),
  unowned: z.enum(['true', 'false']).optional().describe('Objects at the provider that no workspace owns.'),
  after: text(2048, 1).optional().describe('With `unowned`: where the page before has ended.'),
  current_page: z.coerce.number().int().min(0).optional(),
  page_size: z.coerce.number().int().min(1).max(MOST).optional(),
});
type ListQuery = z.output<typeof listQuery>;

const object = z.object({
  kind,
  id: z.string(),
  workspace_id: z.string().nullable(),
  created_by: z.string().nullable().describe('Id of the API key that made it.'),
  created_at: z.string(),
});

const listAnswer = z.object({
  object: z.literal('list'),
  total: z.int().nullable().describe('Null with `unowned`: providers do not say.'),
  data: z.array(object),
  after: z.string().nullable().describe('With `unowned`: send it for the next page; null at the end.'),
});

const adoptBody = z.strictObject({
  organisation_id: tenantFields.organisation_id,
  workspace: reference.describe('UUID or slug of the workspace that is to own the objects.'),
  kinds: z.array(kind).min(1).max(OWNED_KINDS.length),
  ids: z.array(text(2048, 1)).min(1).max(MOST).optional().describe('Ids at the provider; with one kind only.'),
  all: z.boolean().optional().describe('All objects of the kinds that no workspace owns, or that `from` owns.'),
  from: reference.optional().describe('UUID or slug of the workspace that hands its objects over.'),
  plan: z.boolean().optional().describe('Answers what would be done, and does nothing.'),
});
type AdoptBody = z.output<typeof adoptBody>;

const adopted = z.object({ kind, id: z.string(), from: z.string().nullable() });

const adoptAnswer = z.object({
  object: z.literal('adoption'),
  plan: z.boolean(),
  workspace_id: z.string(),
  objects: z.array(adopted).describe('What changes its owner; `from` is the workspace that had it.'),
  unchanged: z.int().describe('Objects that the workspace owns already.'),
  more: z.boolean().describe('There are more than one call takes: send the same request again.'),
});

type ListCall = Call<unknown, ListQuery>;
type AdoptCall = Call<unknown, unknown, AdoptBody, Asked>;

export function objectActions(spec: ResourceSpec<'integrations'>): AnyAction[] {
  return [
    itemAction(spec, {
      name: 'objects',
      method: 'GET',
      summary: 'List the objects at the account of an integration',
      description:
        'Files, batches, jobs, responses and other objects by the workspace that owns them. With `unowned=true` the provider is asked for those that no workspace owns.',
      verb: 'read',
      scopes: ['organisation_integrations.read'],
      query: listQuery,
      response: listAnswer,
      audit: null,
      run: listObjects,
    }),
    itemAction(spec, {
      name: 'objects.adopt',
      path: '/objects/adopt',
      method: 'POST',
      summary: 'Give objects at the account of an integration to a workspace',
      description:
        'For objects that were not made through Sluice, and to hand objects over. Name `ids`, or send `all`. Send `plan: true` first: the answer lists what would change. At most 1,000 objects at a time.',
      example: { body: { workspace: 'search', kinds: ['file'], all: true, plan: true } },
      verb: 'update',
      scopes: ['organisation_integrations.update'],
      query: null,
      body: adoptBody,
      response: adoptAnswer,
      audit: 'update',
      ahead,
      run: adopt,
    }),
  ];
}

function checkOfOrganisation(call: Call, row: Integration, verb: 'read' | 'update'): void {
  LEVELS.require(call, levelOf(row), verb);
  if (row.workspace_id === null) return;
  throw new SluiceError(
    'validation',
    'This integration belongs to one workspace, which owns everything in its account.',
  );
}

async function listObjects(call: ListCall, row: Integration) {
  checkOfOrganisation(call, row, 'read');
  const { query, tx } = call;
  const workspace = query.workspace === undefined ? undefined : await named(call, 'workspace', query.workspace);
  if (query.unowned === 'true') {
    const wanted = LISTED_KINDS.find((one) => one === query.kind);
    if (wanted === undefined)
      throw refuse('kind', 'must be file, job or batch with unowned=true: providers list no others');
    if (workspace !== undefined) throw refuse('workspace', 'cannot be sent with unowned=true');
    const account = await accountOf(call, row);
    return afterCommit({ accounts: ACCOUNTS }, async ({ accounts }) => {
      const found = await accounts.unowned(account, wanted, query.after ?? null, query.page_size ?? 100);
      const data = found.data.map(({ id, created_at }) => ({
        kind: wanted,
        id,
        workspace_id: null,
        created_by: null,
        created_at: toIso(created_at * 1000),
      }));
      return { object: 'list' as const, total: null, data, after: found.after };
    });
  }
  const where = {
    account: row.id,
    ...(query.kind === undefined ? null : { kind: query.kind }),
    ...(workspace === undefined ? null : { workspace_id: workspace.id }),
  };
  const rows = await tx.list('object_owners', {
    where,
    orderBy: [
      ['created_at', 'desc'],
      ['object_id', 'asc'],
    ],
    ...pageOf(query, 100),
  });
  const answer = {
    object: 'list' as const,
    total: await tx.count('object_owners', { where }),
    data: rows.map((one) => ({
      kind: one.kind,
      id: one.object_id,
      workspace_id: one.workspace_id,
      created_by: one.created_by,
      created_at: toIso(one.created_at),
    })),
    after: null,
  };
  return { answer };
}

async function named(call: Call, param: string, name: string): Promise<Row<'workspaces'>> {
  const workspace = await findWorkspace(call.tx, name);
  if (!workspace) throw unknownReference(param, 'workspace');
  return workspace;
}

/** A workspace whose objects are handed over: one that is archived has them still. */
async function formerOwner(call: AdoptCall, name: string): Promise<Row<'workspaces'>> {
  const archived = isUuid(name) ? await call.tx.find('workspaces', { id: name.toLowerCase() }) : undefined;
  return archived ?? named(call, 'from', name);
}

/** A stored provider by which the account can be asked. Throws 400 while no workspace has one. */
async function accountOf(call: Call, { id, organisation_id }: Integration): Promise<ProviderAccount> {
  const rows = await call.tx.list('providers', { where: { integration_id: id, status: 'active' } });
  const ids = rows.map((row) => row.workspace_id);
  const where = { id: { in: ids }, status: 'active' } as const;
  const [workspace] = ids.length === 0 ? [] : await call.tx.list('workspaces', { where });
  const provider = rows.find((row) => row.workspace_id === workspace?.id);
  if (workspace === undefined || provider === undefined) {
    throw new SluiceError('validation', 'No workspace has a provider of this integration yet; create one first.');
  }
  return { organisationId: organisation_id, workspaceId: workspace.id, slug: provider.slug, account: id };
}

interface Listed {
  readonly kind: ListedKind;
  readonly id: string;
}

/** What the provider said it has; `more`: not all was asked for. */
interface Asked {
  readonly listed: readonly Listed[];
  readonly more: boolean;
}

/** Asks the provider what it has: nothing where the body names the objects, or the workspace that has them. */
async function ahead(call: Call<unknown, unknown, AdoptBody>, row: Integration): Promise<Work<Asked> | null> {
  const { body } = call;
  checkOfOrganisation(call, row, 'update');
  if ((body.ids === undefined) === (body.all !== true)) throw refuse('ids', 'or all is needed, and not both');
  if (body.ids !== undefined && body.kinds.length > 1) throw refuse('kinds', 'must be one kind where ids are named');
  if (body.all !== true || body.from !== undefined) return null;
  const unlisted = body.kinds.find((one) => !LISTED_KINDS.some((listed) => listed === one));
  if (unlisted !== undefined) {
    throw refuse(
      'kinds',
      `may be file, job and batch only with all: no provider lists objects of the kind ${unlisted}, so name their ids`,
    );
  }
  const account = await accountOf(call, row);
  const kinds = LISTED_KINDS.filter((one) => body.kinds.includes(one));
  return withServices({ accounts: ACCOUNTS }, ({ accounts }) => ask(accounts, account, kinds));
}

async function ask(accounts: ProviderAccounts, account: ProviderAccount, kinds: readonly ListedKind[]): Promise<Asked> {
  const listed: Listed[] = [];
  for (const one of kinds) {
    let after: string | null = null;
    do {
      if (listed.length >= MOST) return { listed, more: true };
      const page = await accounts.unowned(account, one, after, MOST - listed.length);
      listed.push(...page.data.map(({ id }) => ({ kind: one, id })));
      after = page.after;
    } while (after !== null);
  }
  return { listed, more: false };
}

async function adopt(call: AdoptCall, row: Integration) {
  const { body, tx, clock, asked } = call;
  checkOfOrganisation(call, row, 'update');
  const workspace = await named(call, 'workspace', body.workspace);
  const own = await tx.find('integration_workspaces', { integration_id: row.id, workspace_id: workspace.id });
  if (!isOpenTo(row, own ?? null)) throw refuse('workspace', 'cannot use this integration; give it access first');
  const from = body.from === undefined ? null : await formerOwner(call, body.from);
  const [only] = body.kinds;

  let wanted: readonly { kind: Row<'object_owners'>['kind']; id: string }[] = asked?.listed ?? [];
  let more = asked?.more === true;
  if (body.ids !== undefined && only !== undefined) wanted = [...new Set(body.ids)].map((id) => ({ kind: only, id }));
  else if (from !== null) {
    const theirs = await tx.list('object_owners', {
      where: { account: row.id, workspace_id: from.id, kind: { in: body.kinds } },
      orderBy: [['created_at', 'asc']],
      limit: MOST + 1,
    });
    more = theirs.length > MOST;
    wanted = theirs.slice(0, MOST).map((one) => ({ kind: one.kind, id: one.object_id }));
  }
  const ids = wanted.map(({ id }) => id);
  const rows =
    ids.length === 0 ? [] : await tx.list('object_owners', { where: { account: row.id, object_id: { in: ids } } });
  const owners = new Map(rows.map((one) => [`${one.kind} ${one.object_id}`, one.workspace_id]));
  const objects: z.output<typeof adopted>[] = [];
  let unchanged = 0;
  for (const { kind: of, id } of wanted) {
    const owner = owners.get(`${of} ${id}`) ?? null;
    if (owner === workspace.id) unchanged += 1;
    else if (from !== null && owner !== from.id)
      throw refuse('ids', `names an object that the workspace in from does not own: ${id}`);
    else objects.push({ kind: of, id, from: owner });
  }
  const taken = objects.find((one) => one.from !== null && from === null);
  if (taken !== undefined) {
    const message = `The ${taken.kind} ${taken.id} belongs to the workspace ${taken.from}; send it in from to hand the object over.`;
    throw new SluiceError('conflict', message, { param: 'from' });
  }
  if (body.plan !== true) {
    for (const { kind: of, id, from: before } of objects) {
      const key = { account: row.id, kind: of, object_id: id };
      if (before !== null) await tx.update('object_owners', key, { workspace_id: workspace.id });
      else
        await tx.insert('object_owners', {
          ...key,
          organisation_id: row.organisation_id,
          workspace_id: workspace.id,
          provider: row.ai_provider_id,
          created_by: actorId(call.principal),
          created_at: clock.now(),
        });
    }
    const change = { workspace_id: workspace.id, objects };
    call.audit(
      row.id,
      { before: { objects: objects.filter((one) => one.from !== null) }, after: change },
      workspace.id,
    );
  } else call.audit(row.id);
  const plan = body.plan === true;
  return { answer: { object: 'adoption' as const, plan, workspace_id: workspace.id, objects, unchanged, more } };
}
