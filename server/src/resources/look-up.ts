/** The object that a path names, among those the caller may see. */
import type { Where } from '../store/ports.ts';
import { type Row, SCHEMA, type TenantTable } from '../store/schema.ts';
import { isUuid } from './fields.ts';
import { notFound } from './not-found.ts';
import type { Call } from './resource.ts';
import type { Filter, ItemVerb, ResourceSpec } from './spec.ts';

export { isNotFound, notFound } from './not-found.ts';

export type LookUp<N extends TenantTable> = Pick<
  ResourceSpec<N>,
  'table' | 'param' | 'archives' | 'pathPrefix' | 'self' | 'isWorkspace'
> & {
  readonly visible?: ((call: Call, verb: ItemVerb | 'list') => Filter<N> | Promise<Filter<N>>) | undefined;
};

/**
 * The row that the path names, among those the caller may see. For further actions on one object: `param` is read from
 * `call.params`. `wanted` takes the place of a condition on the same column, such as that of archived rows; it must not
 * name what decides who sees a row. Throws the one 404 otherwise.
 */
export async function findRow<N extends TenantTable>(
  spec: LookUp<N>,
  call: Call,
  verb: ItemVerb,
  wanted?: Where<N>,
): Promise<Row<N>> {
  if (spec.isWorkspace === true) return boundWorkspace(spec, call);
  const given = (call.params as Readonly<Record<string, unknown>>)[spec.param];
  if (typeof given !== 'string' || !/^[A-Za-z0-9_-]{1,255}$/.test(given)) throw notFound();
  const value = given === 'self' && spec.self ? spec.self(call) : withoutPrefix(given, spec.pathPrefix);
  const own = await spec.visible?.(call, verb);
  const base = { ...merge(spec.archives ? unarchived<N>() : {}, own?.where), ...wanted };
  const names = [...(isUuid(value) ? ['id'] : []), ...('slug' in SCHEMA[spec.table].columns ? ['slug'] : [])];
  for (const name of names) {
    const key = name === 'id' ? value.toLowerCase() : value;
    const where = merge(base, columnIs<N>(name, key));
    const [row] = await call.tx.list(spec.table, { where, ...alternatives<N>(own?.anyOf), limit: 1 });
    if (row) {
      call.audit(idOf(row), undefined, workspaceIdOf(row));
      return row;
    }
  }
  throw notFound();
}

/** The workspace that the handler has resolved from the path; to organisation-wide callers it resolves archived ones too. */
async function boundWorkspace<N extends TenantTable>(spec: LookUp<N>, call: Call): Promise<Row<N>> {
  const id = call.tenant.workspaceId;
  const row = id === null ? undefined : await call.tx.find(spec.table, columnIs<N>('id', id));
  if (!row || (spec.archives && (row as { readonly status?: unknown }).status === 'archived')) throw notFound();
  return row;
}

/** A condition on a column that the tables of resources have, which TypeScript cannot see of any of them. */
export const columnIs = <N extends TenantTable>(column: string, condition: unknown): Where<N> =>
  ({ [column]: condition }) as Where<N>;

/** Rows that no delete has left behind. */
export const unarchived = <N extends TenantTable>(): Where<N> => columnIs('status', { not: 'archived' });

const withoutPrefix = (text: string, prefix: string | undefined): string =>
  prefix !== undefined && text.startsWith(prefix) ? text.slice(prefix.length) : text;

export function workspaceIdOf(row: unknown): string | null {
  const { workspace_id } = row as Readonly<Record<string, unknown>>;
  return typeof workspace_id === 'string' ? workspace_id : null;
}

export const idOf = (row: unknown): string => String((row as Readonly<Record<string, unknown>>).id);

type Conditions = Readonly<Record<string, unknown>>;

const isPlain = (value: unknown): value is Conditions =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Both sets of conditions at once: a filter of the caller can narrow what is visible and never widen it. */
export function merge<N extends TenantTable>(a: Where<N> | undefined, b: Where<N> | undefined): Where<N> {
  const out: Record<string, unknown> = { ...a };
  for (const [column, condition] of Object.entries(b ?? {})) {
    if (condition === undefined) continue;
    out[column] = column in out ? both(column, out[column], condition) : condition;
  }
  return out as Where<N>;
}

function both(column: string, a: unknown, b: unknown): Conditions {
  const left: Conditions = isPlain(a) ? a : { in: [a] };
  const right: Conditions = isPlain(b) ? b : { in: [b] };
  const out: Record<string, unknown> = { ...left, ...right };
  for (const operator of Object.keys(left)) {
    if (!(operator in right) || left[operator] === right[operator]) continue;
    if (operator !== 'in') throw new Error(`two different conditions "${operator}" on ${column}`);
    const allowed = new Set(right.in as unknown[]);
    out.in = (left.in as unknown[]).filter((value) => allowed.has(value));
  }
  return out;
}

export function alternatives<N extends TenantTable>(
  a: readonly Where<N>[] | undefined,
  b?: readonly Where<N>[],
): { anyOf?: readonly Where<N>[] } {
  if (!a || !b) return a || b ? { anyOf: a ?? b ?? [] } : {};
  return { anyOf: a.flatMap((x) => b.map((y) => merge(x, y))) };
}
