/**
 * Turns a declared resource into the actions of its five verbs. What is the same for all resources
 * lives here once: look-up by UUID or slug, paging, archiving, the change feed, the audit name.
 */
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { SluiceError } from '../kernel/errors.ts';
import type { Query, Where } from '../store/ports.ts';
import { type Row, SCHEMA, type TableName, type TenantTable } from '../store/schema.ts';
import { isUuid, organisationTenantFields, queryInteger, tenantFields } from './fields.ts';
import type {
  Action,
  AnyAction,
  AuditAction,
  AuditedChange,
  Call,
  Filter,
  ItemVerb,
  Later,
  ResourceSpec,
} from './resource.ts';

/** Offset of the last row a list reaches: beyond it a page costs more than it is worth. */
const MAX_OFFSET = 10_000_000;

/** The one answer for a path object that is missing, foreign or in another workspace. */
export function notFound(): SluiceError {
  return new SluiceError('not_found', NO_SUCH);
}

const NO_SUCH = 'There is no such object, or your credential cannot see it.';

/** Whether an error says no more than `notFound`: the handler knows which path it is about. */
export const isNotFound = (error: unknown): error is SluiceError =>
  error instanceof SluiceError && error.kind === 'not_found' && error.message === NO_SUCH;

/** Answer of updates and deletes: `{}`. */
export const emptyAnswer = z.strictObject({});

type LooseRow = Record<string, unknown>;

export function defineResource<N extends TenantTable, C, U>(spec: ResourceSpec<N, C, U>): AnyAction[] {
  const actions: AnyAction[] = [];
  if (spec.list) actions.push(listAction(spec, spec.list));
  if (spec.create) actions.push(createAction(spec, spec.create));
  actions.push(getAction(spec));
  if (spec.update) actions.push(updateAction(spec, spec.update));
  if (spec.remove) actions.push(removeAction(spec, spec.remove));
  return [...actions, ...(spec.actions ?? [])];
}

function listAction<N extends TenantTable, C, U>(
  spec: ResourceSpec<N, C, U>,
  list: NonNullable<ResourceSpec<N, C, U>['list']>,
): AnyAction {
  const camel = list.style === 'camel';
  const query = list.query.extend({ ...tenantFieldsOf(spec), ...pageFields(list.maxPageSize, camel) }).strict();
  return {
    ...common(spec, 'list', 'GET', `List ${plural(spec)}`),
    query,
    ...(list.lists === undefined ? {} : { lists: list.lists }),
    response: listOf(list.item),
    run: async (call: Call<unknown, Record<string, unknown>>) => {
      const { defaultPageSize: size } = list;
      const page = pageOf(call.query, typeof size === 'number' ? size : size(call.query));
      const own = await spec.visible?.(call, 'list');
      const where = merge(spec.archives ? { status: { not: 'archived' } } : {}, own?.where as Conditions | undefined);
      const wanted = (await list.where?.(call)) as Conditions | undefined;
      // A filter on status decides itself about archived rows; everything else only narrows.
      if (wanted && 'status' in wanted && !(own?.where && 'status' in own.where)) delete where.status;
      const filter = {
        where: merge(where, wanted) as Where<N>,
        ...alternatives<N>(own?.anyOf, list.anyOf?.(call)),
      };
      const total = await call.tx.count(spec.table, filter);
      const rows = await call.tx.list(spec.table, {
        ...filter,
        orderBy: list.orderBy ?? ([['created_at', 'desc']] as unknown as NonNullable<Query<N>['orderBy']>),
        limit: page.limit,
        offset: page.offset,
      });
      const data = list.presentAll
        ? await list.presentAll(rows, call)
        : await Promise.all(rows.map((row) => spec.present(row, call, false)));
      return { object: 'list' as const, total, data };
    },
  };
}

function createAction<N extends TenantTable, C, U>(
  spec: ResourceSpec<N, C, U>,
  create: NonNullable<ResourceSpec<N, C, U>['create']>,
): AnyAction {
  return {
    ...common(spec, 'create', 'POST', `Create ${one(spec)}`),
    body: create.body,
    response: create.response,
    ...(create.secretAnswer === true ? { secretAnswer: true } : {}),
    run: async (call: Call<unknown, unknown, C>) => {
      const { row, answer } = await create.run(call);
      await call.tx.insert(spec.table, row);
      call.audited(idOf(row), { before: null, after: row as LooseRow, table: spec.table });
      const more = await create.after?.(call, row);
      announce(spec, call, row);
      return more === undefined ? answer : { ...(answer as object), ...more };
    },
  };
}

function getAction<N extends TenantTable, C, U>(spec: ResourceSpec<N, C, U>): AnyAction {
  return {
    ...common(spec, 'read', 'GET', `Get ${one(spec)}`),
    query: itemQuery(spec, spec.get?.query),
    response: spec.detail,
    run: async (call: Call<LooseRow, LooseRow>) => {
      const row = await findRow(spec, call, 'read', spec.get?.where?.(call));
      return spec.present(row, call, true);
    },
  };
}

function updateAction<N extends TenantTable, C, U>(
  spec: ResourceSpec<N, C, U>,
  update: NonNullable<ResourceSpec<N, C, U>['update']>,
): AnyAction {
  return {
    ...common(spec, 'update', 'PUT', `Update ${one(spec)}`),
    query: itemQuery(spec, undefined),
    body: update.body,
    response: update.response,
    run: async (call: Call<LooseRow, unknown, U>) => {
      const row = await findRow(spec, call, 'update');
      const { patch, answer } = await update.run(call, row);
      await change(spec, call, row, patch);
      return answer;
    },
  };
}

function removeAction<N extends TenantTable, C, U>(
  spec: ResourceSpec<N, C, U>,
  remove: NonNullable<ResourceSpec<N, C, U>['remove']>,
): AnyAction {
  return {
    ...common(spec, 'delete', 'DELETE', `Delete ${one(spec)}`),
    query: itemQuery(spec, remove.query),
    response: emptyAnswer,
    run: async (call: Call<LooseRow>) => {
      const row = await findRow(spec, call, 'delete');
      await remove.check?.(call, row);
      await remove.clean?.(call, row);
      call.audited(idOf(row), { before: row as LooseRow, after: null, table: spec.table });
      const where = { id: idOf(row) } as unknown as Where<N>;
      if (spec.archives) {
        const patch = { status: 'archived', last_updated_at: call.clock.now() } as unknown as Partial<Row<N>>;
        await call.tx.update(spec.table, where, patch);
      } else {
        await call.tx.remove(spec.table, where);
      }
      announce(spec, call, row);
      return {};
    },
  };
}

/** A further action on one object, which is looked up as the verb's own action does. */
export interface ItemAction<N extends TenantTable, B, R> {
  /** Last part of the id and of the path: `ping` is `GET /deployments/:id/ping`. */
  readonly name: string;
  readonly method: Action['method'];
  readonly summary: string;
  readonly description: string;
  /** Whose scope it needs, and who sees the object. */
  readonly verb: ItemVerb;
  readonly body: z.ZodType<B> | null;
  readonly response: z.ZodType<R>;
  readonly example?: Action['example'];
  /** Null: it only reads. */
  readonly audit: AuditAction | null;
  /** As `Action.ahead`, with the row. */
  readonly ahead?: {
    find(call: Call<LooseRow, LooseRow, B>, row: Row<N>): Promise<unknown>;
    ask(later: Later, found: unknown): Promise<unknown>;
  };
  /** The patch is written like that of an update. */
  readonly run: (
    call: Call<LooseRow, LooseRow, B>,
    row: Row<N>,
  ) => Promise<{ readonly patch?: Partial<Row<N>>; readonly answer: R }>;
}

/** Turns a further action on one object into an Action: path, scopes, tenant, look-up, patch, feed and audit as in the five verbs. */
export function itemAction<N extends TenantTable, C, U, B, R>(
  spec: ResourceSpec<N, C, U>,
  own: ItemAction<N, B, R>,
): AnyAction {
  const { ahead } = own;
  const base = common(spec, own.verb, own.method, own.summary);
  return {
    ...base,
    id: `${spec.name}.${own.name}`,
    path: `${base.path}/${own.name}`,
    aliases: base.aliases.map((alias) => `${alias}/${own.name}`),
    description: own.description,
    ...(own.example === undefined ? {} : { example: own.example }),
    query: itemQuery(spec, undefined),
    body: own.body,
    response: own.response,
    writes: own.audit !== null,
    audit: own.audit === null ? null : { action: own.audit, resource: spec.name },
    ...(ahead === undefined
      ? {}
      : {
          ahead: {
            find: async (call: Call<LooseRow, LooseRow, B>) => ahead.find(call, await findRow(spec, call, own.verb)),
            ask: ahead.ask,
          },
        }),
    run: async (call: Call<LooseRow, LooseRow, B>) => {
      const row = await findRow(spec, call, own.verb);
      const { patch, answer } = await own.run(call, row);
      if (patch !== undefined) await change(spec, call, row, patch);
      return answer;
    },
  };
}

/** Writes a patch, stamped and audited, and announces it. */
async function change<N extends TenantTable, C, U>(
  spec: ResourceSpec<N, C, U>,
  call: Call<never, never, never> | Call,
  row: Row<N>,
  patch: Partial<Row<N>>,
): Promise<void> {
  if (Object.keys(patch).length > 0) {
    call.audited(idOf(row), changedColumns(spec.table, row, patch));
    const stamped = { last_updated_at: call.clock.now(), ...patch } as Partial<Row<N>>;
    await call.tx.update(spec.table, { id: idOf(row) } as unknown as Where<N>, stamped);
  }
  announce(spec, call, row);
}

/** What the five verbs share. Item verbs of a workspace resource take the workspace as a narrowing, not as a need. */
function common<N extends TenantTable, C, U>(
  spec: ResourceSpec<N, C, U>,
  verb: ItemVerb | 'list' | 'create',
  method: Action['method'],
  summary: string,
) {
  const item = verb !== 'list' && verb !== 'create';
  const suffix = item ? `/:${spec.param}` : '';
  const writes = verb === 'create' || verb === 'update' || verb === 'delete';
  return {
    id: `${spec.name}.${verb}`,
    method,
    path: `${spec.path}${suffix}`,
    aliases: (spec.aliases ?? []).map((base) => `${base}${suffix}`),
    summary,
    tag: spec.tag,
    auth: spec.auth ?? ('key_or_login' as const),
    scopes: spec.scopes.map((prefix) => `${prefix}.${verb}`),
    tenant: item && spec.tenant === 'workspace' ? ('workspace_optional' as const) : spec.tenant,
    params: item ? z.strictObject({ [spec.param]: z.string() }) : null,
    query: null,
    body: null,
    writes,
    audit: writes ? { action: verb, resource: spec.name } : null,
  };
}

function itemQuery(spec: Pick<Action, 'tenant'>, own: z.ZodObject | undefined) {
  return (own ?? z.strictObject({})).extend(tenantFieldsOf(spec)).strict();
}

function tenantFieldsOf({ tenant }: Pick<Action, 'tenant'>) {
  return tenant === 'organisation' ? organisationTenantFields : tenantFields;
}

/**
 * The row that the path names, among those the caller may see. For further actions on one object: `param` is read from
 * `call.params`. `wanted` stands in place of a condition on the same column, such as that of archived rows; it must not
 * name what decides who sees a row. Throws the one 404 otherwise.
 */
export async function findRow<N extends TenantTable>(
  spec: Pick<ResourceSpec<N, never, never>, 'table' | 'param' | 'archives' | 'pathPrefix' | 'self'> & {
    readonly visible?: (call: Call, verb: ItemVerb | 'list') => Filter<N> | Promise<Filter<N>>;
  },
  call: Call<LooseRow>,
  verb: ItemVerb,
  wanted?: Where<N>,
): Promise<Row<N>> {
  const given = call.params[spec.param];
  if (typeof given !== 'string' || !/^[A-Za-z0-9_-]{1,255}$/.test(given)) throw notFound();
  const value = given === 'self' && spec.self ? spec.self(call) : withoutPrefix(given, spec.pathPrefix);
  const own = await spec.visible?.(call, verb);
  const base = {
    ...merge(spec.archives ? { status: { not: 'archived' } } : {}, own?.where as Conditions | undefined),
    ...wanted,
  };
  const names = [...(isUuid(value) ? ['id'] : []), ...('slug' in SCHEMA[spec.table].columns ? ['slug'] : [])];
  for (const name of names) {
    const key = name === 'id' ? value.toLowerCase() : value;
    const where = merge(base, { [name]: key }) as Where<N>;
    const [row] = await call.tx.list(spec.table, { where, ...alternatives<N>(own?.anyOf), limit: 1 });
    if (row) {
      call.audited(idOf(row), undefined, workspaceOf(row));
      return row;
    }
  }
  throw notFound();
}

const withoutPrefix = (text: string, prefix: string | undefined): string =>
  prefix !== undefined && text.startsWith(prefix) ? text.slice(prefix.length) : text;

/**
 * What an update changes, for the audit log: `id`, and of the row as it was and as it is the columns whose values differ.
 * When that happened is the time of the audit row, so `last_updated_at` is left out.
 */
export function changedColumns<N extends TableName>(table: N, row: Row<N>, patch: Partial<Row<N>>): AuditedChange {
  const before: LooseRow = { id: idOf(row) };
  const after: LooseRow = { id: idOf(row) };
  for (const [name, value] of Object.entries(patch as LooseRow)) {
    const former = (row as LooseRow)[name];
    if (name === 'last_updated_at' || value === undefined || isDeepStrictEqual(former, value)) continue;
    before[name] = former;
    after[name] = value;
  }
  return { before, after, table };
}

function announce<N extends TenantTable, C, U>(
  spec: ResourceSpec<N, C, U>,
  call: Call<never, never, never> | Call,
  row: Row<N>,
): void {
  const id = idOf(row);
  call.audited(id);
  call.tx.changed({ workspaceId: workspaceOf(row), topic: spec.topic ?? spec.table, entityId: id });
}

function workspaceOf(row: unknown): string | null {
  const { workspace_id } = row as LooseRow;
  return typeof workspace_id === 'string' ? workspace_id : null;
}

function idOf(row: unknown): string {
  return String((row as LooseRow).id);
}

/** Query parameters of a page. */
export function pageFields(maxPageSize: number, camel = false) {
  const size = queryInteger(1, maxPageSize).optional();
  const current = queryInteger(0, MAX_OFFSET).optional().describe('0-indexed.');
  const snake = { page_size: size, current_page: current };
  return camel ? { ...snake, pageSize: size, currentPage: current } : snake;
}

/** Limit and offset of the page that a validated query asks for. */
export function pageOf(query: Record<string, unknown>, defaultPageSize: number): { limit: number; offset: number } {
  const limit = numberOf(query, 'page_size', 'pageSize') ?? defaultPageSize;
  const current = numberOf(query, 'current_page', 'currentPage') ?? 0;
  if (limit * current > MAX_OFFSET) {
    throw new SluiceError('validation', `current_page times page_size must be at most ${MAX_OFFSET}.`, {
      param: 'current_page',
    });
  }
  return { limit, offset: limit * current };
}

function numberOf(query: Record<string, unknown>, name: string, camel: string): number | undefined {
  const [first, second] = [query[name], query[camel]];
  if (first !== undefined && second !== undefined && first !== second) {
    throw new SluiceError('validation', `Send ${name} or ${camel}, not both.`, { param: camel });
  }
  const value = first ?? second;
  return typeof value === 'number' ? value : undefined;
}

/** The list envelope. */
export function listOf(item: z.ZodType) {
  return z.object({ object: z.literal('list'), total: z.int().min(0), data: z.array(item) });
}

type Conditions = Record<string, unknown>;

const isPlain = (value: unknown): value is Conditions =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Both sets of conditions at once: a filter of the caller can narrow what is visible and never widen it. */
function merge(a: Conditions | undefined, b: Conditions | undefined): Conditions {
  const out: Conditions = { ...a };
  for (const [column, condition] of Object.entries(b ?? {})) {
    if (condition === undefined) continue;
    out[column] = column in out ? both(column, out[column], condition) : condition;
  }
  return out;
}

function both(column: string, a: unknown, b: unknown): Conditions {
  const left: Conditions = isPlain(a) ? a : { in: [a] };
  const right: Conditions = isPlain(b) ? b : { in: [b] };
  const out: Conditions = { ...left, ...right };
  for (const operator of Object.keys(left)) {
    if (!(operator in right) || left[operator] === right[operator]) continue;
    if (operator !== 'in') throw new Error(`two different conditions "${operator}" on ${column}`);
    const allowed = new Set(right.in as unknown[]);
    out.in = (left.in as unknown[]).filter((value) => allowed.has(value));
  }
  return out;
}

function alternatives<N extends TenantTable>(
  a: readonly Where<N>[] | undefined,
  b?: readonly Where<N>[],
): { anyOf?: readonly Where<N>[] } {
  if (!a || !b) return a || b ? { anyOf: a ?? b ?? [] } : {};
  return { anyOf: a.flatMap((x) => b.map((y) => merge(x as Conditions, y as Conditions) as Where<N>)) };
}

type Named = { readonly object: string; readonly noun?: string };
const noun = (spec: Named) => spec.noun ?? spec.object.replace(/[-_]/g, ' ').replace(/\bapi\b/, 'API');
const one = (spec: Named) => `${/^(?!us)[aeiou]/i.test(noun(spec)) ? 'an' : 'a'} ${noun(spec)}`;
const plural = (spec: Named) => `${noun(spec)}s`.replace(/(?<![aeiou])ys$/, 'ies');
