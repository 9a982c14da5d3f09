/** What an ID token says of a person, and the rules on it that the library leaves to its caller. Pure. */
import { isObject } from '../kernel/json.ts';
import { isCleanText } from '../kernel/text-schema.ts';
import type { Row } from '../store/schema.ts';
import { SKEW_SECONDS } from './provider.ts';

type SsoClient = Row<'sso_clients'>;
export type Claims = Readonly<Record<string, unknown>>;

/** A token that breaks a rule. The message is for the audit log and the log, and holds nothing of the token. */
export class ClaimProblem extends Error {}

const MOST = 255;
const GOOGLE = 'https://accounts.google.com';
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]|\p{Cf}/u;

/** A text of a stranger that may be kept, or undefined. */
function plain(value: unknown): string | undefined {
  if (typeof value !== 'string' || value === '' || value.length > MOST) return undefined;
  return isCleanText(value) && !CONTROL.test(value) ? value : undefined;
}

/**
 * Checks what the library does not. Throws `ClaimProblem`.
 *
 * @param header of the token, as it is signed
 * @param now seconds
 */
export function checkIdToken(client: SsoClient, header: Claims, claims: Claims, now: number): void {
  const refuse = (why: string) => new ClaimProblem(why);
  const { typ } = header;
  if (typ !== undefined && String(typ).toUpperCase() !== 'JWT')
    throw refuse('the token is of another type than an ID token');
  if (claims.azp !== undefined && claims.azp !== client.client_id) throw refuse('azp names another client');
  if (typeof claims.iat !== 'number' || claims.iat > now + SKEW_SECONDS) throw refuse('iat lies in the future');
  if (plain(claims.sub) === undefined) throw refuse('sub is empty, too long or not plain text');
  checkTenant(client, claims);
}

/** Several tenants behind one issuer are told apart by a claim. */
function checkTenant({ allowed_tenants: allowed }: SsoClient, claims: Claims): void {
  if (allowed === null) return;
  const tenant = claims.tid ?? claims.hd;
  if (typeof tenant === 'string' && allowed.some((one) => one.toLowerCase() === tenant.toLowerCase())) return;
  throw new ClaimProblem('the tenant of the token is none of allowed_tenants');
}

/** Whether something that userinfo may have is missing. */
export function wantsUserinfo(client: SsoClient, claims: Claims): boolean {
  const named = plain(claims.name) ?? plain(claims.given_name);
  if (plain(claims.email) === undefined || named === undefined) return true;
  return client.group_mappings.length > 0 && groupsOf(client, claims).groups === null;
}

export interface Person {
  readonly subject: string;
  /** Lower case. Null where it is missing or not verified; `emailProblem` says which. */
  readonly email: string | null;
  readonly emailProblem: string | null;
  readonly firstName: string;
  readonly lastName: string;
  /** Null: the claim says nothing that can be used; `groupProblem` says why. */
  readonly groups: readonly string[] | null;
  readonly groupProblem: string | null;
  readonly sid: string | null;
  /** Milliseconds; null where the provider does not say it. */
  readonly authTime: number | null;
}

/** The person of checked claims. Claims of the ID token come before those of userinfo. */
export function personOf(client: SsoClient, idToken: Claims, userinfo: Claims): Person {
  const claims = { ...userinfo, ...idToken };
  const own = groupsOf(client, idToken);
  const { groups, problem: groupProblem } = own.groups === null && own.absent ? groupsOf(client, userinfo) : own;
  const { email, problem } = verifiedEmail(client, idToken, userinfo);
  const [first = '', last = ''] = namesOf(claims, email);
  const authTime = typeof idToken.auth_time === 'number' ? idToken.auth_time * 1000 : null;
  return {
    subject: String(idToken.sub),
    email,
    emailProblem: problem,
    firstName: first,
    lastName: last,
    groups,
    groupProblem,
    sid: plain(idToken.sid) ?? null,
    authTime,
  };
}

/**
 * The address, where the provider vouches for it: beside that address, because userinfo may tell of another one than the ID token.
 * Domains are compared later: whose they are is in the store.
 */
function verifiedEmail(
  client: SsoClient,
  idToken: Claims,
  userinfo: Claims,
): { email: string | null; problem: string | null } {
  const not = (problem: string) => ({ email: null, problem });
  const claims = { ...userinfo, ...idToken };
  const given = plain(claims.email);
  if (given === undefined) return not('there is no email');
  const [local = '', domain = '', ...more] = given.split('@');
  if (more.length > 0 || local === '' || !isDomain(domain)) return not('email is no address with an ASCII domain');
  if (given.length > 254 || /[\s,;<>"()]/.test(given)) return not('email is no plain address');
  const { email_verified_claim: named } = client;
  const said = [idToken, userinfo]
    .filter(({ email }) => typeof email === 'string' && email.toLowerCase() === given.toLowerCase())
    .find((one) => Object.hasOwn(one, 'email_verified') || (named !== null && Object.hasOwn(one, named)));
  // Entra writes its claim in four ways; no other claim is read so kindly.
  const own = named === null ? undefined : said?.[named];
  const vouched = own === true || own === 1 || own === '1' || own === 'true';
  if (said?.email_verified !== true && !vouched) return not('the provider does not say that email is verified');
  if (
    client.issuer === GOOGLE &&
    client.allowed_tenants === null &&
    plain(claims.hd)?.toLowerCase() !== domain.toLowerCase()
  ) {
    return not('hd is missing or another domain: at Google anybody may have an account with this address');
  }
  return { email: given.toLowerCase(), problem: null };
}

const LABEL = /^(?!-)[a-z0-9-]{1,63}(?<!-)$/i;
const isDomain = (domain: string): boolean => {
  const labels = domain.split('.');
  return labels.length > 1 && domain.length <= 253 && labels.every((label) => LABEL.test(label));
};

const NAME_LENGTH = 100;

function namesOf(claims: Claims, email: string | null): string[] {
  const cut = (value: string) => [...value].slice(0, NAME_LENGTH).join('').trim();
  const given = plain(claims.given_name)?.trim();
  const family = plain(claims.family_name)?.trim();
  if (given) return [cut(given), cut(family || '')];
  const whole = plain(claims.name)?.trim();
  const [first, ...rest] = (whole || email?.split('@')[0] || 'User').split(/\s+/);
  return [cut(first ?? 'User'), cut(family || rest.join(' '))];
}

interface Groups {
  readonly groups: readonly string[] | null;
  readonly absent: boolean;
  readonly problem: string | null;
}

/** Groups of a claim. A list that is not whole says nothing: who is missing on it may well be a member. */
function groupsOf(client: Pick<SsoClient, 'group_claim'>, claims: Claims): Groups {
  const name = client.group_claim;
  const overflowed = isObject(claims._claim_names) && Object.hasOwn(claims._claim_names, name);
  if (overflowed)
    return { groups: null, absent: false, problem: 'the provider left the groups out: there are too many' };
  const value = name.startsWith('/') ? pointer(claims, name) : Object.hasOwn(claims, name) ? claims[name] : undefined;
  if (value === undefined) return { groups: null, absent: true, problem: 'there is no claim of groups' };
  const list = typeof value === 'string' ? [value] : value;
  if (!Array.isArray(list) || !list.every((group) => typeof group === 'string')) {
    return { groups: null, absent: false, problem: 'the claim of groups is no list of texts' };
  }
  return { groups: list, absent: false, problem: null };
}

function pointer(claims: Claims, path: string): unknown {
  let value: unknown = claims;
  for (const part of path.slice(1).split('/')) {
    const name = part.replace(/~1/g, '/').replace(/~0/g, '~');
    if (!isObject(value) || !Object.hasOwn(value, name)) return undefined;
    value = value[name];
  }
  return value;
}
