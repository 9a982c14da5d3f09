/** Public RSA keys of a JWK set (RFC 7517), and which of them may have signed a token. */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import type { RsaJwk } from '../jwt-settings.ts';

const MIN_BITS = 2_048;
/** A longer key, or a larger exponent, would make each verification cost milliseconds. */
const MAX_BITS = 8_192;
const MAX_EXPONENT = 2n ** 32n;
const MAX_KID = 255;
const BASE64URL = /^[A-Za-z0-9_-]{1,2048}$/;
const PRIVATE = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k'] as const;

/** What is wrong with a key of a set, as a phrase behind its path; null where it may verify tokens. */
export function problemOfJwk(jwk: unknown): string | null {
  if (!isObject(jwk)) return 'must be a key: an object with kty, n, e and kid';
  if (jwk.kty !== 'RSA') return 'must be an RSA key (kty "RSA"): tokens are signed with RS256';
  if (PRIVATE.some((member) => Object.hasOwn(jwk, member)))
    return 'holds private members: send the public key alone (kty, n, e, kid), and replace this key at the issuer';
  const { kid, use, alg, key_ops: operations } = jwk;
  if (typeof kid !== 'string' || kid === '' || kid.length > MAX_KID) return 'must have a kid of 1 to 255 characters';
  if (use !== undefined && use !== 'sig') return 'must be for signatures: use is "sig" or left out';
  if (alg !== undefined && alg !== 'RS256') return 'must be for RS256: alg is "RS256" or left out';
  if (operations !== undefined && !(Array.isArray(operations) && operations.includes('verify')))
    return 'must be for verifying: key_ops has "verify" or is left out';
  const key = publicKey(jwk);
  if (key === null) return 'must have a valid modulus n and exponent e in base64url';
  const { modulusLength = 0, publicExponent = 0n } = key.asymmetricKeyDetails ?? {};
  if (modulusLength < MIN_BITS || modulusLength > MAX_BITS) return `must have ${MIN_BITS} to ${MAX_BITS} bits`;
  if (publicExponent < 3n || publicExponent % 2n === 0n || publicExponent > MAX_EXPONENT)
    return 'must have an odd exponent e from 3 to 2^32';
  return null;
}

/** The members that are stored and shown. */
export function publicJwk({ n, e, kid, alg, use }: JsonObject): RsaJwk {
  return {
    kty: 'RSA',
    n: n as string,
    e: e as string,
    kid: kid as string,
    ...(alg === undefined ? {} : { alg: 'RS256' }),
    ...(use === undefined ? {} : { use: 'sig' }),
  };
}

/** Null for numbers that are none. */
export function publicKey({ n, e }: { readonly n?: unknown; readonly e?: unknown }): KeyObject | null {
  if (typeof n !== 'string' || typeof e !== 'string' || !BASE64URL.test(n) || !BASE64URL.test(e)) return null;
  try {
    return createPublicKey({ key: { kty: 'RSA', n, e }, format: 'jwk' });
  } catch {
    return null;
  }
}
