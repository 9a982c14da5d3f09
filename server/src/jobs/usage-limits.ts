/**
 * What time does to usage limits, done by one leader: windows turn, leases of nodes that are gone end, and each alert gets
 * its row in the audit log, once for each window. Requests turn windows themselves; a limit that nobody uses waits for this.
 */
import { systemTenant } from '../auth/tenant.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import { sweepBooks } from '../limits/ledger/sweep.ts';
import { shownAmount } from '../limits/ledger/terms.ts';
import { appendAudit, systemEntry } from '../resources/audit-logs/chain.ts';
import type { Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Macs } from '../store/vault.ts';
import { startLeader } from './leader.ts';

export interface UsageLimitsOptions {
  readonly tables: Tables;
  readonly clock: Clock;
  readonly log: Log;
  readonly node: string;
  /** Signs the audit log. */
  readonly macs: Macs;
}

const EVERY_MS = 2_000;
const PAGE = 100;

export function startUsageLimits(options: UsageLimitsOptions): Closable {
  const { tables, clock, log, node } = options;
  return startLeader({
    tables,
    clock,
    log,
    node,
    name: 'usage-limits',
    everyMs: 10_000,
    lead: async (signal) => {
      while (!signal.aborted) {
        const more = await sweepBooks({ tables, clock });
        await writeAlerts(options);
        if (!more) await pause(clock, EVERY_MS, signal);
      }
    },
  });
}

function pause(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = () => {
      cancel();
      signal.removeEventListener('abort', end);
      resolve();
    };
    const cancel = clock.after(ms, end);
    signal.addEventListener('abort', end);
  });
}

/** Puts every alert that waits into the audit log of its organisation. */
export async function writeAlerts({
  tables,
  clock,
  macs,
}: Pick<UsageLimitsOptions, 'tables' | 'clock' | 'macs'>): Promise<void> {
  const waiting = await tables.systemRead((tx) =>
    tx.list('usage_alerts', { where: { done_at: null }, orderBy: [['created_at', 'asc']], limit: PAGE }),
  );
  for (const { organisation_id, bucket_id, window_no, kind } of waiting) {
    const own = { bucket_id, window_no, kind };
    await tables.write(
      systemTenant(organisation_id),
      async (tx) => {
        const alert = await tx.find('usage_alerts', { ...own, done_at: null });
        const bucket = alert === undefined ? undefined : await tx.find('usage_buckets', { id: bucket_id });
        if (alert === undefined || bucket === undefined) return;
        const at = await tx.now();
        if ((await tx.update('usage_alerts', { ...own, done_at: null }, { done_at: at })) === 0) return;
        await appendAudit(
          tx,
          macs,
          systemEntry(clock, {
            organisationId: organisation_id,
            workspaceId: bucket.workspace_id,
            resource: RESOURCES[bucket.owner_kind],
            resourceId: bucket.owner_id,
            action: 'manage',
            before: null,
            after: told(alert, bucket),
          }),
        );
      },
      { queue: organisation_id },
    );
  }
}

const RESOURCES: Readonly<Record<Row<'usage_buckets'>['owner_kind'], string>> = {
  key: 'api-keys',
  workspace: 'workspaces',
  provider: 'providers',
  'virtual-key': 'virtual-keys',
  integration: 'integrations',
  policy: 'policies.usage-limits',
  token: 'workspaces',
};

function told(alert: Row<'usage_alerts'>, bucket: Row<'usage_buckets'>): Record<string, unknown> {
  const { type } = bucket;
  return {
    alert: alert.kind,
    value_key: bucket.value_key,
    type,
    current_usage: shownAmount(type, alert.used),
    credit_limit: shownAmount(type, bucket.credit_limit),
    alert_threshold: bucket.alert_threshold === null ? null : shownAmount(type, bucket.alert_threshold),
    window: alert.window_no,
  };
}
