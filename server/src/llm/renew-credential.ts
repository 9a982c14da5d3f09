import { refusesCredential } from '../operations/dialects/provider-error.ts';
import type { Uses } from './exchange.ts';
import type { AttemptResult } from './state/attempt-result.ts';
import type { Target } from './target.ts';

/**
 * After a provider has refused the credential of an account that secret managers fill: the target with what they hold now. Null
 * where that is the same, where no manager answers, or where it is too late for another call.
 */
export async function renewedTarget(
  x: Uses<'clientGone' | 'outcome'>,
  target: Target,
  result: AttemptResult,
): Promise<Target | null> {
  if (result.kind !== 'answered') return null;
  if (result.status !== 403 && !refusesCredential(result.status, result.error)) return null;
  if (x.outcome.headSent || x.clientGone) return null;
  const renewed = await freshTarget(target);
  return x.clientGone ? null : renewed;
}

/** The target with what secret managers hold now; null where that is the same, or where no manager answers. */
export async function freshTarget(target: Target): Promise<Target | null> {
  const account = target.stored?.account;
  if (account?.renew === undefined || target.opened === null) return null;
  const fresh = await account.renew(target.opened).catch(() => null);
  const renewed = fresh === null ? null : target.renewed(fresh);
  // All who share the target find another one with their next request.
  if (renewed !== null) target.until = 0;
  return renewed;
}
