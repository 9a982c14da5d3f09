/**
 * Gateway keys: `slc_<type>_<key id>_<secret>_<checksum>`. The key id is public and finds the row; the
 * secret carries 256 random bits, so a fast digest is enough at rest; the checksum refuses typing errors and scanners
 * before anything is looked up.
 */
import { hash } from 'node:crypto';
import { base62, checksum } from '../kernel/id.ts';

/** Organisation-service, workspace-service, workspace-user and operator keys, and the `client_auth` of deployments. */
export type KeyType = 'org' | 'wks' | 'usr' | 'opr' | 'dep';

/**
 * Secrets of the same shape that are no keys: of a sign-in, to ask with (`sat`) and to get the next pair with (`srt`); of the OAuth
 * server, an authorization code (`oac`), an access token (`oat`), a refresh token (`ort`) and a device code (`odc`);
 * and of a directory (`scm`).
 */
export type TokenType = 'sat' | 'srt' | 'oac' | 'oat' | 'ort' | 'odc' | 'scm';

export interface ParsedKey {
  readonly type: KeyType;
  /** The 12 public characters: primary key of `api_key_secrets` and `operator_keys`, `client_auth_id` of `deployments`. */
  readonly publicId: string;
}

export interface MintedKey {
  /** The whole key. Shown once, never stored. */
  readonly key: string;
  readonly publicId: string;
  /** SHA-256 of the whole key, lower-case hexadecimal: what is stored. */
  readonly digest: string;
}

/** Characters of a key of any type. */
export const KEY_LENGTH = 71;

const SHAPE = /^slc_[a-z]{3}_[0-9A-Za-z]{12}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}$/;
const KEYS: ReadonlySet<string> = new Set<KeyType>(['org', 'wks', 'usr', 'opr', 'dep']);

export const digestOf = (key: string): string => hash('sha256', key, 'hex');

/** Makes a new key from the process's random source. */
export function mintKey(type: KeyType | TokenType): MintedKey {
  const publicId = base62(12);
  const body = `slc_${type}_${publicId}_${base62(43)}`;
  const key = `${body}_${checksum(body)}`;
  return { key, publicId, digest: digestOf(key) };
}

/** Type and public id of a well-formed key, or null when shape or checksum are wrong. Touches no store. */
export function parseKey(text: string): ParsedKey | null {
  const type = text.slice(4, 7);
  return KEYS.has(type) && isWellFormed(text) ? { type: type as KeyType, publicId: text.slice(8, 20) } : null;
}

/** Public id of a well-formed token of this type, or null. Touches no store. */
export function parseToken(text: string, type: TokenType): string | null {
  return text.startsWith(`slc_${type}_`) && isWellFormed(text) ? text.slice(8, 20) : null;
}

/** Whether a credential is a token of a sign-in, by how it begins. */
export const isSignInToken = (text: string): boolean => text.startsWith('slc_sat_') || text.startsWith('slc_srt_');

/** Digest of a well-formed token of this type, or null. Touches no store. */
export function digestOfToken(text: string, type: TokenType): string | null {
  return parseToken(text, type) === null ? null : digestOf(text);
}

function isWellFormed(text: string): boolean {
  if (text.length !== KEY_LENGTH || !SHAPE.test(text)) return false;
  const end = KEY_LENGTH - 7;
  return checksum(text.slice(0, end)) === text.slice(end + 1);
}

/** What lists and details show of a key: made from the public id, so no part of the secret is in it. */
export function maskKey(publicId: string): string {
  return `${publicId.slice(0, 2)}*******${publicId.slice(-2)}`;
}
