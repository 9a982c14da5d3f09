/** Stored records as they were written, for what reads records and not columns. */
import type { StoredRecords, TenantContext } from '../store/ports.ts';
import { LOG_COLUMNS, recordOfRow } from './log-columns.ts';
import type { LogScope, LogStore } from './log-query.ts';

const DAY_MS = 86_400_000;
/** Beyond any time of a record. */
const FOREVER = 8_640_000_000_000_000;
/** What takes most of the room, and no limit goes by. */
const NOT_WALKED = new Set(['decision', 'guards', 'guardrails', 'price', 'cache', 'detail', 'client']);
const ALL = LOG_COLUMNS.map(({ name }) => name);
const WALKED = ALL.filter((name) => !NOT_WALKED.has(name));

/** @param days how many days records are shown; 0: as long as they are there */
export function storedRecords(store: LogStore, days: number, now: () => number): StoredRecords {
  const scopeOf = ({ organisationId, workspaceId }: TenantContext): LogScope => ({
    organisationId,
    workspaceIds: workspaceId === null ? null : [workspaceId],
    userId: null,
    keptSince: days === 0 ? 0 : now() - days * DAY_MS,
  });
  return {
    async find(tenant, id) {
      const row = await store.find(scopeOf(tenant), id);
      return row === null ? null : recordOfRow(row);
    },
    async ofTrace(tenant, traceId, since, limit) {
      const where = [{ column: 'trace_id', in: [traceId] }];
      const selection = { scope: scopeOf(tenant), from: since, to: now() + DAY_MS, where };
      const { rows } = await store.page(selection, { columns: ALL, order: 'newest', limit, behind: null });
      return rows.map(recordOfRow);
    },
    async isWhole(tenant, from, to) {
      const selection = { scope: scopeOf(tenant), from, to, where: [] };
      const { incomplete } = await store.page(selection, { columns: ['id'], order: 'newest', limit: 1, behind: null });
      return incomplete.length === 0;
    },
    async walk(tenant, { from, to, after, limit }) {
      const selection = { scope: scopeOf(tenant), from, to: Math.min(to, FOREVER), where: [] };
      const behind = after === null ? null : { time: after.time, id: after.id };
      const { rows } = await store.page(selection, { columns: WALKED, order: 'oldest', limit, behind });
      return rows.map(recordOfRow);
    },
  };
}
