/** What the claims of a token say, read by one rule each. Only `organisationIn` reads claims that are not verified yet. */
import type { JsonObject } from '../../kernel/json.ts';
import type { JwtSettings } from '../jwt-settings.ts';
import { SCOPES, TOKEN } from '../scopes.ts';
import { type RefusalReason, TokenRefused } from './refused.ts';

/** Of both clocks, seconds. */
const SKEW_SECONDS = 60;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const MAX_NAME = 255;
const MAX_SUBJECT = 320;
const MAX_SCOPES = 1_000;
const PREFIX = 'gateway.';

/** How the checks of one token refuse it. */
export type Refuse = (why: RefusalReason) => TokenRefused;

/** Id of the organisation, null where the token names none. Throws for what no id is, and for two that differ. */
export function organisationIn(claims: JsonObject): string | null {
  const refuse: Refuse = (why) => new TokenRefused(why);
  const name = oneOf(claims.gateway_oid, claims.organisation_id, refuse, 'organisation')?.toLowerCase() ?? null;
  if (name !== null && !UUID.test(name)) throw refuse('organisation');
  return name;
}

/** Id or slug; null where the token names none. */
export function workspaceIn(claims: JsonObject, refuse: Refuse): string | null {
  return oneOf(claims.gateway_workspace, claims.workspace_slug, refuse, 'workspace');
}

/** The text of two claims that mean the same. */
function oneOf(first: unknown, second: unknown, refuse: Refuse, why: RefusalReason): string | null {
  const given = [first, second].filter((value) => value !== undefined && value !== null);
  for (const value of given) {
    if (typeof value !== 'string' || value === '' || value.length > MAX_NAME) throw refuse(why);
  }
  if (given.length === 2 && given[0] !== given[1]) throw refuse('contradiction');
  return (given[0] as string | undefined) ?? null;
}

/** Until when it may be used, the skew included, and when it expires: seconds since the epoch. Throws unless that holds now. */
export function checkTimes(claims: JsonObject, nowMs: number, refuse: Refuse): { exp: number; usableUntil: number } {
  const now = nowMs / 1_000;
  const { exp, nbf, iat } = claims;
  if (!isNumber(exp)) throw refuse('expired');
  const end = Math.floor(exp);
  if (now >= end + SKEW_SECONDS) throw refuse('expired');
  for (const from of [nbf, iat]) {
    if (from === undefined) continue;
    if (!isNumber(from) || from > now + SKEW_SECONDS) throw refuse('not_yet');
  }
  return { exp: end, usableUntil: end + SKEW_SECONDS };
}

/** Both are compared wherever the organisation has set them. */
export function checkIssuer(claims: JsonObject, { issuer, audience }: JwtSettings, refuse: Refuse): void {
  if (issuer !== null && claims.iss !== issuer) throw refuse('issuer');
  if (audience === null) return;
  const { aud } = claims;
  if (aud !== audience && !(Array.isArray(aud) && aud.includes(audience))) throw refuse('audience');
}

/**
 * The scopes of the token among those a workspace key may have; words that mean nothing here are left out. A token that says no
 * word of the catalogue has `defaults`.
 */
export function scopesIn(claims: JsonObject, defaults: readonly string[], refuse: Refuse): ReadonlySet<string> {
  const named = [...wordsOf(claims.scope, refuse), ...wordsOf(claims.scopes, refuse)]
    .map((word) => (word.startsWith(PREFIX) ? word.slice(PREFIX.length) : word))
    .filter((word) => SCOPES.has(word) || TOKEN.has(word));
  const scopes = new Set((named.length === 0 ? defaults : named).filter((word) => TOKEN.has(word)));
  if (scopes.size === 0) throw refuse('scope');
  return scopes;
}

function wordsOf(claim: unknown, refuse: Refuse): string[] {
  if (claim === undefined || claim === null) return [];
  const words: unknown[] =
    typeof claim === 'string' ? claim.split(' ', MAX_SCOPES + 1) : Array.isArray(claim) ? claim : [0];
  if (words.length > MAX_SCOPES) throw refuse('claims');
  return words.map((word) => {
    if (typeof word !== 'string') throw refuse('claims');
    return word;
  });
}

/** Who the token is about: the texts of `email_id`, `sub` and `uid`, in this order. */
export function subjectsIn(claims: JsonObject, refuse: Refuse): string[] {
  return [claims.email_id, claims.sub, claims.uid].flatMap((claim) => {
    if (claim === undefined || claim === null || claim === '') return [];
    if (typeof claim !== 'string' || claim.length > MAX_SUBJECT) throw refuse('claims');
    return [claim];
  });
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}
