import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** A domain belongs to the organisation that has shown it. Any number may list it before: a claim alone takes it from nobody. */
export const verifiedDomains: Migration = { name: '0045-verified-domains', statements };

function statements(types: Types): string[] {
  const { index, unique } = ddl(types);
  return [
    'DROP INDEX organisation_domains_domain',
    unique('organisation_domains_verified', 'organisation_domains (domain) WHERE verified_at IS NOT NULL'),
    index('organisation_domains_domain', 'organisation_domains (domain)'),
  ];
}
