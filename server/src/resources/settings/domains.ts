/** Domains of an organisation: whose the domain of an e-mail address is, and what shows it. */
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { base62 } from '../../kernel/id.ts';
import type { SystemTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { refuse } from '../common.ts';
import type { Call } from '../resource.ts';

type Domain = Row<'organisation_domains'>;

/** Reads domains: a tenant's transaction those of the organisation, the system's all. */
export interface FindsDomains {
  list(
    table: 'organisation_domains',
    query: { readonly where: { readonly domain: { readonly in: readonly string[] } } },
  ): Promise<Domain[]>;
}

/** Below these, names are registered one label further down: `example.co.uk`. A list of all such suffixes is 300 KB. */
const SECOND_LEVEL = new Set(['co', 'com', 'org', 'net', 'gov', 'ac', 'edu']);

/** The registrable part of a domain: two labels, or three below `co.uk` and the like. */
export function rootOf(domain: string): string {
  const labels = domain.split('.');
  const count = labels.length > 2 && SECOND_LEVEL.has(labels.at(-2) ?? '') ? 3 : 2;
  return labels.slice(-count).join('.');
}

/** Verified domains that cover an address, the exact one first. */
export async function coveringDomains(tx: FindsDomains, email: string): Promise<Domain[]> {
  const domain = email.slice(email.lastIndexOf('@') + 1).toLowerCase();
  const root = rootOf(domain);
  const rows = await tx.list('organisation_domains', { where: { domain: { in: [domain, root] } } });
  return rows
    .filter((row) => row.verified_at !== null && (row.domain === domain || row.allow_subdomains))
    .sort((a, b) => b.domain.length - a.domain.length);
}

export interface GivenDomain {
  readonly domain: string;
  readonly allow_subdomains: boolean;
}

/** The part of an action's call that storing domains takes. */
type DomainCall = Pick<Call<unknown, unknown, unknown>, 'tx' | 'clock'>;

/**
 * Makes `given` the domains of the organisation. Throws 400 for a list that makes no sense, 409 for a proven domain that another
 * organisation has proven before. A domain that another one only lists is free: a claim alone must not keep its owner out.
 *
 * @param proven domains that are shown to be the organisation's, or all of them
 */
export async function storeDomains(
  { tx, clock }: DomainCall,
  given: readonly GivenDomain[],
  proven: ReadonlySet<string> | 'all',
): Promise<void> {
  const before = new Map((await tx.list('organisation_domains')).map((row) => [row.domain, row]));
  const now = clock.now();
  const kept = new Set<string>();
  for (const [index, { domain, allow_subdomains }] of given.entries()) {
    const param = `auth_settings.allowed_domains[${index}]`;
    if (kept.has(domain)) throw refuse(`${param}.domain`, 'repeats a domain of the list');
    kept.add(domain);
    if (isSuffix(domain)) throw refuse(`${param}.domain`, 'is a suffix below which domains of others are registered');
    if (allow_subdomains && rootOf(domain) !== domain) {
      throw refuse(`${param}.allow_subdomains`, 'is for root domains only, such as example.com');
    }
    const row = before.get(domain);
    const isProven = proven === 'all' || proven.has(domain);
    const verified_at = row?.verified_at ?? (isProven ? now : null);
    try {
      if (row !== undefined) await tx.update('organisation_domains', { domain }, { allow_subdomains, verified_at });
      else {
        const fresh = { allow_subdomains, token: base62(32), verified_at, created_at: now };
        await tx.insert('organisation_domains', { organisation_id: tx.tenant.organisationId, domain, ...fresh });
      }
    } catch (error) {
      if (!(error instanceof SluiceError) || error.kind !== 'conflict') throw error;
      throw taken(domain, `${param}.domain`);
    }
  }
  for (const domain of before.keys()) if (!kept.has(domain)) await tx.remove('organisation_domains', { domain });
}

const taken = (domain: string, param: string) =>
  new SluiceError('conflict', `${domain} belongs to another organisation of this installation.`, { param });

/** `co.uk` and the like. */
const isSuffix = (domain: string): boolean => {
  const [first = '', last = '', ...more] = domain.split('.');
  return more.length === 0 && SECOND_LEVEL.has(first) && last.length === 2;
};

/**
 * Makes domains verified ones of an organisation, on the word of the operator; others of it stay as they are. Answers those
 * that were verified before. Throws 400 for a suffix, 409 for a domain of another organisation.
 */
export async function verifyDomains(
  tx: Pick<SystemTx, 'list' | 'insert' | 'update'>,
  clock: Clock,
  organisationId: string,
  given: readonly string[],
): Promise<string[]> {
  const all = await tx.list('organisation_domains', { where: { domain: { in: given } } });
  const rows = new Map(all.filter((row) => row.organisation_id === organisationId).map((row) => [row.domain, row]));
  const others = all.filter((row) => row.organisation_id !== organisationId && row.verified_at !== null);
  const now = clock.now();
  for (const [index, domain] of given.entries()) {
    const param = `verified_domains[${index}]`;
    const row = rows.get(domain);
    if (isSuffix(domain)) throw refuse(param, 'is a suffix below which domains of others are registered');
    if (others.some((other) => other.domain === domain)) throw taken(domain, param);
    if (row?.verified_at != null) continue;
    const own = { organisation_id: organisationId, domain };
    if (row !== undefined) await tx.update('organisation_domains', own, { verified_at: now });
    else {
      const fresh = { allow_subdomains: false, token: base62(32), verified_at: now, created_at: now };
      await tx.insert('organisation_domains', { ...own, ...fresh });
    }
  }
  return given.filter((domain) => rows.get(domain)?.verified_at != null);
}
