/**
 * What buckets noted becomes an alert: its row in the audit log and one delivery for each recipient, in one transaction
 * with the mark that it was done, so each happens once however many leaders there are and wherever one is killed.
 */
import { systemTenant } from '../../auth/tenant.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { shownAmount } from '../../limits/ledger/limit-spec.ts';
import { appendAudit, systemEntry } from '../../resources/audit-logs/chain.ts';
import { alertRecipients } from '../../resources/settings/alerts.ts';
import type { Tables, TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { Macs } from '../../store/vault.ts';
import { alertEvent } from './event.ts';
import { queueDeliveries } from './queue-deliveries.ts';

export interface RaiseOptions {
  readonly tables: Tables;
  readonly clock: Clock;
  readonly log: Log;
  /** Signs the audit log. */
  readonly macs: Macs;
  /** Where links in alerts lead, without a trailing slash. */
  readonly publicUrl: () => string;
}

type Alert = Row<'usage_alerts'>;
type Bucket = Row<'usage_buckets'>;

const PAGE = 100;

/** Of one kind, of one limit, to each recipient within an hour: callers choose the values that a policy counts for. */
export const MAX_ALERTS_PER_HOUR = 100;
const HOUR_MS = 3_600_000;

/**
 * Raises every alert that waits, oldest first. One that fails is left for the next turn and holds up no other; after a page
 * of one organisation come those of the others.
 */
export async function raiseAlerts(options: RaiseOptions): Promise<void> {
  const { tables, log } = options;
  const failed = new Map<string, number>();
  let passed: string | null = null;
  for (;;) {
    // Behind the last one of the page before, by the whole primary key: alerts of one moment are many.
    let skip = 0;
    for (const [organisation, count] of failed) if (organisation !== passed) skip += count;
    const waiting: Alert[] = await tables.systemRead((tx) =>
      tx.list('usage_alerts', {
        where: { done_at: null, ...(passed === null ? {} : { organisation_id: { not: passed } }) },
        orderBy: [['created_at', 'asc']],
        limit: PAGE,
        offset: skip,
      }),
    );
    for (const alert of waiting) {
      try {
        await raiseOne(options, alert);
      } catch (error) {
        const { organisation_id, bucket_id, kind } = alert;
        failed.set(organisation_id, (failed.get(organisation_id) ?? 0) + 1);
        const fields = { organisation_id, bucket_id, kind, error: String(error) };
        log.error('an alert could not be raised; it is tried again', fields);
      }
    }
    if (passed === null && waiting.length < PAGE) return;
    const own: string | undefined = waiting[0]?.organisation_id;
    const alone = waiting.every((one) => one.organisation_id === own);
    passed = passed === null && alone ? (own ?? null) : null;
  }
}

async function raiseOne({ tables, clock, macs, publicUrl }: RaiseOptions, found: Alert): Promise<void> {
  const { organisation_id: organisationId, bucket_id, window_no, kind } = found;
  const own = { bucket_id, window_no, kind, done_at: null };
  await tables.write(
    systemTenant(organisationId),
    async (tx) => {
      const alert = await tx.find('usage_alerts', own);
      const bucket = alert === undefined ? undefined : await tx.find('usage_buckets', { id: bucket_id });
      if (alert === undefined || bucket === undefined) return;
      const now = await tx.now();
      if ((await tx.update('usage_alerts', own, { done_at: now })) === 0) return;
      const entry = systemEntry(clock, {
        organisationId,
        workspaceId: bucket.workspace_id,
        resource: RESOURCES[bucket.owner_kind],
        resourceId: bucket.owner_id,
        action: 'manage',
        before: null,
        after: audited(alert, bucket),
      });
      await appendAudit(tx, macs, entry);
      const workspace = await tx.find('workspaces', { id: bucket.workspace_id });
      const recipients = alertRecipients(await ownerOf(tx, bucket), workspace, await tx.organisation());
      const body = { ...alertEvent(alert, bucket, workspace?.slug ?? null, publicUrl()) };
      if (await isTold(tx, bucket, kind, now, recipients.emails.length + recipients.webhookUrls.length)) return;
      const { workspace_id, owner_kind, owner_id } = bucket;
      await queueDeliveries(
        tx,
        clock,
        { workspace_id, owner_kind, owner_id, bucket_id, window_no, kind, body },
        recipients,
        now,
      );
    },
    { queue: organisationId },
  );
}

/** Whether its recipients got enough alerts of this limit: further ones are in the audit log. */
async function isTold(
  tx: TenantTx,
  { owner_kind, owner_id }: Bucket,
  kind: Alert['kind'],
  now: number,
  recipients: number,
): Promise<boolean> {
  const where = { owner_kind, owner_id, kind, created_at: { gt: now - HOUR_MS } };
  return (await tx.count('alert_deliveries', { where })) >= MAX_ALERTS_PER_HOUR * Math.max(1, recipients);
}

/** Who is named at the limit's owner itself. */
async function ownerOf(tx: TenantTx, { owner_kind: kind, owner_id: id }: Bucket) {
  if (kind === 'key') return { alert_emails: (await tx.find('api_keys', { id }))?.alert_emails ?? null };
  if (kind === 'policy') return (await tx.find('usage_policies', { id })) ?? {};
  return {};
}

const RESOURCES: Readonly<Record<Bucket['owner_kind'], string>> = {
  key: 'api-keys',
  workspace: 'workspaces',
  provider: 'providers',
  'virtual-key': 'virtual-keys',
  integration: 'integrations',
  policy: 'policies.usage-limits',
  token: 'workspaces',
};

function audited(alert: Alert, bucket: Bucket): Record<string, unknown> {
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
