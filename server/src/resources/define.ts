/**
 * Turns a declared resource into the actions of its five verbs, of its versions, and of what is done to one object. The rules
 * that all resources share live here once: look-up by UUID or slug, levels, versions, paging, archiving, the change
 * feed, the audit log.
 */
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import type { Query, Where } from '../store/ports.ts';
import type { Row, TableName, TenantTable } from '../store/schema.ts';
import { organisationTenantFields, tenantFields } from './fields.ts';
import { levelOf } from './kinds/levels.ts';
import { HAS_MORE, LIST, listOf, pagingFields, sliceOf } from './kinds/lists.ts';
import { addVersion, insertVersion, type VersionTable, versionInPath } from './kinds/versions.ts';
import { alternatives, columnIs, findRow, idOf, merge, unarchived, workspaceIdOf } from './look-up.ts';
import { type Refers, refuseWhileReferredTo } from './references.ts';
import { type Action, type AnyAction, type AuditedChange, action, type Call } from './resource.ts';
import { AfterCommit } from './services.ts';
import type { Changed, Described, ItemAction, ItemVerb, ResourceSpec } from './spec.ts';

/** Answer of updates and deletes: `{}`. */
export const emptyAnswer = z.strictObject({});

type Verb = ItemVerb | 'list' | 'create';

/** What the catalogue lists. */
export interface Resource {
  readonly actions: readonly AnyAction[];
  /** Where its objects name those of others. */
  readonly refers?: readonly Refers[];
}

export function defineResource<N extends TenantTable, V extends VersionTable>(spec: ResourceSpec<N, V>): Resource {
  const actions: AnyAction[] = [];
  if (spec.list) actions.push(listAction(spec, spec.list));
  if (spec.create) actions.push(createAction(spec, spec.create));
  actions.push(getAction(spec));
  if (spec.update) actions.push(updateAction(spec, spec.update));
  if (spec.remove) actions.push(removeAction(spec, spec.remove));
  if (spec.versions?.routes) actions.push(...versionActions(spec, spec.versions, spec.versions.routes));
  actions.push(...(spec.actions ?? []));
  return { actions, ...(spec.refers === undefined ? {} : { refers: spec.refers }) };
}

function listAction<N extends TenantTable, V extends VersionTable>(
  spec: ResourceSpec<N, V>,
  list: NonNullable<ResourceSpec<N, V>['list']>,
): AnyAction {
  const { paging = 'page' } = list;
  const envelope = list.envelope ?? (paging === 'cursor' ? HAS_MORE : LIST);
  const query = list.query.extend({ ...tenantFieldsOf(spec), ...pagingFields(paging, list.maxPageSize) }).strict();
  const newest = [[paging === 'cursor' ? 'id' : 'created_at', 'desc']] as unknown as NonNullable<Query<N>['orderBy']>;
  return action<unknown, Readonly<Record<string, unknown>>, unknown, unknown>({
    ...common(spec, 'list', 'GET', list, `List ${plural(spec)}`),
    query,
    ...(list.lists === undefined ? {} : { lists: list.lists }),
    response: envelope.schema(list.item),
    run: async (call) => {
      const page = sliceOf(paging, call.query, list.pageSize?.(call.query) ?? list.defaultPageSize);
      const own = await spec.visible?.(call, 'list');
      const wanted = await list.where?.(call);
      // A filter on status decides itself about archived rows; everything else only narrows.
      const shows = wanted && 'status' in wanted && !(own?.where && 'status' in own.where);
      const where = merge(spec.archives && !shows ? unarchived<N>() : {}, own?.where);
      const filter = {
        where: merge(merge(where, wanted), page.after === undefined ? {} : columnIs('id', { lt: page.after })),
        ...alternatives<N>(own?.anyOf, list.anyOf?.(call)),
      };
      const { limit, offset } = page;
      const total = paging === 'cursor' ? 0 : await call.tx.count(spec.table, filter);
      const rows = await call.tx.list(spec.table, {
        ...filter,
        orderBy: list.orderBy ?? newest,
        // One more says whether there are more.
        ...(limit === undefined ? {} : { limit: paging === 'cursor' ? limit + 1 : limit }),
        ...(offset === undefined ? {} : { offset }),
      });
      const hasMore = paging === 'cursor' && limit !== undefined && rows.length > limit;
      const shown = hasMore ? rows.slice(0, limit) : rows;
      const data = list.presentAll
        ? await list.presentAll(shown, call)
        : await Promise.all(shown.map((row) => list.present(row, call)));
      return envelope.wrap({ data, total, hasMore });
    },
  });
}

function createAction<N extends TenantTable, V extends VersionTable>(
  spec: ResourceSpec<N, V>,
  create: NonNullable<ResourceSpec<N, V>['create']>,
): AnyAction {
  const { prepare, ahead } = create;
  return action<unknown, unknown, unknown, object | null, unknown>({
    ...common(spec, 'create', 'POST', create, `Create ${one(spec)}`),
    ...(prepare === undefined ? {} : { prepare: (body, given) => prepare(body, given) }),
    ...(ahead === undefined ? {} : { ahead: (call) => ahead(call) }),
    ...(create.tenant === undefined ? {} : { tenant: create.tenant }),
    query: create.query ?? null,
    body: create.body,
    response: create.response,
    ...(create.answers === undefined ? {} : { answers: create.answers }),
    ...(create.secretAnswer === true ? { secretAnswer: true } : {}),
    run: async (call) => {
      const { row, version, answer } = await create.run(call);
      await call.tx.insert(spec.table, row);
      const content =
        spec.versions === undefined || version === undefined
          ? {}
          : await insertVersion(call, spec.versions, row, version, 1);
      const table = spec.audits === 'whole' ? {} : { table: spec.table };
      call.audit(idOf(row), { before: null, after: { ...row, ...content }, ...table }, homeOf(spec, row));
      const more = await create.after?.(call, row);
      announce(spec, call, row);
      return more === undefined ? answer : { ...answer, ...more };
    },
  });
}

function getAction<N extends TenantTable, V extends VersionTable>(spec: ResourceSpec<N, V>): AnyAction {
  return action({
    ...common(spec, 'read', 'GET', spec.get ?? {}, `Get ${one(spec)}`),
    query: itemQuery(spec, spec.get?.query),
    response: spec.detail,
    run: async (call) => {
      const seen = spec.get?.archivedToo === true ? { ...spec, archives: false } : spec;
      const row = await find(seen, call, 'read', spec.get?.where?.(call));
      return spec.present(row, call);
    },
  });
}

function updateAction<N extends TenantTable, V extends VersionTable>(
  spec: ResourceSpec<N, V>,
  update: NonNullable<ResourceSpec<N, V>['update']>,
): AnyAction {
  const { method = 'PUT', own, prepare, ahead } = update;
  return action<Readonly<Record<string, string>>, unknown, unknown, unknown, unknown>({
    ...common(spec, 'update', method, update, `Update ${one(spec)}`),
    query: itemQuery(spec, undefined),
    body: update.body,
    response: update.response,
    ...(own === undefined ? {} : { own }),
    ...(prepare === undefined ? {} : { prepare: (body, given) => prepare(body, given) }),
    ...(ahead === undefined ? {} : { ahead: (call) => ahead(call) }),
    run: async (call) => {
      const seen = update.archivedToo === true ? { ...spec, archives: false } : spec;
      const row = await find(seen, call, 'update');
      const { answer, ...made } = await update.run(call, row);
      await change(spec, call, row, made);
      return answer;
    },
  });
}

function removeAction<N extends TenantTable, V extends VersionTable>(
  spec: ResourceSpec<N, V>,
  remove: NonNullable<ResourceSpec<N, V>['remove']>,
): AnyAction {
  return action<Readonly<Record<string, string>>, Readonly<Record<string, unknown>>, unknown, unknown>({
    ...common(spec, 'delete', 'DELETE', remove, `Delete ${one(spec)}`),
    query: itemQuery(spec, remove.query),
    body: remove.body ?? null,
    response: emptyAnswer,
    run: async (call) => {
      const row = await find(spec, call, 'delete');
      await remove.check?.(call, row);
      if (remove.referred) await refuseWhileReferredTo(call, referredTo(spec, row), remove.referred);
      await remove.clean?.(call, row);
      if (remove.patch) {
        await change(spec, call, row, { patch: await remove.patch(call, row) });
        return {};
      }
      const table = spec.audits === 'whole' ? {} : { table: spec.table };
      call.audit(idOf(row), { before: row, after: null, ...table });
      const where = columnIs<N>('id', idOf(row));
      if (spec.archives) {
        const patch = { status: 'archived', last_updated_at: call.clock.now() } as unknown as Partial<Row<N>>;
        await call.tx.update(spec.table, where, patch);
      } else {
        await call.tx.remove(spec.table, where);
      }
      announce(spec, call, row);
      return {};
    },
  });
}

/** Turns a further action on one object into an Action: path, scopes, tenant, look-up, level, change, feed and audit as in the five verbs. */
export function itemAction<N extends TenantTable, V extends VersionTable, B, R, Q = unknown, A = null>(
  spec: ResourceSpec<N, V>,
  typed: ItemAction<N, V, Q, B, R, A>,
): AnyAction {
  // The handler gives the rules what the schemas have let through.
  const own: ItemAction<N, V, unknown, unknown, unknown, unknown> = typed;
  const base = common(spec, own.verb, own.method, own, own.summary);
  const below = own.path ?? `/${own.name}`;
  const seen = {
    ...spec,
    ...(own.visible === undefined ? {} : { visible: own.visible }),
    ...(own.archivedToo === true ? { archives: false } : {}),
    ...(own.scopes === undefined ? {} : { levels: undefined }),
  };
  const query = own.query === undefined ? itemQuery(spec, undefined) : own.query;
  const params = Object.fromEntries(paramsIn(base.path + below).map((name) => [name, z.string()]));
  const { component: _verbsOnly, ...shared } = base;
  return action<Readonly<Record<string, string>>, unknown, unknown, unknown, unknown>({
    ...shared,
    id: own.id ?? `${spec.name}.${own.name}`,
    path: `${base.path}${below}`,
    aliases: [
      ...(own.alsoAt ?? []).flatMap((also) => ['/v1', '/v2'].map((prefix) => `${prefix}${base.path}${also}`)),
      ...base.aliases.flatMap((alias) => [below, ...(own.alsoAt ?? [])].map((path) => `${alias}${path}`)),
    ],
    ...(own.tag === undefined ? {} : { tag: own.tag }),
    ...(own.scopes === undefined ? {} : { scopes: own.scopes }),
    ...(own.tenant === undefined ? {} : { tenant: own.tenant }),
    params: z.strictObject(params),
    query,
    body: own.body ?? null,
    ...(own.takes === undefined ? {} : { takes: own.takes }),
    response: own.response,
    ...(own.answers === undefined ? {} : { answers: own.answers }),
    ...(own.secretAnswer === true ? { secretAnswer: true } : {}),
    writes: own.audit !== null,
    ...(own.audit === null && own.method !== 'GET' ? { readOnly: true } : {}),
    audit: typeof own.audit === 'string' ? { action: own.audit, resource: spec.name } : own.audit,
    ...(own.ahead === undefined
      ? {}
      : { ahead: async (call) => own.ahead?.(call, await find(seen, call, own.verb)) ?? null }),
    run: async (call) => {
      const row = await find(seen, call, own.verb);
      const outcome = await own.run(call, row);
      if (outcome instanceof AfterCommit) return outcome;
      const { answer, ...made } = outcome;
      await change(spec, call, row, made);
      return answer;
    },
  });
}

function versionActions<N extends TenantTable, V extends VersionTable>(
  spec: ResourceSpec<N, V>,
  versions: NonNullable<ResourceSpec<N, V>['versions']>,
  routes: NonNullable<NonNullable<ResourceSpec<N, V>['versions']>['routes']>,
): AnyAction[] {
  const { maxPageSize, defaultPageSize } = routes;
  const path = '/versions/:versionId';
  return [
    itemAction(spec, {
      name: 'versions',
      method: 'GET',
      summary: `List the versions of ${one(spec)}, newest first`,
      verb: 'read',
      query: itemQuery(spec, z.object(pagingFields('page', maxPageSize))),
      response: listOf(routes.item),
      audit: null,
      run: async (call, row) => {
        const where = columnIs<V>(versions.of, idOf(row));
        const page = sliceOf('page', call.query, defaultPageSize);
        const total = await call.tx.count(versions.table, { where });
        const orderBy = [['number', 'desc']] as unknown as NonNullable<Query<V>['orderBy']>;
        const rows = await call.tx.list(versions.table, { where, orderBy, ...page });
        const data = await Promise.all(rows.map((version) => routes.present(row, version, call)));
        return { answer: { object: 'list' as const, total, data } };
      },
    }),
    itemAction(spec, {
      name: 'version',
      path,
      method: 'GET',
      summary: `Get one version of ${one(spec)}`,
      verb: 'read',
      response: routes.item,
      audit: null,
      run: async (call, row) => ({ answer: await routes.present(row, await versionInPath(call, versions, row), call) }),
    }),
    itemAction(spec, {
      name: 'restore',
      path: `${path}/restore`,
      method: 'POST',
      summary: `Make a former version of ${one(spec)} the current one`,
      description: routes.restoreDescription,
      verb: 'update',
      archivedToo: spec.update?.archivedToo === true,
      response: routes.restored,
      audit: 'update',
      run: async (call, row) => routes.restore(call, row, await versionInPath(call, versions, row)),
    }),
  ];
}

/** The row of the path, which the caller may see and, of a resource with levels, has the scope for. */
async function find<N extends TenantTable>(
  spec: Parameters<typeof findRow<N>>[0] & Pick<ResourceSpec<N>, 'levels'>,
  call: Call,
  verb: ItemVerb,
  wanted?: Where<N>,
): Promise<Row<N>> {
  const row = await findRow(spec, call, verb, wanted);
  spec.levels?.require(call, levelOf({ workspace_id: workspaceIdOf(row) }), verb);
  return row;
}

/** Writes what becomes of a row, stamped and audited, and announces it. */
async function change<N extends TenantTable, V extends VersionTable>(
  spec: ResourceSpec<N, V>,
  call: Call,
  row: Row<N>,
  { patch: given, version }: Changed<N, V>,
): Promise<void> {
  if (given === undefined && version === undefined) return;
  const patch = version === undefined ? { ...given } : { ...given, version_id: version.id };
  if (spec.versions && version) await addVersion(call, spec.versions, row, version);
  const stamped = { last_updated_at: call.clock.now(), ...patch } as unknown as Partial<Row<N>>;
  const changes = Object.keys(patch).length > 0;
  if (spec.audits === 'whole') {
    call.audit(idOf(row), { before: row, after: { ...row, ...(changes ? stamped : {}) } });
  } else if (changes) call.audit(idOf(row), changedColumns(spec.table, row, patch as Partial<Row<N>>));
  if (changes) await call.tx.update(spec.table, columnIs('id', idOf(row)), stamped);
  announce(spec, call, row);
}

/** What the verbs share. Item verbs of a workspace resource take the workspace as a narrowing, not as a need. */
function common<N extends TenantTable, V extends VersionTable>(
  spec: ResourceSpec<N, V>,
  verb: Verb,
  method: Action['method'],
  described: Described,
  summary: string,
) {
  const item = verb !== 'list' && verb !== 'create';
  const suffix = item ? `/:${spec.param}` : '';
  const writes = verb === 'create' || verb === 'update' || verb === 'delete';
  const bound: Pick<Action, 'tenant' | 'workspace'> =
    spec.isWorkspace !== true
      ? { tenant: item && spec.tenant === 'workspace' ? 'workspace_optional' : spec.tenant }
      : item
        ? { tenant: 'workspace', workspace: { param: spec.param } }
        : { tenant: spec.tenant, workspace: 'joined' };
  return {
    id: `${spec.name}.${verb}`,
    method,
    path: `${spec.path}${suffix}`,
    aliases: (spec.aliases ?? []).map((base) => `${base}${suffix}`),
    summary: described.summary ?? summary,
    ...(described.description === undefined ? {} : { description: described.description }),
    ...(described.example === undefined ? {} : { example: described.example }),
    tag: spec.tag,
    component: (spec.noun ?? spec.object).replace(/(?:^|[^A-Za-z0-9]+)([A-Za-z])/g, (_match, first: string) =>
      first.toUpperCase(),
    ),
    auth: spec.auth ?? ('key_or_login' as const),
    scopes: spec.scopes.map((prefix) => `${prefix}.${spec.verbs?.[verb] ?? verb}`),
    ...bound,
    params: item ? z.strictObject({ [spec.param]: z.string() }) : null,
    query: null,
    body: null,
    writes,
    audit: writes ? { action: verb, resource: spec.name } : null,
  } satisfies Partial<Action>;
}

const paramsIn = (path: string): string[] => [...path.matchAll(/:(\w+)/g)].map((match) => match[1] ?? '');

function itemQuery(spec: Pick<Action, 'tenant'> & { readonly isWorkspace?: boolean }, own: z.ZodObject | undefined) {
  return (own ?? z.strictObject({})).extend(tenantFieldsOf(spec)).strict();
}

/** The workspace of an object that is one is in the path. */
function tenantFieldsOf({ tenant, isWorkspace }: Pick<Action, 'tenant'> & { readonly isWorkspace?: boolean }) {
  if (isWorkspace === true) return { organisation_id: tenantFields.organisation_id };
  return tenant === 'organisation' ? organisationTenantFields : tenantFields;
}

/**
 * What an update changes, for the audit log: `id`, and of the row as it was and as it is the columns whose values differ.
 * When that happened is the time of the audit row, so `last_updated_at` is left out.
 */
export function changedColumns<N extends TableName>(table: N, row: Row<N>, patch: Partial<Row<N>>): AuditedChange {
  const was: Record<string, unknown> = { ...row };
  const before: Record<string, unknown> = { id: idOf(row) };
  const after: Record<string, unknown> = { id: idOf(row) };
  for (const [name, value] of Object.entries<unknown>(patch)) {
    const former = was[name];
    if (name === 'last_updated_at' || value === undefined || isDeepStrictEqual(former, value)) continue;
    before[name] = former;
    after[name] = value;
  }
  return { before, after, table };
}

/** The row as one that others may refer to. */
export function referredTo<N extends TenantTable>(
  spec: { readonly table: N; readonly isWorkspace?: boolean },
  row: Row<N>,
) {
  const { slug } = row as { readonly slug?: unknown };
  return { table: spec.table, id: idOf(row), slug: String(slug ?? ''), workspaceId: homeOf(spec, row) };
}

const homeOf = (spec: { readonly isWorkspace?: boolean }, row: unknown): string | null =>
  spec.isWorkspace === true ? idOf(row) : workspaceIdOf(row);

function announce(
  spec: Pick<ResourceSpec<TenantTable>, 'topic' | 'table' | 'isWorkspace'>,
  call: Call,
  row: unknown,
): void {
  const id = idOf(row);
  call.audit(id);
  call.tx.changed({ workspaceId: homeOf(spec, row), topic: spec.topic ?? spec.table, entityId: id });
}

type Named = { readonly object: string; readonly noun?: string };
const noun = (spec: Named) => spec.noun ?? spec.object.replace(/[-_]/g, ' ').replace(/\bapi\b/, 'API');
const one = (spec: Named) => `${/^(?!us)[aeiou]/i.test(noun(spec)) ? 'an' : 'a'} ${noun(spec)}`;
const plural = (spec: Named) => `${noun(spec)}s`.replace(/(?<![aeiou])ys$/, 'ies');
