/** Headers as they may be kept: values of those that prove who somebody is never are. */
import { isCredentialHeader, SIGN_IN_HEADERS } from '../../kernel/header-names.ts';

/** Put in the place of a value. */
export const MASK = '***';

const signIn: ReadonlySet<string> = new Set(SIGN_IN_HEADERS);
/** Words of names, whatever stands before and behind them. */
const WORDS: ReadonlySet<string> = new Set([
  'auth',
  'authorization',
  'token',
  'secret',
  'key',
  'apikey',
  'password',
  'credential',
  'credentials',
  'cookie',
  'session',
  'signature',
  'jwt',
]);
const GATEWAY_KEY = /slc_(?:org|wks|usr|opr|dep)_/;
const PROOF = /^(?:bearer|basic|digest|negotiate|aws4)\b/i;
const CONFIG = 'x-gateway-config';

const known = new Map<string, boolean>();

function isNamedSecret(name: string): boolean {
  let secret = known.get(name);
  if (secret === undefined) {
    secret = isCredentialHeader(name) || signIn.has(name) || name.split(/[-_]/).some((word) => WORDS.has(word));
    if (known.size < 1024 && name.length <= 64) known.set(name, secret);
  }
  return secret;
}

export interface MaskRules {
  /** Names in lower case, beside those that always are masked. */
  readonly names: ReadonlySet<string>;
  /** Secrets that no value may hold. */
  readonly secrets: readonly string[];
}

/** Headers by name in lower case. */
export function maskedHeaders(
  headers: Iterable<readonly [name: string, value: string]>,
  { names, secrets }: MaskRules,
): Record<string, string> {
  const out: Record<string, string> = {};
  for (const [name, value] of headers) {
    const lower = name.toLowerCase();
    const hidden =
      names.has(lower) ||
      isNamedSecret(lower) ||
      GATEWAY_KEY.test(value) ||
      PROOF.test(value) ||
      // A config of the caller's own may hold keys of providers.
      (lower === CONFIG && value.trimStart().startsWith('{')) ||
      secrets.some((secret) => secret !== '' && value.includes(secret));
    out[lower] = hidden ? MASK : value;
  }
  return out;
}

/** The names of a list with commas between them, in lower case. */
export function headerNames(list: string | undefined): string[] {
  if (list === undefined) return [];
  return list
    .split(',')
    .map((name) => name.trim().toLowerCase())
    .filter((name) => name !== '');
}
