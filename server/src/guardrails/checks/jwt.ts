import { createHash } from 'node:crypto';
import type { JSONWebKeySet, JWTPayload } from 'jose';
import { z } from 'zod';
import { isObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { Lru } from '../../kernel/lru.ts';
import { CheckError, type CheckHttpClient, type Judgement } from '../check.ts';
import { expected, matchesExpected, matchTypes, patternsAmong } from './metadata.ts';
import { ANY_TARGET, check, INPUT, MAX_CHOICES, text, texts, url } from './support.ts';

/** Signatures that a public key checks; with a shared secret, whoever can read the guardrail could sign. */
const ALGORITHMS = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
] as const;

/** Unknown key ids ask for the key set again, but not more often than this. */
const REFETCH_MS = 30_000;
const MAX_TOKEN = 16_384;
const seconds = (most: number) => z.number().min(0).max(most);

const parameters = z
  .strictObject({
    jwksUri: url.optional(),
    jwks: z
      .looseObject({
        keys: z
          .array(z.looseObject({ kty: z.enum(['RSA', 'EC', 'OKP']) }))
          .min(1)
          .max(100),
      })
      .optional(),
    introspectEndpoint: url.optional(),
    introspectContentType: z
      .enum(['application/x-www-form-urlencoded', 'application/json'])
      .default('application/x-www-form-urlencoded'),
    introspectCacheMaxAge: seconds(86_400).default(0),
    headerKey: z.string().regex(/^[A-Za-z0-9-]{1,100}$/, 'must be a header name'),
    cacheMaxAge: seconds(31_536_000).default(86_400),
    clockTolerance: seconds(3_600).default(5),
    maxTokenAge: z
      .union([
        z
          .string()
          .regex(/^\d{1,9} ?(?:s|m|h|d|w|y|secs?|mins?|hours?|days?|weeks?|years?)$/, 'must be a time such as 1d'),
        seconds(3_153_600_000),
      ])
      .default('1d'),
    algorithms: z.array(z.enum(ALGORITHMS)).min(1).max(MAX_CHOICES).default(['RS256']),
    requiredClaims: texts(100, 200).optional(),
    claimValues: z
      .record(text(200), z.strictObject({ values: expected, matchType: matchTypes.default('exact') }))
      .optional(),
    headerPayloadMatch: texts(50, 100).optional(),
  })
  .superRefine((value, context) => {
    const sources = [value.jwksUri, value.jwks, value.introspectEndpoint].filter((source) => source !== undefined);
    if (sources.length !== 1)
      context.addIssue({ code: 'custom', message: 'must have exactly one of jwksUri, jwks and introspectEndpoint' });
    for (const [claim, { values, matchType }] of Object.entries(value.claimValues ?? {}))
      patternsAmong(values, matchType, ['claimValues', claim, 'values'], context);
  });
type Parameters = z.output<typeof parameters>;

const failed = (explanation: string): Judgement => ({ verdict: false, data: { explanation } });

/** A claim as texts: lists are any of their members, and `scope` the words in it as well. */
function claimTexts(claim: unknown): string[] {
  if (Array.isArray(claim)) return claim.flatMap(claimTexts);
  if (typeof claim === 'string') return [claim];
  return typeof claim === 'number' || typeof claim === 'boolean' ? [String(claim)] : [];
}

/** What claims lack of what is asked for; null when nothing. Names claims, never values. */
function claimsFault(
  claims: JWTPayload,
  given: Parameters,
  header: (name: string) => string | undefined,
): string | null {
  for (const claim of given.requiredClaims ?? [])
    if (!Object.hasOwn(claims, claim) || claims[claim] === null) return `The claim ${claim} is missing.`;
  for (const [claim, { values, matchType }] of Object.entries(given.claimValues ?? {})) {
    const has = Object.hasOwn(claims, claim) ? claimTexts(claims[claim]) : [];
    const ok =
      matchType === 'containsAll' && has.length > 1
        ? values.every((value) => has.some((one) => one.includes(value)))
        : has.some((one) => matchesExpected(one, values, matchType));
    if (!ok) return `The claim ${claim} is not as expected.`;
  }
  for (const name of given.headerPayloadMatch ?? []) {
    const sent = header(name.toLowerCase());
    const claimed = Object.hasOwn(claims, name) ? claimTexts(claims[name]) : [];
    if (sent === undefined || !claimed.includes(sent))
      return `The header ${name} does not equal the claim of that name.`;
  }
  return null;
}

/** Key sets by URL, for one guardrail: fetched once, kept for `cacheMaxAge`. */
function keySets(given: Parameters) {
  let kept: { readonly set: JSONWebKeySet; readonly at: number } | null = null;
  let coming: Promise<JSONWebKeySet> | null = null;
  const load = async (from: string, outside: CheckHttpClient): Promise<JSONWebKeySet> => {
    const set = keySetOf(
      await json(outside, { url: from, method: 'GET', headers: { accept: 'application/json' }, body: null }),
    );
    kept = { set, at: outside.now() };
    return set;
  };
  /** `fresher`: a token names a key that the kept set lacks. */
  return async (outside: CheckHttpClient, fresher: boolean): Promise<JSONWebKeySet> => {
    if (given.jwks !== undefined) return given.jwks as JSONWebKeySet;
    const age = kept === null ? Number.POSITIVE_INFINITY : outside.now() - kept.at;
    if (kept !== null && age >= 0 && age < (fresher ? REFETCH_MS : given.cacheMaxAge * 1000)) return kept.set;
    // Callers that come meanwhile wait for the same answer; a failure is not kept.
    coming ??= load(given.jwksUri ?? '', outside).finally(() => {
      coming = null;
    });
    return coming;
  };
}

function keySetOf(value: unknown): JSONWebKeySet {
  if (!isObject(value) || !Array.isArray(value.keys)) throw new CheckError('The key set is not a JSON Web Key Set.');
  // A set that holds secrets is a mistake of its publisher; they must not become keys here.
  return { keys: value.keys.filter((key) => isObject(key) && key.kty !== 'oct') } as unknown as JSONWebKeySet;
}

async function json(outside: CheckHttpClient, request: Asked): Promise<unknown> {
  const answer = await outside.call(request);
  if (answer.status !== 200)
    throw new CheckError(`The server that knows the token's keys answered with ${answer.status}.`);
  try {
    return parseJson(answer.body.toString('utf8'));
  } catch {
    throw new CheckError("The server that knows the token's keys did not answer with JSON.");
  }
}
type Asked = FirstOf<CheckHttpClient['call']>;
type FirstOf<F> = F extends (request: infer R) => unknown ? R : never;

/** What an introspection server says of a token (RFC 7662), kept by digest for `introspectCacheMaxAge`, never past `exp`. */
function introspection(given: Parameters) {
  const kept = new Lru<string, { readonly claims: JWTPayload; readonly until: number }>({ maxEntries: 5_000 });
  return async (token: string, outside: CheckHttpClient): Promise<JWTPayload> => {
    const digest = createHash('sha256').update(token).digest('base64');
    const known = kept.get(digest);
    if (known !== undefined && outside.now() < known.until) return known.claims;
    const form = given.introspectContentType !== 'application/json';
    const claims = await json(outside, {
      url: given.introspectEndpoint ?? '',
      method: 'POST',
      headers: { 'content-type': given.introspectContentType, accept: 'application/json' },
      body: form ? new URLSearchParams({ token }).toString() : JSON.stringify({ token }),
    });
    if (!isObject(claims)) throw new CheckError('The introspection server did not answer with a JSON object.');
    const expires = typeof claims.exp === 'number' ? claims.exp * 1000 : Number.POSITIVE_INFINITY;
    const until = Math.min(outside.now() + given.introspectCacheMaxAge * 1000, expires);
    // A token that is not active may become so: only what lets in is kept.
    if (claims.active === true && until > outside.now()) kept.set(digest, { claims: claims as JWTPayload, until });
    return claims as JWTPayload;
  };
}

/**
 * `default.jwt`: the token in the header is signed by a key of the set (given, or loaded and kept) or active by
 * introspection, not expired, and its claims are as asked for. Neither token nor claim values reach the record.
 */
export const jwt = check({
  id: 'default.jwt',
  judges: 'head',
  phases: INPUT,
  targets: ANY_TARGET,
  parameters,
  timeoutMs: 5_000,
  mutates: false,
  compile(given) {
    const keys = keySets(given);
    const ask = introspection(given);
    const headerKey = given.headerKey.toLowerCase();

    async function introspected(token: string, outside: CheckHttpClient): Promise<JWTPayload | string> {
      const claims = await ask(token, outside);
      if (claims.active !== true) return 'The token is not active.';
      const now = outside.now() / 1000;
      if (typeof claims.exp === 'number' && claims.exp + given.clockTolerance <= now) return 'The token has expired.';
      if (typeof claims.nbf === 'number' && claims.nbf - given.clockTolerance > now)
        return 'The token is not valid yet.';
      return claims;
    }

    async function verified(token: string, outside: CheckHttpClient): Promise<JWTPayload | string> {
      const { createLocalJWKSet, jwtVerify, errors } = await import('jose');
      for (const fresher of [false, true]) {
        const set = await keys(outside, fresher);
        try {
          const { payload } = await jwtVerify(token, createLocalJWKSet(set), {
            algorithms: [...given.algorithms],
            clockTolerance: given.clockTolerance,
            maxTokenAge: given.maxTokenAge,
            currentDate: new Date(outside.now()),
          });
          return payload;
        } catch (error) {
          const unknownKey = error instanceof errors.JWKSNoMatchingKey;
          if (unknownKey && !fresher && given.jwks === undefined) continue;
          if (error instanceof errors.JWTExpired) return 'The token has expired.';
          if (error instanceof errors.JWTClaimValidationFailed) return `The claim ${error.claim} is not valid.`;
          if (unknownKey) return 'No key of the set fits the token.';
          if (error instanceof errors.JOSEAlgNotAllowed)
            return 'The token is signed with an algorithm that is not allowed.';
          if (error instanceof errors.JWSSignatureVerificationFailed) return 'The signature is not valid.';
          if (error instanceof errors.JOSEError || error instanceof TypeError || error instanceof DOMException)
            return 'The token is not a valid JWT.';
          throw error;
        }
      }
      return 'No key of the set fits the token.';
    }

    return {
      lookBehind: null,
      async judge(subject, outside) {
        const sent = subject.header(headerKey);
        const token = sent?.replace(/^bearer +/i, '').trim() ?? '';
        if (token === '') return failed(`The header ${headerKey} has no token.`);
        if (token.length > MAX_TOKEN) return failed('The token is too long.');
        const claims = await (given.introspectEndpoint === undefined ? verified : introspected)(token, outside);
        if (typeof claims === 'string') return failed(claims);
        const fault = claimsFault(claims, given, (name) => subject.header(name));
        return fault === null ? { verdict: true, data: { explanation: 'The token is valid.' } } : failed(fault);
      },
    };
  },
});
