/** Stored records as they were written, for what reads records and not columns. */
import type { StoredRecords, TenantContext } from '../store/ports.ts';
import { LOG_COLUMNS, recordOfRow } from './log-columns.ts';
import { type ErasedLogs, type LogScope, type LogStore, MOST_DAYS } from './log-query.ts';

const DAY_MS = 86_400_000;
/** Beyond any time of a record. */
const FOREVER = 8_640_000_000_000_000;
/** Ids or traces of one question. */
const MOST_AT_ONCE = 1_000;
/** What takes most of the room, and no limit goes by. */
const NOT_WALKED = new Set(['decision', 'guards', 'guardrails', 'price', 'cache', 'detail', 'client']);
const ALL = LOG_COLUMNS.map(({ name }) => name);
const WALKED = ALL.filter((name) => !NOT_WALKED.has(name));

/**
 * @param days how many days records are shown; 0: as long as they are there
 * @param erased what is being erased of an organisation
 */
export function storedRecords(
  store: LogStore,
  days: number,
  now: () => number,
  erased: (organisationId: string) => Promise<readonly ErasedLogs[]>,
): StoredRecords {
  const scopeOf = async ({ organisationId, workspaceId }: TenantContext): Promise<LogScope> => ({
    organisationId,
    workspaceIds: workspaceId === null ? null : [workspaceId],
    userId: null,
    keptSince: days === 0 ? 0 : now() - days * DAY_MS,
    erased: await erased(organisationId),
  });
  return {
    async find(tenant, id) {
      const row = await store.find(await scopeOf(tenant), id);
      return row === null ? null : recordOfRow(row);
    },
    async findAll(tenant, ids) {
      const scope = await scopeOf(tenant);
      const to = now() + DAY_MS;
      const from = Math.max(scope.keptSince, to - MOST_DAYS * DAY_MS);
      const selection = { scope, from, to, where: [{ column: 'id', in: ids }] };
      const { rows } = await store.page(selection, {
        columns: ALL,
        order: 'newest',
        limit: MOST_AT_ONCE,
        behind: null,
      });
      return new Map(rows.map((row) => [String(row.id), recordOfRow(row)]));
    },
    async lastOfTraces(tenant, traceIds, since) {
      const scope = await scopeOf(tenant);
      const ofThem = { column: 'trace_id', in: traceIds };
      const last = await store.groups(
        { scope, from: since, to: now() + DAY_MS, where: [ofThem] },
        { by: [{ column: 'trace_id' }], measures: [{ as: 'time', of: 'max', column: 'time' }], limit: MOST_AT_ONCE },
      );
      const times = last.groups.map(({ values }) => values.time ?? 0);
      if (times.length === 0) return new Map();
      const atTheirs = { column: 'time', in: times.map(String) };
      const { rows } = await store.page(
        { scope, from: Math.min(...times), to: Math.max(...times) + 1, where: [ofThem, atTheirs] },
        { columns: ALL, order: 'newest', limit: MOST_AT_ONCE, behind: null },
      );
      // The first one of a trace is its newest.
      return new Map(rows.toReversed().map((row) => [String(row.trace_id), recordOfRow(row)]));
    },
    async ofTrace(tenant, traceId, since, limit) {
      const where = [{ column: 'trace_id', in: [traceId] }];
      const selection = { scope: await scopeOf(tenant), from: since, to: now() + DAY_MS, where };
      const { rows } = await store.page(selection, { columns: ALL, order: 'newest', limit, behind: null });
      return rows.map(recordOfRow);
    },
    async isWhole(tenant, from, to) {
      const selection = { scope: await scopeOf(tenant), from, to, where: [] };
      const { incomplete } = await store.page(selection, { columns: ['id'], order: 'newest', limit: 1, behind: null });
      return incomplete.length === 0;
    },
    async walk(tenant, { from, to, after, limit }) {
      const selection = { scope: await scopeOf(tenant), from, to: Math.min(to, FOREVER), where: [] };
      const behind = after === null ? null : { time: after.time, id: after.id };
      const { rows } = await store.page(selection, { columns: WALKED, order: 'oldest', limit, behind });
      return rows.map(recordOfRow);
    },
  };
}
