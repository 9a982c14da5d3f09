import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  hkdfSync,
  type KeyObject,
  randomBytes,
} from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { SluiceError } from '../kernel/errors.ts';
import { errorCode, makeDirectory, readOrCreate } from './disk/files.ts';
import type { Mac, Macs } from './vault.ts';

/**
 * The installation's key-encryption keys. They only ever wrap data keys; a key management service can take this place,
 * which is why wrapping is asynchronous. Keyed digests are made with separate keys, derived from the same masters.
 */
export interface Keyring extends Macs {
  /** Key that wraps from now on. */
  readonly currentId: string;
  /** All keys that can unwrap, the current one first. Ids are derived from the keys and tell nothing about them. */
  readonly ids: readonly string[];
  /** `context` is authenticated: unwrapping needs the same one. */
  wrap(dataKey: Buffer, context: Buffer): Promise<string>;
  /** Throws SluiceError('unavailable') when the key is not in the ring or the wrapped text was changed. */
  unwrap(kekId: string, wrapped: string, context: Buffer): Promise<Buffer>;
}

export interface KeyringOptions {
  /** `SLUICE_MASTER_KEY`; when given, the file is not looked at. */
  readonly masterKey?: string;
  /** Used otherwise: the same list, one key per line; `#` begins a comment line. */
  readonly masterKeyFile: string;
  /** Make the file with a fresh key when it is missing. */
  readonly create: boolean;
}

const ALLOWED =
  'each key must be at least 32 random bytes in base64 or hexadecimal (make one with: openssl rand -base64 32)';
const IV_BYTES = 12;
const TAG_BYTES = 16;

function refuse(source: string, problem: string): SluiceError {
  return new SluiceError('validation', `${source} ${problem}; ${ALLOWED}`, { param: source });
}

/** True for what nobody's random source produces: repeated bytes, counting, a phrase in one letter case. */
function looksWeak(text: string, bytes: Buffer, hex: boolean): boolean {
  if (new Set(bytes.subarray(0, 32)).size < 16) return true;
  const step = ((bytes[1] ?? 0) - (bytes[0] ?? 0)) & 255;
  if (bytes.every((byte, i) => i === 0 || ((byte - (bytes[i - 1] ?? 0)) & 255) === step)) return true;
  return !hex && !(/[a-z]/.test(text) && /[A-Z]/.test(text));
}

function parseKey(source: string, text: string): Buffer {
  const hex = /^(?:[0-9a-f]{2}){32,}$|^(?:[0-9A-F]{2}){32,}$/.test(text);
  if (!hex && !/^[A-Za-z0-9+/_-]+={0,2}$/.test(text)) throw refuse(source, 'holds a key that cannot be read');
  const bytes = Buffer.from(text, hex ? 'hex' : 'base64');
  if (bytes.length < 32) throw refuse(source, 'holds a key that is too short');
  if (looksWeak(text, bytes, hex)) throw refuse(source, 'holds a key that is not random');
  return bytes;
}

function derive(key: Buffer, use: string, bytes: number): Buffer {
  return Buffer.from(hkdfSync('sha256', key, Buffer.alloc(0), `sluice ${use} v1`, bytes));
}

class LocalKeyring implements Keyring {
  readonly #keys = new Map<string, Buffer>();
  /** As key objects: a key of bytes is made ready anew for each digest, which takes five times as long as the digest. */
  readonly #macKeys = new Map<string, KeyObject>();
  readonly ids: readonly string[];
  readonly currentId: string;

  constructor(source: string, keys: readonly Buffer[]) {
    for (const key of keys) {
      const id = derive(key, 'kek id', 8).toString('hex');
      this.#keys.set(id, derive(key, 'kek', 32));
      this.#macKeys.set(id, createSecretKey(derive(key, 'mac', 32)));
    }
    this.ids = [...this.#keys.keys()];
    const [current] = this.ids;
    if (current === undefined) throw refuse(source, 'is empty');
    this.currentId = current;
  }

  async wrap(dataKey: Buffer, context: Buffer): Promise<string> {
    const iv = randomBytes(IV_BYTES);
    const cipher = createCipheriv('aes-256-gcm', this.#key(this.currentId), iv).setAAD(context);
    const sealed = Buffer.concat([iv, cipher.update(dataKey), cipher.final(), cipher.getAuthTag()]);
    return sealed.toString('base64url');
  }

  async unwrap(kekId: string, wrapped: string, context: Buffer): Promise<Buffer> {
    const key = this.#key(kekId);
    const bytes = Buffer.from(wrapped, 'base64url');
    try {
      if (bytes.toString('base64url') !== wrapped || bytes.length <= IV_BYTES + TAG_BYTES) throw new Error('form');
      const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, IV_BYTES), { authTagLength: TAG_BYTES });
      decipher.setAAD(context).setAuthTag(bytes.subarray(-TAG_BYTES));
      return Buffer.concat([decipher.update(bytes.subarray(IV_BYTES, -TAG_BYTES)), decipher.final()]);
    } catch (error) {
      throw new SluiceError('unavailable', 'A stored secret cannot be opened. Save it again or ask the operator.', {
        detail: { reason: 'wrapped data key is damaged', kekId },
        cause: error,
      });
    }
  }

  mac(use: string, data: Buffer): Mac;
  mac(use: string, data: Buffer, keyId: string): Mac | null;
  mac(use: string, data: Buffer, keyId: string = this.currentId): Mac | null {
    const key = this.#macKeys.get(keyId);
    if (!key) return null;
    // No name of a use holds a line feed, so name and data cannot run into each other.
    return { keyId, digest: createHmac('sha256', key).update(`${use}\n`).update(data).digest() };
  }

  #key(kekId: string): Buffer {
    const key = this.#keys.get(kekId);
    if (key) return key;
    throw new SluiceError(
      'unavailable',
      'A stored secret cannot be opened. Ask the operator to check the master key.',
      {
        detail: { reason: 'master key is not in SLUICE_MASTER_KEY', kekId, have: this.ids },
      },
    );
  }
}

/**
 * Reads the master keys: a list separated by commas or line breaks, of which the first encrypts and all decrypt. To
 * rotate, put the new key first and keep the old one until no data key needs it (`Vault.status`).
 *
 * Throws SluiceError('validation') with one line that says what is allowed when the list is empty, a key is weak or
 * cannot be read, or the file is missing and must not be made.
 */
export async function loadKeyring(options: KeyringOptions): Promise<Keyring> {
  const { masterKey, masterKeyFile } = options;
  const source = masterKey === undefined ? masterKeyFile : 'SLUICE_MASTER_KEY';
  const text = masterKey ?? (await readKeyFile(masterKeyFile, options.create));
  return new LocalKeyring(source, parseMasterKeys(source, text));
}

/**
 * The keys of a list. Throws SluiceError('validation') with one line that begins with `source`, says what is wrong with
 * which kind of key and what is allowed, and holds nothing of a key.
 */
export function parseMasterKeys(source: string, text: string): Buffer[] {
  const keys = text
    .split(/[\r\n]+/)
    .filter((line) => !line.trimStart().startsWith('#'))
    .flatMap((line) => line.split(','))
    .map((entry) => entry.trim())
    .filter((entry) => entry !== '')
    .map((entry) => parseKey(source, entry));
  if (keys.length === 0) throw refuse(source, 'is empty');
  return keys;
}

async function readKeyFile(path: string, create: boolean): Promise<string> {
  if (create) {
    await makeDirectory(dirname(path), 0o700);
    return await readOrCreate(path, () => `${randomBytes(32).toString('base64')}\n`);
  }
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error;
    throw new SluiceError(
      'validation',
      `${path} does not exist, and the store is in use already. Nodes of one store share their master keys: copy the file ` +
        'of the first node or of a backup there, or set SLUICE_MASTER_KEY.',
      { param: path },
    );
  }
}
