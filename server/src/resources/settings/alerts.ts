/** Alerts in the settings of a place: whom they go to, and what of the place's traffic is watched. */
import { z } from 'zod';
import type { TenantTx } from '../../store/ports.ts';
import type { Row, TrafficBudgets } from '../../store/schema.ts';
import { email } from '../fields.ts';
import type { Call } from '../resource.ts';
import { sameness, shownUrl, storedUrl } from '../secret-url.ts';
import { part } from './section.ts';

const MAX_EMAILS = 50;
const MAX_URL = 2048;
const MOST_DOLLARS = 1_000_000_000;
const MICROS_PER_DOLLAR = 1_000_000;
/** Of a percentage: a budget of nothing would make each failed request an alert. */
const LEAST_PERCENT = 0.001;

export const alertEmails = z
  .array(email)
  .max(MAX_EMAILS)
  .describe('Addresses that get a mail with each alert. Mails need SLUICE_SMTP_URL.');
export const alertWebhookUrl = z
  .string()
  .min(1)
  .max(MAX_URL)
  .describe('Called with each alert, signed after Standard Webhooks.');

/** `alerts` in the settings of an organisation or a workspace. */
export const alertSettings = z
  .strictObject({
    emails: alertEmails.nullable().optional(),
    webhook_url: alertWebhookUrl.nullable().optional(),
    spend_budget: z
      .number()
      .min(0.01)
      .max(MOST_DOLLARS)
      .nullable()
      .optional()
      .describe('US dollars in 30 days: an alert is sent while money is spent much faster. Default null, no alert.'),
    error_budget: z
      .number()
      .min(LEAST_PERCENT)
      .max(100)
      .nullable()
      .optional()
      .describe('Percent of the requests that may fail: an alert is sent while many more do. Default null, no alert.'),
    spend_anomalies: z
      .boolean()
      .nullable()
      .optional()
      .describe(
        'Whether an alert is sent when an hour costs far more or less than that hour of the four weeks before.',
      ),
  })
  .describe(
    'Recipients of an alert when a usage limit crosses its threshold, is exhausted, or meets an unknown price; and what is watched of all requests of this place.',
  );

export const alertSettingsAnswer = z.object({
  emails: z.array(z.string()),
  webhook_url: z.string().nullable(),
  spend_budget: z.number().nullable().describe('US dollars in 30 days.'),
  error_budget: z.number().nullable().describe('Percent.'),
  spend_anomalies: z.boolean(),
});

/** Recipients of alerts. Addresses of webhooks as they are stored. */
export interface AlertRecipients {
  readonly emails: readonly string[];
  readonly webhookUrls: readonly string[];
}

type Given = z.output<typeof alertSettings> | null | undefined;

/**
 * `alerts` of a body as they are stored: `{ alerts }`, or nothing where the body says nothing of them. Throws 400 for an
 * address that no call may go to.
 */
export async function storedAlerts(
  call: Pick<Call, 'vault' | 'tenant' | 'checkHost'>,
  given: Given,
  settings: Readonly<Record<string, unknown>>,
  param: string,
): Promise<{ alerts?: Given }> {
  if (given == null) return given === undefined ? {} : { alerts: given };
  const before = part(settings, 'alerts').webhook_url as string | undefined;
  const url = await storedUrl(call, given.webhook_url, before, `${param}.webhook_url`);
  return { alerts: url === undefined ? given : { ...given, webhook_url: url } };
}

/** Settings as they are answered: nothing of them is secret but the path of the webhook. */
export function shownSettings(settings: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const { webhook_url: url } = part(settings, 'alerts');
  if (typeof url !== 'string') return { ...settings };
  return { ...settings, alerts: { ...part(settings, 'alerts'), webhook_url: shownUrl(url) } };
}

export function presentAlerts(settings: Readonly<Record<string, unknown>>): z.output<typeof alertSettingsAnswer> {
  const { emails, webhook_url, spend_budget, error_budget, spend_anomalies } = part(shownSettings(settings), 'alerts');
  return {
    emails: (emails as string[] | undefined) ?? [],
    webhook_url: (webhook_url as string | undefined) ?? null,
    spend_budget: (spend_budget as number | undefined) ?? null,
    error_budget: (error_budget as number | undefined) ?? null,
    spend_anomalies: spend_anomalies === true,
  };
}

/** What the settings of a place say of watching its traffic; null where they say nothing. */
function trafficBudgets(settings: Readonly<Record<string, unknown>>): TrafficBudgets | null {
  const { spend_budget: dollars, error_budget: percent, spend_anomalies } = part(settings, 'alerts');
  const budgets: TrafficBudgets = {
    spend_budget: typeof dollars === 'number' ? Math.round(dollars * MICROS_PER_DOLLAR) : null,
    error_budget: typeof percent === 'number' ? percent : null,
    spend_anomalies: spend_anomalies === true,
  };
  return budgets.spend_budget === null && budgets.error_budget === null && !budgets.spend_anomalies ? null : budgets;
}

/**
 * Has the traffic of a place watched as its settings say now. Other budgets begin anew: what was raised under those before may be
 * raised again.
 *
 * @param workspaceId null: the whole organisation
 */
export async function followAlertSettings(
  tx: TenantTx,
  workspaceId: string | null,
  settings: Readonly<Record<string, unknown>>,
  now: number,
): Promise<void> {
  const { organisationId } = tx.tenant;
  const id = workspaceId ?? organisationId;
  const budgets = trafficBudgets(settings);
  const watch = await tx.find('alert_watches', { id });
  if (budgets === null) {
    if (watch !== undefined) await tx.remove('alert_watches', { id });
  } else if (watch === undefined) {
    const place = { id, organisation_id: organisationId, workspace_id: workspaceId ?? '' };
    await tx.insert('alert_watches', { ...place, budgets, raised: {}, created_at: now, last_updated_at: now });
  } else if (!isSame(watch.budgets, budgets)) {
    await tx.update('alert_watches', { id }, { budgets, raised: {}, last_updated_at: now });
  }
}

const isSame = (one: TrafficBudgets, other: TrafficBudgets) =>
  one.spend_budget === other.spend_budget &&
  one.error_budget === other.error_budget &&
  one.spend_anomalies === other.spend_anomalies;

/**
 * Whom an alert of a limit goes to: who is named at the limit's owner, and who is named for the workspace; for what the
 * workspace does not set, the organisation's. Each once.
 */
export function alertRecipients(
  owner: { readonly alert_emails?: readonly string[] | null; readonly alert_webhook_url?: string | null },
  workspace: Pick<Row<'workspaces'>, 'settings'> | undefined,
  organisation: Pick<Row<'organisations'>, 'settings'>,
): AlertRecipients {
  const own = part(workspace?.settings ?? {}, 'alerts');
  const general = part(organisation.settings, 'alerts');
  const emails = [...(owner.alert_emails ?? []), ...((own.emails ?? general.emails ?? []) as string[])];
  const urls = [owner.alert_webhook_url, (own.webhook_url ?? general.webhook_url) as string | undefined];
  const byAddress = new Map<string, string>();
  for (const address of emails)
    if (!byAddress.has(address.toLowerCase())) byAddress.set(address.toLowerCase(), address);
  return {
    emails: [...byAddress.values()],
    webhookUrls: [...new Map(urls.filter((url) => url != null).map((url) => [sameness(url), url])).values()],
  };
}
