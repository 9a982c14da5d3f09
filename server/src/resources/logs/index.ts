/** What the API shows of stored requests: `/logs`. */
import { z } from 'zod';
import type { StoredRecords } from '../../store/ports.ts';
import { decisionOf, decisionSchema } from '../../telemetry/decision.ts';
import { logGroups } from '../analytics/groups.ts';
import type { Resource } from '../define.ts';
import { tenantFields } from '../fields.ts';
import { notFound } from '../look-up.ts';
import { action } from '../resource.ts';
import { afterCommit, Service } from '../services.ts';
import { logErasures } from './erasures/index.ts';
import { logExports } from './exports/index.ts';
import { insertLogs } from './insert.ts';
import { logHistogram, logList } from './list.ts';
import { readLog } from './read.ts';
import { isSeen, sightOf, withoutMetadata } from './sight.ts';
import { logTail } from './tail.ts';

const ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

export const RECORDS = new Service<Pick<StoredRecords, 'find'>>('store of request records');

const decision = action({
  id: 'logs.decision',
  method: 'GET',
  path: '/logs/:logId/decision',
  summary: 'Explain how a request was decided',
  description:
    'Everything Sluice considered, tried, changed, charged and refused for one request. The record appears a moment after the answer. A request with `x-gateway-dry-run: true` returns the same object without calling the provider.',
  tag: 'Logs',
  auth: 'key_or_login',
  scopes: ['logs.view'],
  tenant: 'workspace_optional',
  params: z.strictObject({ logId: z.string() }),
  query: z.strictObject({ ...tenantFields }),
  body: null,
  response: decisionSchema,
  writes: false,
  audit: null,
  run: async (call) => {
    const id = call.params.logId.toLowerCase();
    if (!ID.test(id)) throw notFound();
    const { tenant, principal } = call;
    const sight = await sightOf(call, tenant.workspaceId);
    return afterCommit({ records: RECORDS }, async ({ records }) => {
      const record = await records.find(tenant, id);
      if (record === null || !isSeen(sight, principal.userId, record)) throw notFound();
      return withoutMetadata(sight, record, decisionOf(record));
    });
  },
});

export const logs: Resource = {
  actions: [logList, insertLogs, logTail, logHistogram, ...logExports, ...logErasures, readLog, decision, ...logGroups],
};
