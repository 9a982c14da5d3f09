/** Headers of Standard Webhooks: id, time and signatures over both and the body. */
import { createHmac } from 'node:crypto';
import { signingSecrets } from '../../resources/settings/webhook-secret.ts';
import type { Row } from '../../store/schema.ts';
import type { Macs } from '../../store/vault.ts';

/**
 * Flat `[name, value, …]`. One signature for each secret that is valid at `now` (milliseconds); without a secret there is
 * no signature header.
 */
export function signedHeaders(
  macs: Macs,
  organisation: Row<'organisations'>,
  id: string,
  now: number,
  body: string,
): string[] {
  const seconds = String(Math.floor(now / 1000));
  const signatures = signingSecrets(macs, organisation, now).map(
    (secret) => `v1,${createHmac('sha256', secret).update(`${id}.${seconds}.${body}`, 'utf8').digest('base64')}`,
  );
  return [
    'webhook-id',
    id,
    'webhook-timestamp',
    seconds,
    ...(signatures.length === 0 ? [] : ['webhook-signature', signatures.join(' ')]),
  ];
}
