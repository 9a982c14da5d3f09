/**
 * Objects whose content has versions: the row names the current one (`version_id`), the others stay in a table beside it.
 * A version is never changed; every change of the content is a new one.
 */
import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import type { Where } from '../../store/ports.ts';
import type { Row, TenantTable } from '../../store/schema.ts';
import type { ItemCall } from '../calls.ts';
import { actorId } from '../common.ts';
import { notFound } from '../not-found.ts';
import type { AnswerValue, Call } from '../resource.ts';

interface Head {
  readonly id: string;
  readonly organisation_id: string;
  readonly number: number;
  readonly created_by: string;
  readonly created_at: number;
}

/** Tables of versions. */
export type VersionTable = {
  [N in TenantTable]: Row<N> extends Head ? (N extends `${string}_versions` ? N : never) : never;
}[TenantTable];

/** Columns of a version that say whose it is and which. */
type HeadColumn = Exclude<keyof Head, 'id'> | `${string}_id`;

/** A version as a rule makes it. `id` is chosen before the content, because what is sealed in it is bound to the id. */
export type NewVersion<V extends VersionTable> = {
  readonly [K in keyof Row<V> as K extends 'id' ? K : K extends HeadColumn ? never : K]: Row<V>[K];
};

/** Rows that have versions. */
interface Versioned {
  readonly id: string;
  readonly organisation_id: string;
  readonly version_id: string;
}

/** How a resource keeps its versions. */
export interface Versions<N extends TenantTable, V extends VersionTable, I = unknown, R = unknown> {
  readonly table: V;
  /** Column of a version that names its object. */
  readonly of: keyof Row<V> & `${string}_id`;
  /** Routes to former versions: list, get, and restore. Without it there are none. */
  readonly routes?: {
    readonly item: z.ZodType<unknown, I>;
    /** A version with the time and the author of that version. */
    present(row: Row<N>, version: Row<V>, call: ItemCall): Promise<AnswerValue<NoInfer<I>>>;
    readonly maxPageSize: number;
    readonly defaultPageSize: number;
    readonly restored: z.ZodType<unknown, R>;
    readonly restoreDescription: string;
    /** Makes a former version the current one; it becomes a new version. */
    restore(
      call: ItemCall,
      row: Row<N>,
      former: Row<V>,
    ): Promise<{
      readonly patch: Partial<Row<N>>;
      readonly version: NewVersion<V>;
      readonly answer: AnswerValue<NoInfer<R>>;
    }>;
  };
}

/** The current version of an object. */
export async function currentVersion<V extends VersionTable>(
  { tx }: Pick<Call, 'tx'>,
  table: V,
  row: Versioned,
): Promise<Row<V>> {
  const version = await tx.find(table, { id: row.version_id } as Where<V>);
  if (version) return version;
  throw new SluiceError('internal', 'The object has no current version.', { detail: `${table} of ${row.id}` });
}

/** The version that the path names. Throws the one 404. */
export async function versionInPath<N extends TenantTable, V extends VersionTable>(
  { tx, params }: ItemCall,
  { table, of }: Versions<N, V>,
  row: Row<N>,
): Promise<Row<V>> {
  const id = String(params.versionId).toLowerCase();
  const where = { id, [of]: (row as unknown as Versioned).id } as Where<V>;
  const found = z.guid().safeParse(id).success ? await tx.find(table, where) : undefined;
  if (!found) throw notFound();
  return found;
}

/** Inserts the version of a row that is new, or about to name it. Answers its content, for the audit log. */
export async function insertVersion<N extends TenantTable, V extends VersionTable>(
  call: Call,
  { table, of }: Versions<N, V>,
  row: Row<N>,
  made: NewVersion<V>,
  number: number,
): Promise<Record<string, unknown>> {
  const { id, organisation_id } = row as unknown as Versioned;
  const head = { organisation_id, [of]: id, number, created_by: actorId(call.principal), created_at: call.clock.now() };
  await call.tx.insert(table, { ...made, ...head } as unknown as Row<V>);
  return contentOf(made);
}

/** Inserts a further version of a row; the audit log gets the content before and after. */
export async function addVersion<N extends TenantTable, V extends VersionTable>(
  call: Call,
  versions: Versions<N, V>,
  row: Row<N>,
  made: NewVersion<V>,
): Promise<void> {
  const { table, of } = versions;
  const { id, version_id } = row as unknown as Versioned;
  const [last] = await call.tx.list(table, {
    where: { [of]: id } as Where<V>,
    orderBy: [['number', 'desc']] as never,
    limit: 1,
  });
  const former = await call.tx.find(table, { id: version_id } as Where<V>);
  const after = await insertVersion(call, versions, row, made, ((last as Head | undefined)?.number ?? 0) + 1);
  const before = Object.fromEntries(
    Object.keys(after).map((name) => [name, (former as Record<string, unknown> | undefined)?.[name] ?? null]),
  );
  call.audit(id, { before, after });
}

function contentOf(made: object): Record<string, unknown> {
  const { id: _id, ...content } = made as { readonly id: string };
  return content;
}
