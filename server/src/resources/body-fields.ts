/**
 * Field shapes that several resources share: names and texts, slugs, tags, dates, limits (11.6), secret
 * mappings, custom hosts and headers. Schemas only; rules that need the clock or the store are functions beside.
 */
import { createHmac } from 'node:crypto';
import { z } from 'zod';
import { SluiceError } from '../kernel/errors.ts';
import { savedHeaderProblem } from '../kernel/header-names.ts';
import { text } from '../kernel/text-schema.ts';
import { ABOVE_LARGEST, isAboveLargest } from '../limits/ledger/limit-spec.ts';
import type { UsageLimit } from '../store/schema.ts';
import { utcMidnight } from './fields.ts';

/**
 * Answers null for a host that may be stored, else what is wrong with it as a sentence for the caller.
 * The resources must not know HTTP, so whoever composes the server hands the egress guard's syntax check in.
 */
export type CheckHost = (url: string, rules?: { readonly httpsOnly?: boolean }) => string | null;

export { codePoints, isCleanText, text } from '../kernel/text-schema.ts';

/** Display name: 1 to 255 code points. */
export const name = text(255, 1);
export const description = text(1024);
/** A slug that a caller chooses. */
export const slug = z
  .string()
  .max(255)
  .regex(/^[a-zA-Z0-9_-]+$/, 'must consist of letters, digits, hyphens and underscores');
/** A path parameter or a reference: the UUID or the slug. */
const idOrSlug = text(255, 1);
/** Names of base providers (`openai`, `azure-openai`). */
export const providerId = z
  .string()
  .max(64)
  .regex(/^[a-z0-9][a-z0-9._-]*$/, 'must be the id of a base provider, such as "openai"');

/** Half of what a request may have: what a key and its workspace say always fits together. */
export const MAX_DEFAULT_KEYS = 32;

/** Metadata that a key or workspace gives to each of its requests: at most 32 keys; keys 1..128, values up to 128 code points. */
export const defaultMetadata = z.record(text(128, 1), text(128)).check((check) => {
  if (Object.keys(check.value).length > MAX_DEFAULT_KEYS)
    check.issues.push({ code: 'custom', input: check.value, message: `must have at most ${MAX_DEFAULT_KEYS} keys` });
});

/** String map of at most 50 tags; keys 1..128, values up to 256 code points. */
export const tags = z.record(text(128, 1), text(256)).superRefine((value, context) => {
  if (Object.keys(value).length > 50) context.addIssue({ code: 'custom', message: 'must have at most 50 tags' });
});

/** ISO 8601 with a zone, a real calendar day, years 1970 to 9999. Stored as milliseconds: `toMillis`. */
export const isoDate = z.iso
  .datetime({ offset: true, error: 'must be an ISO 8601 date with a zone, such as 2026-05-01T00:00:00Z' })
  .refine((value) => Date.parse(value) >= 0 && Date.parse(value) < 253_402_300_800_000, {
    error: 'must lie in the years 1970 to 9999',
  });

export function toMillis(date: string): number {
  return Date.parse(date);
}

/** How the admin API writes a time: ISO 8601 UTC with milliseconds. */
export function toIso(millis: number): string {
  return new Date(millis).toISOString();
}

export function toIsoOrNull(millis: number | null): string | null {
  return millis === null ? null : toIso(millis);
}

/** A flag as answers have it since their beginning. */
export const flagOf = (value: boolean): 0 | 1 => (value ? 1 : 0);

/** A rate limit. */
export const rateLimit = z
  .strictObject({
    type: z.enum(['requests', 'tokens']),
    unit: z.enum(['rps', 'rpm', 'rph', 'rpd', 'rpw']),
    value: z.int().min(0),
  })
  .meta({ title: 'RateLimit' });

/** Two types, five units. */
const MAX_RATE_LIMITS = 10;

/** One limit per pair of type and unit, so a request never counts against more than ten windows of one list. */
export const rateLimits = z
  .array(rateLimit)
  .max(MAX_RATE_LIMITS)
  .superRefine((limits, context) => {
    const seen = new Set<string>();
    for (const [index, limit] of limits.entries()) {
      const key = `${limit.type} ${limit.unit}`;
      if (seen.has(key)) {
        context.addIssue({
          code: 'custom',
          path: [index],
          message: `repeats the limit of ${limit.type} per ${limit.unit}`,
        });
      }
      seen.add(key);
    }
  });

/** Providers and virtual keys also take a single object; `asList` makes it a list. */
export const rateLimitsOrOne = z.union([rateLimits, rateLimit]);

export function asList<T>(value: readonly T[] | T): T[] {
  return Array.isArray(value) ? [...value] : [value as T];
}

const tokenPrice = z.number().min(0).max(1_000_000);

/** What a `cost` limit does where no price is known (`UnpricedRule`). */
export const unpricedRule = z
  .union([z.enum(['deny', 'serve']), z.strictObject({ input: tokenPrice, output: tokenPrice })])
  .describe(
    'For requests whose price is unknown: `deny` refuses them; an object sets a price in dollars per million tokens. `serve` lets them pass, marks them, and sends one alert in each window. Without it, the rule of the installation applies.',
  );
export const outageRule = z
  .enum(['refuse', 'serve'])
  .describe(
    'While usage cannot be read and what this node holds of the limit is spent: refuse with 503 (default), or serve and count later.',
  );

const WHOLE =
  'must be a whole number, of dollars or of tokens by its type; a policy takes fractions of a dollar (POST /policies/usage-limits)';

/** Not `z.int()`: its refusal of 2^53 would name 2^53 - 1 as the largest. */
const wholeAmount = z
  .number({ error: WHOLE })
  .refine(Number.isInteger, { error: WHOLE, abort: true })
  .min(1)
  .meta({ type: 'integer' });

/** A usage limit. `usageLimitOf` adds what depends on the time. */
export const usageLimit = z
  .strictObject({
    credit_limit: wholeAmount.describe(`Whole US dollars or tokens; ${ABOVE_LARGEST}.`).optional(),
    type: z.enum(['cost', 'tokens']).optional(),
    alert_threshold: wholeAmount.optional(),
    periodic_reset: z.enum(['monthly', 'weekly']).nullable().optional(),
    periodic_reset_days: z.int().min(1).max(365).nullable().optional(),
    next_usage_reset_at: isoDate.nullable().optional(),
    unpriced: unpricedRule.optional(),
    on_outage: outageRule.optional(),
  })
  .superRefine((limit, context) => {
    for (const field of ['credit_limit', 'alert_threshold'] as const) {
      const amount = limit[field];
      if (amount === undefined || !isAboveLargest(limit.type ?? 'cost', amount)) continue;
      context.addIssue({ code: 'custom', path: [field], message: ABOVE_LARGEST });
    }
    if (limit.unpriced !== undefined && limit.type === 'tokens') {
      context.addIssue({ code: 'custom', path: ['unpriced'], message: 'belongs to limits of type cost' });
    }
    if (
      limit.alert_threshold !== undefined &&
      limit.credit_limit !== undefined &&
      limit.alert_threshold >= limit.credit_limit
    ) {
      context.addIssue({ code: 'custom', path: ['alert_threshold'], message: 'must be below credit_limit' });
    }
    if (limit.periodic_reset != null && limit.periodic_reset_days != null) {
      context.addIssue({
        code: 'custom',
        path: ['periodic_reset_days'],
        message: 'cannot be combined with periodic_reset: give one of the two',
      });
    }
  })
  .meta({ title: 'UsageLimit' });

/** A workspace has several; two of one type and period would be two limits on one counter. */
export function usageLimits(max: number) {
  return z
    .array(usageLimit)
    .max(max)
    .superRefine((limits, context) => {
      const seen = new Set<string>();
      for (const [index, limit] of limits.entries()) {
        const days = limit.periodic_reset_days;
        const period = limit.periodic_reset ?? (days == null ? 'no period' : `every ${days} days`);
        const key = `${limit.type ?? 'cost'}, ${period}`;
        if (seen.has(key)) context.addIssue({ code: 'custom', path: [index], message: `repeats the limit of ${key}` });
        seen.add(key);
      }
    });
}

/** Workspaces of an integration take at most one limit of each kind. */
export const atMostOneUsageLimit = z.array(usageLimit).max(1);
export const atMostOneRateLimit = z.array(rateLimit).max(1);

/** A rate limit as it is answered. */
export const rateLimitAnswer = z.object({ type: z.string(), unit: z.string(), value: z.number() });

/** A usage limit as it is answered: with its state. */
export const usageLimitAnswer = z
  .looseObject({
    credit_limit: z.number().optional(),
    type: z.string().optional(),
    status: z.enum(['active', 'exhausted']).optional(),
    last_reset_at: z.string().nullable().optional(),
  })
  .meta({ title: 'UsageLimitState' });

/**
 * A usage limit as it is stored: its next reset is a UTC midnight. Throws 400 when that has passed.
 *
 * @param param path of the usage-limit object
 */
export function usageLimitOf(limit: UsageLimit, now: number, param: string): UsageLimit {
  const { next_usage_reset_at: given } = limit;
  if (given == null) return limit;
  const at = utcMidnight(toMillis(given));
  if (at > now) return { ...limit, next_usage_reset_at: toIso(at) };
  throw new SluiceError('validation', `${param}.next_usage_reset_at must be a later day than today (UTC).`, {
    param: `${param}.next_usage_reset_at`,
  });
}

/** A list of them; null and absent stay what they are. */
export function usageLimitsOf<L extends readonly UsageLimit[] | null | undefined>(
  limits: L,
  now: number,
  param: string,
): UsageLimit[] | Extract<L, null | undefined> {
  if (limits == null) return limits as Extract<L, null | undefined>;
  return limits.map((limit, index) => usageLimitOf(limit, now, `${param}[${index}]`));
}

/** Far more fields than any provider has. */
const MAX_MAPPINGS = 100;

/** Settings of a model. `prefix` is `configurations` or `model_config`. */
export function secretMappings(prefix: string) {
  return z
    .array(
      z.strictObject({
        target_field: z
          .string()
          .max(255)
          .refine(
            (value) =>
              value === 'key' ||
              (value.startsWith(`${prefix}.`) && /^[A-Za-z0-9_]+$/.test(value.slice(prefix.length + 1))),
            {
              error: `must be "key" or "${prefix}.<field>"`,
            },
          ),
        secret_reference_id: idOrSlug,
        secret_key: text(255).nullable().optional(),
        value_format: z.enum(['json', 'string']).nullable().optional(),
      }),
    )
    .max(MAX_MAPPINGS)
    .superRefine((mappings, context) => {
      const seen = new Set<string>();
      for (const [index, mapping] of mappings.entries()) {
        if (seen.has(mapping.target_field)) {
          context.addIssue({
            code: 'custom',
            path: [index, 'target_field'],
            message: `${mapping.target_field} is mapped twice`,
          });
        }
        seen.add(mapping.target_field);
      }
    });
}

/** Flat string-to-string map of headers that are sent with every call. */
export const customHeaders = z.record(z.string(), z.string()).superRefine((headers, context) => {
  const seen = new Set<string>();
  for (const [header, value] of Object.entries(headers)) {
    const lower = header.toLowerCase();
    const issue = (message: string) => context.addIssue({ code: 'custom', path: [header], message });
    const problem = seen.has(lower) ? 'is given twice' : savedHeaderProblem(header, value);
    if (problem !== null) issue(problem);
    seen.add(lower);
  }
});

/** A custom host as text; whether it may be called is for the injected `CheckHost` to say. */
export const customHost = z
  .string()
  .min(1)
  .max(2048)
  .refine((value) => !value.includes('?'), { error: 'must have no query: only host and path are used' });

/** Masks of secrets: seven asterisks with a few characters beside them. */
const MASK = /^[0-9A-Za-z]{0,8}\*{7}[0-9A-Za-z]{0,8}$/;

/** A value that was read from an answer of ours and must never be written back over the secret. */
export function isMask(value: unknown): boolean {
  return typeof value === 'string' && MASK.test(value.trim());
}

export const REFUSED_MASK =
  'is a masked value from an earlier answer: send the secret itself, or leave the field out to keep it';

/** A secret as it is written. Up to 16 KB (a service-account key is 2 KB); a mask is refused. */
export const secretText = text(16_384, 1).refine((value) => !isMask(value), { error: REFUSED_MASK });

/**
 * What is shown in place of a sealed value: `*******` and 8 hexadecimal digits of an HMAC-SHA256. It is
 * taken over the envelope's random IV, ciphertext and tag, not over the secret: it changes when the secret is written
 * again, needs no key to be opened, and nobody can test a guess against it. `field` tells values of one envelope apart.
 */
export function maskOf(sealed: string, field = ''): string {
  const envelope = sealed.split('.').slice(3).join('.');
  return `*******${createHmac('sha256', envelope).update(field).digest('hex').slice(0, 8)}`;
}
