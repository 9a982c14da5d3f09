/** Where the server's own cloud identity may go: a receiver of its credentials could act as the server. */
import { SluiceError } from '../kernel/errors.ts';
import type { AccessContext, AmbientIdentity } from './training.ts';

/** Hosts of a cloud that its customers cannot run, and what to tell a caller whose account leads elsewhere. */
export interface CloudHosts {
  readonly hosts: RegExp;
  readonly title: string;
  /** The setting that would have the account sign in with its own credentials. */
  readonly param: string;
  readonly instead: string;
}

/**
 * The identity that the operator lends to stored accounts, for a call to `url`; undefined where it lends none. Refuses
 * every host but those of the cloud itself and those the operator trusts.
 */
export function ambientFor(context: AccessContext, url: string, cloud: CloudHosts): AmbientIdentity | undefined {
  const { ambient } = context;
  if (ambient === undefined || isHostOf(url, cloud) || context.trusts?.(url) === true) return ambient;
  throw new SluiceError(
    'malformed_call',
    `The server's own identity is sent to ${cloud.title} only; ${cloud.instead} with this host, or let the operator trust it.`,
    { param: cloud.param },
  );
}

function isHostOf(url: string, { hosts }: CloudHosts): boolean {
  const parsed = URL.parse(url);
  return parsed !== null && parsed.protocol === 'https:' && hosts.test(parsed.hostname);
}
