/** Host names and ports that outbound calls refuse (5.3), as data. */

/** Refused for everyone, trusted or not: cloud metadata and cluster-internal names. */
export const REFUSED_NAMES = ['metadata', 'instance-data', 'kubernetes'] as const;

/** Each with all its subdomains; refused for everyone. */
export const REFUSED_SUFFIXES = [
  'metadata.google.internal',
  'metadata.gce.internal',
  'metadata.goog',
  'metadata.azure.com',
  'internal.cloudapp.net',
  'metadata.internal',
  'metadata.do.internal',
  'metadata.packet.net',
  'instance-data.ec2.internal',
  'ec2.internal',
  'compute.internal',
  'metadata.cloud.ibm.com',
  'kubernetes.default',
  'kubernetes.default.svc',
  'cluster.local',
  'consul',
  // Domains that answer with whatever address their name spells.
  'nip.io',
  'sslip.io',
  'xip.io',
  'localtest.me',
  'lvh.me',
  'vcap.me',
  'traefik.me',
  'localhost.run',
] as const;

/** Refused unless trusted: names that only mean something inside a network. */
export const INTERNAL_SUFFIXES = [
  'local',
  'localdomain',
  'internal',
  'intranet',
  'lan',
  'home',
  'corp',
  'test',
  'invalid',
  'onion',
  'localhost',
  'home.arpa',
] as const;

/** Ports of mail, shell, database, cache and cluster services; refused for everyone. */
export const REFUSED_PORTS: ReadonlySet<number> = new Set([
  20, 21, 22, 23, 25, 53, 110, 111, 135, 137, 138, 139, 143, 389, 445, 465, 587, 636, 993, 995, 1433, 1521, 2049, 2375,
  2376, 2379, 2380, 3306, 3389, 5432, 5672, 5900, 5984, 6379, 6443, 7000, 7001, 8500, 9042, 9092, 9200, 9300, 10250,
  10255, 11211, 27017,
]);

const refusedNames: ReadonlySet<string> = new Set(REFUSED_NAMES);
const refusedSuffixes: ReadonlySet<string> = new Set(REFUSED_SUFFIXES);
const internalSuffixes: ReadonlySet<string> = new Set(INTERNAL_SUFFIXES);

/** True when `host` or one of its parent domains is in `suffixes`. */
function under(host: string, suffixes: ReadonlySet<string>): boolean {
  for (let at = 0; ; ) {
    if (suffixes.has(at === 0 ? host : host.slice(at))) return true;
    const dot = host.indexOf('.', at);
    if (dot < 0) return false;
    at = dot + 1;
  }
}

/** Whether a lower-case host name is refused whoever asks. */
export function isRefusedName(host: string): boolean {
  return refusedNames.has(host) || under(host, refusedSuffixes);
}

/** Whether a lower-case host name is only reachable when the operator trusts it. */
export function isInternalName(host: string): boolean {
  return !host.includes('.') || under(host, internalSuffixes);
}

/** Whether a lower-case host has an internationalised label, which may look like another name; refused unless trusted. */
export function isInternational(host: string): boolean {
  return /(?:^|\.)xn--/.test(host);
}

/** Why a lower-case host is not a usable domain name, or null. The text completes "The host …". */
export function nameFault(host: string): string | null {
  if (host.endsWith('.')) return 'must not end in a dot';
  if (host.length > 253) return 'is longer than 253 characters';
  const labels = host.split('.');
  if (labels.length > 10) return 'has more than 10 labels';
  for (const label of labels) {
    if (label.length === 0) return 'has an empty label';
    if (label.length > 63) return 'has a label longer than 63 characters';
    if (!/^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?$/.test(label)) return 'is not a valid domain name';
  }
  return null;
}
