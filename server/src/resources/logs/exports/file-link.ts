/** Links to files of exports: signed, short-lived, and bound to the organisation, the caller, the export and its run. */
import { z } from 'zod';
import type { Macs } from '../../../store/vault.ts';
import { openSigned, signValue } from '../../signed.ts';
import type { Holder } from './holder.ts';

const USE = 'log export file';
const LINK_MS = 15 * 60_000;

export interface FileLink extends Holder {
  readonly organisationId: string;
  readonly exportId: string;
  readonly run: number;
}

const payload = z.strictObject({
  o: z.string(),
  e: z.string(),
  r: z.int(),
  u: z.string().nullable(),
  k: z.string().nullable(),
  t: z.int(),
});

/** Opened by whoever has it, for 15 minutes. */
export function signFileLink(macs: Macs, link: FileLink, now: number): string {
  const { organisationId: o, exportId: e, run: r, userId: u, keyId: k } = link;
  return signValue(macs, USE, { o, e, r, u, k, t: now + LINK_MS });
}

/** Null for a token that was not made here, or whose time is over. */
export function openFileLink(macs: Macs, token: string, now: number): FileLink | null {
  const signed = openSigned(macs, USE, token);
  if (signed === null) return null;
  const { o, e, r, u, k, t } = payload.parse(signed);
  return t <= now ? null : { organisationId: o, exportId: e, run: r, userId: u, keyId: k };
}
