/** Headers of Standard Webhooks: id, time and signatures over both and the body. */
import { createHmac } from 'node:crypto';

/**
 * Flat `[name, value, …]`: one signature for each secret; without a secret there is no signature header.
 *
 * @param now milliseconds since the epoch
 */
export function webhookHeaders(secrets: readonly Uint8Array[], id: string, now: number, body: string): string[] {
  const seconds = String(Math.floor(now / 1000));
  const signatures = secrets.map(
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
