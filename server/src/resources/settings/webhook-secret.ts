/**
 * The secrets that webhooks of an organisation are signed with. None is stored: each is derived from a master key, the
 * organisation and a number, and the settings hold the number. A new secret is the next number; the one before signs too
 * for a day, so receivers can be changed without losing anything.
 */
import type { TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { Macs } from '../../store/vault.ts';
import { part } from './section.ts';

type Organisation = Pick<Row<'organisations'>, 'id' | 'settings'>;

interface Generation {
  readonly generation: number;
  /** Master key it is derived from. */
  readonly key_id: string;
}

interface Stored extends Generation {
  readonly previous: (Generation & { readonly until: number }) | null;
}

const USE = 'webhook secret 1';
const OVERLAP_MS = 24 * 60 * 60_000;

function storedOf(organisation: Organisation): Stored | null {
  const stored = part(organisation.settings, 'webhook_signing');
  return typeof stored.generation === 'number' ? (stored as unknown as Stored) : null;
}

function derive(macs: Macs, { id }: Organisation, of: Generation): Buffer | null {
  return macs.mac(USE, Buffer.from(`${id}\n${of.generation}`, 'utf8'), of.key_id)?.digest ?? null;
}

/**
 * Every secret that signs at `now`, the newest first: empty before the first one was made, and when the master key it
 * was derived from is gone.
 */
export function signingSecrets(macs: Macs, organisation: Organisation, now: number): Buffer[] {
  const stored = storedOf(organisation);
  if (stored === null) return [];
  const { previous } = stored;
  return [stored, ...(previous !== null && previous.until > now ? [previous] : [])]
    .map((of) => derive(macs, organisation, of))
    .filter((secret) => secret !== null);
}

/** Makes the next secret of the transaction's organisation. Answers it as receivers take it: `whsec_` and base64. */
export async function nextSigningSecret(
  tx: TenantTx,
  macs: Macs,
  now: number,
): Promise<{ secret: string; previousUntil: number | null }> {
  const organisation = await tx.organisation();
  const stored = storedOf(organisation);
  const generation = (stored?.generation ?? 0) + 1;
  const { keyId, digest } = macs.mac(USE, Buffer.from(`${organisation.id}\n${generation}`, 'utf8'));
  const previous =
    stored === null ? null : { generation: stored.generation, key_id: stored.key_id, until: now + OVERLAP_MS };
  const signing: Stored = { generation, key_id: keyId, previous };
  const settings = { ...organisation.settings, webhook_signing: signing };
  await tx.updateOrganisation({ settings, last_updated_at: now });
  return { secret: `whsec_${digest.toString('base64')}`, previousUntil: previous?.until ?? null };
}
