import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KEY_LENGTH, type KeyType, maskKey, mintKey, parseKey } from './key-format.ts';

const types: KeyType[] = ['org', 'wks', 'usr', 'opr', 'dep'];

describe('gateway keys', () => {
  it.each(types)('a new %s key has the published form and is parsed back to its type and public id', (type) => {
    const { key, publicId, digest } = mintKey(type);
    expect(key).toMatch(/^slc_(org|wks|usr|opr|dep)_[0-9A-Za-z]{12}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}$/);
    expect(key).toHaveLength(KEY_LENGTH);
    expect(parseKey(key)).toEqual({ type, publicId });
    expect(digest).toBe(createHash('sha256').update(key).digest('hex'));
  });

  it('a key with any one character changed is refused by its checksum alone', () => {
    const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_';
    fc.assert(
      fc.property(
        fc.constantFrom(...types),
        fc.integer({ min: 0, max: KEY_LENGTH - 1 }),
        fc.constantFrom(...alphabet),
        (type, at, character) => {
          const { key } = mintKey(type);
          const changed = key.slice(0, at) + character + key.slice(at + 1);
          expect(parseKey(changed)).toEqual(changed === key ? expect.anything() : null);
        },
      ),
      { numRuns: 2_000 },
    );
  });

  it('text that is not a key is never taken for one', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.string({ unit: 'binary', maxLength: 200 })), (text) => {
        expect(parseKey(text)).toBeNull();
      }),
    );
    const { key } = mintKey('org');
    for (const text of [` ${key}`, `${key}\n`, key.toUpperCase(), key.replace('slc', 'SLC'), key.slice(1), `${key}0`]) {
      expect(parseKey(text)).toBeNull();
    }
  });

  it('the mask shows four characters of the public id and nothing of the secret', () => {
    const { key, publicId } = mintKey('wks');
    const mask = maskKey(publicId);
    expect(mask).toBe(`${publicId.slice(0, 2)}*******${publicId.slice(-2)}`);
    const secret = key.slice(21);
    for (let i = 0; i + 4 <= mask.length; i++) expect(secret).not.toContain(mask.slice(i, i + 4));
  });
});
