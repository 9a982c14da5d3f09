/** What alerts are signed with: the secrets of their organisation. */
import { webhookHeaders } from '../../kernel/webhook-signature.ts';
import { signingSecrets } from '../../resources/settings/webhook-secret.ts';
import type { Row } from '../../store/schema.ts';
import type { Macs } from '../../store/vault.ts';

/** Flat `[name, value, …]`, with one signature for each secret that is valid at `now` (milliseconds). */
export function signedHeaders(
  macs: Macs,
  organisation: Row<'organisations'>,
  id: string,
  now: number,
  body: string,
): string[] {
  return webhookHeaders(signingSecrets(macs, organisation, now), id, now, body);
}
