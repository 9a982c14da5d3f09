/** Answers as they lie in the cache: sealed with a key that only the same request has. */
import { createCipheriv, createDecipheriv, createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import { isObject } from '../../kernel/json.ts';

/** Facts about an answer, for when it is given again. */
export interface EntryFacts {
  readonly contentType: string;
  /** Milliseconds since the epoch at which it was made. */
  readonly madeAt: number;
  readonly model: string | null;
  readonly stream: boolean;
  /** What it cost, micro-dollars; null when that was not known. */
  readonly costMicros: number | null;
  /** How long it took, milliseconds. */
  readonly latencyMs: number;
}

export interface Entry {
  readonly facts: EntryFacts;
  readonly body: Buffer;
}

const CIPHER = 'aes-256-gcm';
const VERSION = 1;
const IV = 12;
const TAG = 16;

/** Of plain bytes Node finds out that they are no key object by two exceptions: a cipher costs 20 µs then, not 5. */
const keyOf = (secret: Buffer): KeyObject => createSecretKey(secret);

/** Version, nonce, tag, then the sealed facts and body. */
export function sealEntry({ facts, body }: Entry, secret: Buffer): Buffer {
  const head = Buffer.from(JSON.stringify(facts));
  const length = Buffer.alloc(4);
  length.writeUInt32BE(head.length);
  const iv = randomBytes(IV);
  const cipher = createCipheriv(CIPHER, keyOf(secret), iv);
  const sealed = [cipher.update(length), cipher.update(head), cipher.update(body), cipher.final()];
  return Buffer.concat([Buffer.from([VERSION]), iv, cipher.getAuthTag(), ...sealed]);
}

/** Null for whatever is not an entry of this version, made whole and by somebody with the same secret. */
export function openEntry(bytes: Buffer, secret: Buffer): Entry | null {
  if (bytes[0] !== VERSION || bytes.length < 1 + IV + TAG + 4) return null;
  try {
    const iv = bytes.subarray(1, 1 + IV);
    const decipher = createDecipheriv(CIPHER, keyOf(secret), iv, { authTagLength: TAG });
    decipher.setAuthTag(bytes.subarray(1 + IV, 1 + IV + TAG));
    const plain = decipher.update(bytes.subarray(1 + IV + TAG));
    // Nothing is left to decipher: this is where a wrong tag throws.
    decipher.final();
    const length = plain.readUInt32BE(0);
    const facts: unknown = JSON.parse(plain.toString('utf8', 4, 4 + length));
    return isObject(facts) ? { facts: facts as unknown as EntryFacts, body: plain.subarray(4 + length) } : null;
  } catch {
    return null;
  }
}

/** Where an answer lies, and what opens it. */
export interface EntryKey {
  /** Where the answer lies. */
  readonly place: string;
  /** 32 bytes that open it: a reader of the cache without the request cannot read the answer. */
  readonly secret: Buffer;
}
