/**
 * Limits that a token claims for itself (`usage_limits`, `rate_limits`), as the principal of its caller carries
 * them. Signature, lifetime, workspace and scopes are the business of whoever verified the token.
 */
import { createHash } from 'node:crypto';
import type { z } from 'zod';
import type { Principal } from '../auth/principal.ts';
import { SluiceError } from '../kernel/errors.ts';
import { asList, rateLimitsOrOne, usageLimit } from './body-fields.ts';
import { issuesOf } from './issues.ts';

/** What is read of the claims of a verified token; other members are ignored. */
export interface LimitClaims {
  readonly iss?: unknown;
  readonly sub?: unknown;
  readonly email_id?: unknown;
  readonly uid?: unknown;
  readonly jti?: unknown;
  /** Seconds since the epoch. */
  readonly iat?: unknown;
  readonly usage_limits?: unknown;
  readonly rate_limits?: unknown;
}

export type LimitsOfToken = Pick<Principal, 'rateLimits' | 'usageLimits' | 'changedAt'> &
  Required<Pick<Principal, 'limitOwner'>>;

const MAX_LABEL = 200;

/**
 * The limits of a token's caller. A usage limit is one object as on API keys, rate limits are a list or one
 * object. Throws 401 that names the claim when one is neither; null stands for no limit.
 *
 * What they count belongs to issuer and subject within a workspace, not to one token: a caller with a new token for each
 * call does not begin anew with each. The subject is whom requests are attributed to (`email_id`, `sub`, `uid`, in this
 * order); a token without any counts for itself, by `jti` or its digest. Of two tokens of one subject the limit of the one
 * that was issued later holds for both.
 *
 * @param token text of the token; only its digest is used
 * @param now milliseconds since the epoch, for a token that does not say when it was issued
 */
export function claimLimits(
  claims: LimitClaims,
  token: string,
  place: { readonly organisationId: string; readonly now: number },
): LimitsOfToken {
  const usage = read('usage_limits', claims.usage_limits, usageLimit);
  const rates = read('rate_limits', claims.rate_limits, rateLimitsOrOne);
  const subject = [claims.email_id, claims.sub, claims.uid].find(isText);
  const [what, who] =
    subject !== undefined
      ? ['sub', subject]
      : isText(claims.jti)
        ? ['jti', claims.jti]
        : ['token', createHash('sha256').update(token).digest('hex')];
  const issuer = isText(claims.iss) ? claims.iss : '';
  const digest = createHash('sha256')
    .update(JSON.stringify([place.organisationId, issuer, what, who]))
    .digest('hex');
  return {
    rateLimits: rates === null ? [] : asList(rates),
    usageLimits: usage,
    changedAt:
      typeof claims.iat === 'number' && claims.iat > 0 ? Math.min(Math.floor(claims.iat * 1000), place.now) : place.now,
    limitOwner: {
      kind: 'token',
      id: digest.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12}).*$/, '$1-$2-$3-$4-$5'),
      label: what === 'token' ? who.slice(0, 12) : labelOf(who),
    },
  };
}

/** What an issuer writes may also be what no store takes. */
function labelOf(subject: string): string {
  return subject.slice(0, MAX_LABEL).toWellFormed().replaceAll('\u0000', '\ufffd');
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

function read<S extends z.ZodType>(claim: string, value: unknown, shape: S): z.output<S> | null {
  if (value === undefined || value === null) return null;
  const parsed = shape.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = issuesOf(parsed.error, claim);
  throw new SluiceError(
    'unauthenticated',
    `The token cannot be used: its claim ${issue?.path ?? claim} ${issue?.message ?? 'is not valid'}.`,
  );
}
