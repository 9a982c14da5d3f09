/** An issuer of tokens: RSA keys, and tokens of any header and payload, right or wrong. */
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import type { TokenParts } from '../../src/auth/tokens/token-authenticator.ts';
import { claimLimits, claimMetadata } from '../../src/resources/claim-limits.ts';

export interface Issuer {
  readonly kid: string;
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
  /** The public key as a set publishes it. */
  readonly jwk: Readonly<Record<string, unknown>>;
  /** A token with these claims, in the form that is right. */
  token(claims: Readonly<Record<string, unknown>>, header?: Readonly<Record<string, unknown>>): string;
}

export const encoded = (part: string | object): string =>
  Buffer.from(typeof part === 'string' ? part : JSON.stringify(part)).toString('base64url');

/** Signs texts as they are, of which no right token has to come. */
export function signed(header: string | object, payload: string | object, key: KeyObject, digest = 'sha256'): string {
  const text = `${encoded(header)}.${encoded(payload)}`;
  return `${text}.${sign(digest, Buffer.from(text), key).toString('base64url')}`;
}

export function issuer(kid: string, bits = 2_048): Issuer {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: bits });
  const jwk = { ...publicKey.export({ format: 'jwk' }), kid, alg: 'RS256', use: 'sig' };
  return {
    kid,
    privateKey,
    publicKey,
    jwk,
    token: (claims, header = {}) => signed({ alg: 'RS256', typ: 'JWT', kid, ...header }, claims, privateKey),
  };
}

/** What tokens need of a server, for organisations whose key sets are stored: nothing is read, kept or written down. */
export const storedKeysOnly = async (): Promise<TokenParts> => ({
  readSet: () => Promise.reject(new Error('no address is read here')),
  files: { read: async () => null, write: async () => {} },
  rules: { limits: claimLimits, metadata: claimMetadata },
  defaultScopes: [],
  note() {},
});
