/** Lists of what is below an object: models of an integration, members of a workspace. */
import { z } from 'zod';
import type { Query, Where } from '../../store/ports.ts';
import type { Row, TenantTable } from '../../store/schema.ts';
import { itemAction } from '../define.ts';
import { organisationTenantFields, tenantFields } from '../fields.ts';
import type { AnswerValue, AnyAction } from '../resource.ts';
import type { Described, ItemAction, ItemCall, Parsed, ResourceSpec } from '../spec.ts';
import { type Envelope, LIST, type Listed, type Paging, pagingFields, sliceOf } from './lists.ts';
import type { VersionTable } from './versions.ts';

/** A list below one object. */
export interface ChildList<N extends TenantTable, T extends TenantTable, Q extends z.ZodRawShape, I>
  extends Described,
    Pick<ItemAction<N, never, unknown, unknown, unknown>, 'name' | 'id' | 'path' | 'alsoAt' | 'scopes'> {
  readonly summary: string;
  /** Table of the rows that are listed. */
  readonly table: T;
  /** The filters only: paging and the tenant are added. */
  readonly query?: z.ZodObject<Q>;
  /** The query does not take `workspace_id`. */
  readonly withoutWorkspace?: boolean;
  /** Which rows are the object's, and which of them the filters want. Throws what the caller may not. */
  where(parent: Row<N>, call: ItemCall<Parsed<Q>>): Where<T> | Promise<Where<T>>;
  readonly orderBy?: Query<T>['orderBy'];
  /** Default `whole`. */
  readonly paging?: Exclude<Paging, 'cursor'>;
  /** Default 50; at most 100. */
  readonly defaultPageSize?: number;
  readonly item: z.ZodType<unknown, I>;
  /** Default `LIST`. With `beside` the object says what else the answer has. */
  readonly envelope?: Envelope;
  present(
    rows: readonly Row<T>[],
    call: ItemCall<Parsed<Q>>,
    parent: Row<N>,
  ): Promise<readonly AnswerValue<NoInfer<I>>[]> | readonly AnswerValue<NoInfer<I>>[];
  /** The members of the object that are shown beside its items. */
  beside?(parent: Row<N>): object;
}

const MAX_PAGE_SIZE = 100;

/** Turns a list below an object into its action: who may read the object may read the list. */
export function childList<
  N extends TenantTable,
  V extends VersionTable,
  T extends TenantTable,
  Q extends z.ZodRawShape,
  I,
>(spec: ResourceSpec<N, V>, own: ChildList<N, T, Q, I>): AnyAction {
  // The handler gives the rules what the schema of the query has let through.
  const list: ChildList<N, T, z.ZodRawShape, unknown> = own;
  const { paging = 'whole', envelope = LIST } = list;
  const tenant =
    spec.isWorkspace === true || own.withoutWorkspace === true
      ? { organisation_id: tenantFields.organisation_id }
      : spec.tenant === 'organisation'
        ? organisationTenantFields
        : tenantFields;
  const query = (own.query ?? z.object({})).extend({ ...tenant, ...pagingFields(paging, MAX_PAGE_SIZE) }).strict();
  return itemAction(spec, {
    ...own,
    method: 'GET',
    verb: 'read',
    query,
    response: envelope.schema(own.item),
    audit: null,
    run: async (call, parent) => {
      const where = await list.where(parent, call);
      const slice = sliceOf(paging, call.query, own.defaultPageSize ?? 50);
      const order = own.orderBy === undefined ? {} : { orderBy: own.orderBy };
      const rows = await call.tx.list(own.table, { where, ...order, ...slice });
      const total = paging === 'whole' ? rows.length : await call.tx.count(own.table, { where });
      const listed: Listed = { data: await list.present(rows, call, parent), total, hasMore: false };
      const answer = envelope.wrap(listed);
      return { answer: own.beside === undefined ? answer : { ...(answer as object), ...own.beside(parent) } };
    },
  });
}
