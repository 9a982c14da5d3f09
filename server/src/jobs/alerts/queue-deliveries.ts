/** Puts an alert on its way: a row for each recipient, in the transaction in which it is raised. */
import type { Clock } from '../../kernel/clock.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { AlertRecipients } from '../../resources/settings/alerts.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';

type Delivery = Row<'alert_deliveries'>;
/** What all deliveries of an alert share. */
export type AlertOf = Pick<
  Delivery,
  'workspace_id' | 'owner_kind' | 'owner_id' | 'bucket_id' | 'window_no' | 'kind' | 'body'
>;

/** Of an alert without recipients: it is kept as the others are, and never sent. */
const NO_RECIPIENT = [['email', '']] as const;

export async function queueDeliveries(
  tx: TenantTx,
  clock: Clock,
  alert: AlertOf,
  { emails, webhookUrls }: AlertRecipients,
  now: number,
): Promise<void> {
  const channels = [
    ...webhookUrls.map((url) => ['webhook', url] as const),
    ...emails.map((address) => ['email', address] as const),
  ];
  for (const [channel, recipient] of channels.length === 0 ? NO_RECIPIENT : channels) {
    await tx.insert('alert_deliveries', {
      id: uuidv7(clock),
      organisation_id: tx.tenant.organisationId,
      ...alert,
      channel,
      recipient,
      tries: 0,
      next_at: recipient === '' ? null : now,
      delivered_at: null,
      last_error: null,
      created_at: now,
    });
  }
}
