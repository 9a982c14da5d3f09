/**
 * Limits that a token claims for itself (`usage_limits`, `rate_limits`), as the principal of its caller carries
 * them. Signature, lifetime, workspace and scopes are the business of whoever verified the token.
 */
import { createHash } from 'node:crypto';
import type { z } from 'zod';
import type { Principal } from '../auth/principal.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { UsageLimit } from '../store/schema.ts';
import { asList, defaultMetadata, rateLimitsOrOne, usageLimit } from './body-fields.ts';
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
const MAX_USAGE_LIMITS = 10;
/** Members that answers of the administration API have beside the limit; issuers copy them. */
const IGNORED = ['id', 'status'] as const;

/**
 * The limits of a token's caller. Usage limits are one object as on API keys, or a list of them; rate limits are a list or
 * one object. Throws 401 that names the claim when one is neither; null stands for no limit.
 *
 * What they count belongs to issuer and subject within the organisation, not to one token: a caller with a new token for each
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
  const usage = usageOf(claims.usage_limits);
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

/** Metadata that a token gives to each of its requests, as keys do (`defaults.metadata`). Throws 401 that names the claim. */
export function claimMetadata(value: unknown): Record<string, string> {
  return read('defaults.metadata', value, defaultMetadata) ?? {};
}

function usageOf(claim: unknown): UsageLimit | readonly UsageLimit[] | null {
  if (!Array.isArray(claim)) return read('usage_limits', withoutIgnored(claim), usageLimit);
  if (claim.length > MAX_USAGE_LIMITS)
    throw new SluiceError(
      'unauthenticated',
      `The token cannot be used: its claim usage_limits has more than ${MAX_USAGE_LIMITS} entries.`,
    );
  const limits = claim.flatMap(
    (item: unknown, i) => read(`usage_limits[${i}]`, withoutIgnored(item), usageLimit) ?? [],
  );
  return limits.length === 0 ? null : limits;
}

function withoutIgnored(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).filter(([name]) => !IGNORED.some((ignored) => ignored === name)));
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
