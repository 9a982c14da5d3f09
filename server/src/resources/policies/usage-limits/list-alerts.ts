/** `GET /policies/usage-limits/{id}/alerts`: the alerts of a policy and whom they have reached. */
import { z } from 'zod';
import { isObject } from '../../../kernel/json.ts';
import type { AlertKind, Row } from '../../../store/schema.ts';
import { toIso, toIsoOrNull } from '../../body-fields.ts';
import type { ChildList } from '../../kinds/child.ts';
import { checkSeesAll } from '../../logs/sight.ts';
import { shownUrl } from '../../secret-url.ts';

const ALERTS: readonly AlertKind[] = ['threshold', 'exhausted', 'unpriced'];

const item = z.object({
  id: z.string().describe('Also the webhook-id.'),
  alert: z.enum(ALERTS),
  value_key: z.string().nullable().describe('The value that the limit counts for, as in the webhook.'),
  channel: z.enum(['webhook', 'email']).nullable().describe('Null for an alert without recipients.'),
  recipient: z.string().nullable().describe('The address, or the host of the webhook. Null without recipients.'),
  status: z.enum(['waiting', 'delivered', 'failed', 'no_recipients']),
  tries: z.int(),
  next_try_at: z.string().nullable(),
  delivered_at: z.string().nullable(),
  last_error: z.string().nullable(),
  created_at: z.string(),
});

function present(row: Row<'alert_deliveries'>): z.input<typeof item> {
  const { data } = row.body;
  const value = isObject(data) ? data.value_key : null;
  return {
    id: row.id,
    // A policy has no others.
    alert: row.kind as AlertKind,
    value_key: typeof value === 'string' ? value : null,
    ...recipientOf(row),
    tries: row.tries,
    next_try_at: toIsoOrNull(row.next_at),
    delivered_at: toIsoOrNull(row.delivered_at),
    last_error: row.last_error,
    created_at: toIso(row.created_at),
  };
}

function recipientOf(row: Row<'alert_deliveries'>): Pick<z.input<typeof item>, 'channel' | 'recipient' | 'status'> {
  const { channel, recipient } = row;
  if (recipient === '') return { channel: null, recipient: null, status: 'no_recipients' };
  return {
    channel,
    // A webhook of the organisation may have a secret in its path, and this is read with rights in a workspace.
    recipient: channel === 'webhook' ? (URL.parse(shownUrl(recipient))?.host ?? '') : recipient,
    status: row.delivered_at !== null ? 'delivered' : row.next_at === null ? 'failed' : 'waiting',
  };
}

export const alerts: ChildList<'usage_policies', 'alert_deliveries', z.ZodRawShape, z.input<typeof item>> = {
  name: 'alerts',
  summary: 'List the alerts of a usage-limits policy',
  description: 'One for each recipient, newest first, for 30 days; one for an alert without recipients.',
  table: 'alert_deliveries',
  where: async (policy, call) => {
    await checkSeesAll(call, policy.workspace_id);
    return { owner_kind: 'policy', owner_id: policy.id };
  },
  orderBy: [['created_at', 'desc']],
  paging: 'page',
  item,
  present: (rows) => rows.map(present),
};
