/** Bytes sealed with AES-256-GCM: iv, cipher text, tag. They open with the same key and for the same place only. */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

const IV_BYTES = 12;
const TAG_BYTES = 16;

/** Bytes that a sealed text is longer than its plain one. */
export const SEALED_MORE = IV_BYTES + TAG_BYTES;

/** The parts of sealed bytes, to be written one behind the other. `place` is authenticated. */
export function sealBytes(key: Buffer, place: string, plain: Buffer): readonly [Buffer, Buffer, Buffer] {
  const iv = randomBytes(IV_BYTES);
  const cipher = createCipheriv('aes-256-gcm', key, iv).setAAD(Buffer.from(place));
  const text = cipher.update(plain);
  cipher.final();
  return [iv, text, cipher.getAuthTag()];
}

/** Throws where they were changed, sealed with another key, or for another place. */
export function openBytes(key: Buffer, place: string, sealed: Buffer): Buffer {
  if (sealed.length < SEALED_MORE) throw new RangeError('sealed bytes are cut');
  const iv = sealed.subarray(0, IV_BYTES);
  const decipher = createDecipheriv('aes-256-gcm', key, iv, { authTagLength: TAG_BYTES });
  decipher.setAAD(Buffer.from(place)).setAuthTag(sealed.subarray(-TAG_BYTES));
  const plain = decipher.update(sealed.subarray(IV_BYTES, -TAG_BYTES));
  decipher.final();
  return plain;
}
