/** A signed token in its compact form (RFC 7515), taken apart. Nothing here is verified yet. */
import type { JsonObject } from '../../kernel/json.ts';
import { parseStrictObject } from '../../kernel/json-strict.ts';
import { TokenRefused } from './refused.ts';

const MAX_TOKEN = 16 * 1024;
/** Characters, of which 1 KB of JSON has about 1,400. */
const MAX_HEADER = 1_400;
const MAX_KID = 255;

export interface CompactToken {
  readonly kid: string;
  readonly claims: JsonObject;
  /** What was signed. */
  readonly signed: string;
  readonly signature: Buffer;
}

/** Throws `TokenRefused` for what is no RS256 token with strict JSON in both parts. */
export function readToken(token: string): CompactToken {
  if (token.length > MAX_TOKEN) throw new TokenRefused('shape');
  const parts = token.split('.', 4);
  const [header = '', payload = '', signature = ''] = parts;
  if (parts.length !== 3 || header.length > MAX_HEADER) throw new TokenRefused('shape');
  const [headerBytes, payloadBytes, signatureBytes] = [bytesOf(header), bytesOf(payload), bytesOf(signature)];
  const kid = kidOf(parseStrictObject(headerBytes));
  const claims = parseStrictObject(payloadBytes);
  if (claims === null) throw new TokenRefused('payload');
  return { kid, claims, signed: token.slice(0, header.length + 1 + payload.length), signature: signatureBytes };
}

/** Base64url as there is only one of: Node.js would also read padding, other alphabets and bits that mean nothing. */
function bytesOf(part: string): Buffer {
  const bytes = Buffer.from(part, 'base64url');
  if (bytes.length === 0 || bytes.toString('base64url') !== part) throw new TokenRefused('shape');
  return bytes;
}

/** `jku`, `jwk`, `x5u` and `x5c` are not looked at: only the organisation says which keys are its own. */
function kidOf(header: JsonObject | null): string {
  if (header === null) throw new TokenRefused('header');
  const { alg, typ, kid } = header;
  const refused = Object.hasOwn(header, 'crit') || Object.hasOwn(header, 'b64');
  if (refused || alg !== 'RS256' || typ !== 'JWT' || typeof kid !== 'string') throw new TokenRefused('header');
  if (kid === '' || kid.length > MAX_KID) throw new TokenRefused('header');
  return kid;
}
