/** `POST /admin/organisation/webhook-secret`: what receivers of webhooks check signatures with. */
import { z } from 'zod';
import { toIsoOrNull } from '../../body-fields.ts';
import { tenantFields } from '../../fields.ts';
import { action } from '../../resource.ts';
import { nextSigningSecret } from '../../settings/webhook-secret.ts';

const { organisation_id } = tenantFields;
const query = z.strictObject({ organisation_id });

export const makeWebhookSecret = action({
  id: 'organisation.webhook_secret.create',
  method: 'POST',
  path: '/admin/organisation/webhook-secret',
  summary: 'Make the secret that webhooks are signed with',
  description:
    'Shown once. The previous secret also signs for 24 hours. Webhooks carry no signature until the first secret exists.',
  tag: 'Organisation',
  auth: 'key_or_login',
  scopes: ['organisation_settings.update'],
  tenant: 'organisation',
  params: null,
  query,
  body: null,
  response: z.object({
    object: z.literal('webhook-secret'),
    secret: z.string().describe('whsec_ and the key in base64, as libraries for Standard Webhooks take it.'),
    previous_valid_until: z.string().nullable(),
  }),
  writes: true,
  secretAnswer: true,
  audit: { action: 'rotate', resource: 'organisation_settings' },
  run: async (call) => {
    const { tx, vault, clock, tenant } = call;
    const { secret, previousUntil } = await nextSigningSecret(tx, vault, clock.now());
    tx.changed({ workspaceId: null, topic: 'organisations', entityId: tenant.organisationId });
    const shown = { object: 'webhook-secret' as const, previous_valid_until: toIsoOrNull(previousUntil) };
    call.audit(tenant.organisationId, { before: null, after: shown });
    return { ...shown, secret };
  },
});
