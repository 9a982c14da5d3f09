/** Addresses that answers of the authorization endpoint may go to (RFC 6749 §3.1.2, RFC 8252, RFC 9700 §2.1). */

const MOST_CHARACTERS = 2_048;
/** Browsers and parsers disagree about all others. */
const PLAIN = /^[A-Za-z0-9\-._~:/?[\]@!$&'()+,;=%]+$/;
const LOOPBACK: ReadonlySet<string> = new Set(['127.0.0.1', '[::1]', 'localhost']);
/** A scheme that its owner's domain is in: `com.example.app`. */
const PRIVATE_SCHEME = /^[a-z][a-z0-9+-]*(?:\.[a-z0-9+-]+)+:$/;

/**
 * Schemes of programs without a domain in them, which RFC 8252 §7.1 advises against and well-known programs use. A list, and no
 * rule: the systems of users open many schemes, and some of them run what they are given.
 */
const PROGRAM_SCHEMES = [
  'cursor',
  'goose',
  'jetbrains',
  'kiro',
  'lmstudio',
  'raycast',
  'trae',
  'vscode',
  'vscode-insiders',
  'vscodium',
  'warp',
  'windsurf',
  'zed',
] as const;
const PROGRAMS: ReadonlySet<string> = new Set(PROGRAM_SCHEMES.map((scheme) => `${scheme}:`));

/** What is wrong with an address that a client wants to register, as the end of a sentence; null for a good one. */
export function redirectFault(address: string): string | null {
  if (address.length > MOST_CHARACTERS) return `is longer than ${MOST_CHARACTERS} characters`;
  if (address.includes('*')) return 'has a wildcard';
  if (address.includes('#')) return 'has a fragment';
  if (!PLAIN.test(address) || !URL.canParse(address)) return 'is not an absolute address in plain ASCII';
  const url = new URL(address);
  if (url.username !== '' || url.password !== '' || /^[a-z0-9+.-]+:\/\/[^/?]*@/i.test(address))
    return 'has user information';
  if (url.protocol === 'https:') return null;
  if (url.protocol === 'http:') return LOOPBACK.has(url.hostname) ? null : 'has http and is not on this machine';
  if (PRIVATE_SCHEME.test(url.protocol) || PROGRAMS.has(url.protocol)) return null;
  return `has a scheme that is neither https, nor a domain in reverse such as com.example.app, nor one of ${PROGRAM_SCHEMES.join(', ')}`;
}

/** Whether an address is for programs on a user's machine: http, or a scheme that only a program can register. */
export const isNativeRedirect = (address: string): boolean => !address.startsWith('https:');

/**
 * Whether an address is one of those registered. Compared as texts; only the port of a loopback IP address may differ, because
 * a program on a user's machine takes whichever is free. `localhost` is a name and gets no such leave.
 */
export function isRegistered(registered: readonly string[], address: string): boolean {
  if (registered.includes(address)) return true;
  const own = withoutPort(address);
  return own !== null && redirectFault(address) === null && registered.some((one) => withoutPort(one) === own);
}

/** An address of a loopback IP without its port; null for any other. */
function withoutPort(address: string): string | null {
  const match = /^(http:\/\/(?:127\.0\.0\.1|\[::1\]))(?::[0-9]{1,5})?(|[/?].*)$/.exec(address);
  return match === null ? null : `${match[1]}${match[2]}`;
}

/** An address with more in its query, whatever it had there. */
export function withQuery(address: string, more: Readonly<Record<string, string | null>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(more)) if (value !== null) query.append(name, value);
  return `${address}${address.includes('?') ? '&' : '?'}${query}`;
}
