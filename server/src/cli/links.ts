/** Links of invites and sign-ins, and whether others can open them. */
import type { Config } from '../config.ts';

/** What the operator reads where `linksGoNowhere`. */
export const LINKS_GO_NOWHERE =
  'SLUICE_PUBLIC_URL is not set: invites and sign-in links begin with an address that other machines cannot open';

/** Whether others can reach the server while its links name an address of this machine only. */
export function linksGoNowhere({ publicUrl, host }: Pick<Config, 'publicUrl' | 'host'>): boolean {
  return publicUrl === null && !/^(?:localhost|127(?:\.\d{1,3}){3}|\[?::1\]?)$/i.test(host);
}
