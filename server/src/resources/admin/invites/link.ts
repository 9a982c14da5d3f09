/** The link of an invite: 256 random bits, of which only the digest is stored. */
import { createHash } from 'node:crypto';
import { base62 } from '../../../kernel/id.ts';

/** How long an invite may be accepted after it was sent, milliseconds. */
export const INVITE_TTL_MS = 7 * 86_400_000;

const TOKEN = /^[0-9A-Za-z]{43}$/;

/** A new link on this installation, and what is kept of it. */
export function newLink(publicUrl: string): { readonly url: string; readonly digest: string } {
  const token = base62(43);
  // In the fragment, which browsers never send, so that no log on the way can hold it.
  return { url: `${publicUrl}/console/invite#${token}`, digest: digestOf(token) };
}

/** What the store knows a token by; null for text that no link holds. */
export function digestOfToken(token: string): string | null {
  return TOKEN.test(token) ? digestOf(token) : null;
}

const digestOf = (token: string): string => createHash('sha256').update(token).digest('hex');
