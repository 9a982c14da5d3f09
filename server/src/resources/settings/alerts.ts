/** The recipients of the alerts of usage limits: fields of bodies, and what the settings of a place come to. */
import { z } from 'zod';
import type { Row } from '../../store/schema.ts';
import { email } from '../fields.ts';
import type { Call } from '../resource.ts';
import { sameness, shownUrl, storedUrl } from '../secret-url.ts';
import { part } from './section.ts';

const MAX_EMAILS = 50;
const MAX_URL = 2048;

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
  .strictObject({ emails: alertEmails.nullable().optional(), webhook_url: alertWebhookUrl.nullable().optional() })
  .describe(
    'Recipients of an alert when a usage limit crosses its threshold, is exhausted, or meets an unknown price.',
  );

export const alertSettingsAnswer = z.object({ emails: z.array(z.string()), webhook_url: z.string().nullable() });

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
  const { emails, webhook_url } = part(shownSettings(settings), 'alerts');
  return { emails: (emails as string[] | undefined) ?? [], webhook_url: (webhook_url as string | undefined) ?? null };
}

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
