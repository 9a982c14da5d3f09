/** Key sets of a client: private keys that sign its assertions, and public keys of a provider. */
import { createHash, createPrivateKey, createPublicKey, type KeyObject } from 'node:crypto';
import type { PublicJwk } from '../../../../store/schema.ts';
import { refuse } from '../../../common.ts';

export type Jwk = Readonly<Record<string, unknown>>;

export interface PrivateKeys {
  /** As they are sealed: the keys as they were given, each with `kid` and `alg`. */
  readonly keys: readonly Jwk[];
  /** Their public halves. */
  readonly published: PublicJwk[];
}

/** What of a key may be seen: all else, and what a later standard adds, stays here. */
const PUBLIC_MEMBERS = ['kty', 'n', 'e', 'crv', 'x', 'y', 'kid', 'use', 'alg'] as const;
const LEAST_RSA_BITS = 2048;
const EC_ALG: Readonly<Record<string, string>> = { 'P-256': 'ES256' };
const RSA_ALGS: ReadonlySet<unknown> = new Set(['RS256', 'PS256']);

/** Throws 400 at the key that cannot sign: public only, symmetric, weak, of an unknown form. */
export function readPrivateKeys(keys: readonly Jwk[]): PrivateKeys {
  const seen = new Set<string>();
  const read = keys.map((jwk, index) => {
    const param = `jwks.keys[${index}]`;
    if (typeof jwk.d !== 'string') throw refuse(param, 'must be a private key: it has no member d');
    const alg = algOf(jwk, () => createPrivateKey({ key: jwk as never, format: 'jwk' }), param);
    if (jwk.use !== undefined && jwk.use !== 'sig') throw refuse(`${param}.use`, 'must be "sig"');
    const kid = kidOf(jwk, param);
    if (seen.has(kid)) throw refuse(`${param}.kid`, 'repeats the kid of another key of the set');
    seen.add(kid);
    return { ...jwk, kid, alg, use: 'sig' };
  });
  return { keys: read, published: read.map(publicHalf) };
}

/** Public keys of a provider, reduced to what may be seen. Throws 400 at the key that cannot verify, or is private. */
export function readProviderKeys(keys: readonly Jwk[]): PublicJwk[] {
  return keys.map((jwk, index) => {
    const param = `provider_jwks.keys[${index}]`;
    if ('d' in jwk || 'k' in jwk) throw refuse(param, 'must be a public key: leave its private members out');
    algOf(jwk, () => createPublicKey({ key: jwk as never, format: 'jwk' }), param);
    return publicHalf(jwk);
  });
}

function algOf(jwk: Jwk, open: () => KeyObject, param: string): string {
  const rsa = jwk.kty === 'RSA';
  const ec = jwk.kty === 'EC' ? EC_ALG[String(jwk.crv)] : undefined;
  if (!rsa && ec === undefined) throw refuse(param, 'must be an RSA key, or an EC key on the curve P-256');
  let key: KeyObject;
  try {
    key = open();
  } catch {
    throw refuse(param, 'cannot be read as a key');
  }
  if (rsa && (key.asymmetricKeyDetails?.modulusLength ?? 0) < LEAST_RSA_BITS) {
    throw refuse(param, `must have at least ${LEAST_RSA_BITS} bits`);
  }
  if (jwk.alg === undefined) return ec ?? 'RS256';
  if (rsa ? RSA_ALGS.has(jwk.alg) : jwk.alg === ec) return String(jwk.alg);
  throw refuse(`${param}.alg`, `must be ${rsa ? 'RS256 or PS256' : String(ec)} for this key`);
}

/** Its own id, or the thumbprint of RFC 7638. */
function kidOf(jwk: Jwk, param: string): string {
  if (jwk.kid === undefined) {
    const { kty, n, e, crv, x, y } = jwk;
    const members = kty === 'RSA' ? { e, kty, n } : { crv, kty, x, y };
    return createHash('sha256').update(JSON.stringify(members)).digest('base64url');
  }
  if (typeof jwk.kid !== 'string' || !/^[\x21-\x7e]{1,128}$/.test(jwk.kid)) {
    throw refuse(`${param}.kid`, 'must be 1 to 128 visible ASCII characters');
  }
  return jwk.kid;
}

function publicHalf(jwk: Jwk): PublicJwk {
  const shown: PublicJwk = {};
  for (const name of PUBLIC_MEMBERS) {
    const value = jwk[name];
    if (typeof value === 'string') shown[name] = value;
  }
  return shown;
}
