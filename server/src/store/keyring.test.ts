import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import { loadKeyring } from './keyring.ts';

const context = Buffer.from('context');
const fresh = () => randomBytes(32).toString('base64');
const given = (masterKey: string) => loadKeyring({ masterKey, masterKeyFile: '/nowhere/master.key', create: false });

function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-keyring-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

describe('master keys', () => {
  it('the first of the list encrypts, all decrypt', async () => {
    const [old, now] = [fresh(), fresh()];
    const before = await given(old);
    const after = await given(`${now}, ${old}`);
    const dataKey = randomBytes(32);
    const wrapped = await before.wrap(dataKey, context);
    expect(await after.unwrap(before.currentId, wrapped, context)).toEqual(dataKey);
    expect(after.ids).toEqual([after.currentId, before.currentId]);
    const again = await after.wrap(dataKey, context);
    await expect(before.unwrap(after.currentId, again, context)).rejects.toMatchObject({ kind: 'unavailable' });
    expect((await given(`${now}\n${now}\n`)).ids).toHaveLength(1);
  });

  it('reads base64, base64url and hexadecimal, separated by commas or line breaks', async () => {
    const bytes = Buffer.concat([randomBytes(30), Buffer.from([0xfb, 0xff, 0xfe])]);
    const ids = new Set<string>();
    for (const text of [
      bytes.toString('base64'),
      bytes.toString('base64url'),
      bytes.toString('hex'),
      bytes.toString('hex').toUpperCase(),
      `# a comment, with a comma\n\n  ${bytes.toString('base64')}  \r\n,\n`,
    ]) {
      ids.add((await given(text)).ids.join());
    }
    expect(ids.size).toBe(1);
    expect([...ids][0]).toMatch(/^[0-9a-f]{16}$/);
  });

  it('refuses an empty list and weak keys with one line that names what is allowed and shows no key', async () => {
    const weak = [
      '',
      '  \n , ',
      '# only a comment',
      'password',
      'correct horse battery staple correct horse battery staple',
      'correcthorsebatterystaplecorrecthorsebatterystaple',
      'CORRECTHORSEBATTERYSTAPLECORRECTHORSEBATTERYSTAPLE',
      randomBytes(31).toString('base64'),
      randomBytes(31).toString('hex'),
      Buffer.alloc(32).toString('hex'),
      Buffer.alloc(32, 'ab').toString('base64'),
      Buffer.from(Array.from({ length: 32 }, (_, i) => i)).toString('hex'),
      Buffer.from(Array.from({ length: 32 }, (_, i) => 255 - i * 3)).toString('base64'),
      `${fresh()},tiny-key`,
    ];
    for (const text of weak) {
      const error = await given(text).then(
        () => null,
        (reason: unknown) => reason,
      );
      expect(error, text).toMatchObject({ name: 'SluiceError', kind: 'validation', param: 'SLUICE_MASTER_KEY' });
      const { message } = error as Error;
      expect(message).toMatch(/^SLUICE_MASTER_KEY .*at least 32 random bytes in base64 or hexadecimal/);
      expect(message).not.toContain('\n');
      for (const part of text.split(/[\n,]/)) {
        if (part.trim().length > 4) expect(message).not.toContain(part.trim());
      }
    }
  });

  it('accepts every key of 32 or more random bytes', async () => {
    // Random bytes of the test's own source: fast-check prefers small and repeated values, which are what is refused.
    for (let i = 0; i < 1_000; i++) {
      const bytes = randomBytes(32 + (i % 20));
      expect((await given(bytes.toString(i % 2 ? 'base64' : 'hex'))).ids).toHaveLength(1);
    }
  });

  it('never fails on arbitrary text but with its one refusal', async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ maxLength: 120 }), async (text) => {
        const error = await given(text).then(
          () => null,
          (reason: unknown) => reason,
        );
        if (error) expect(error).toMatchObject({ kind: 'validation' });
      }),
    );
  });

  it('a wrapped key with any byte changed, cut or under another context does not open', async () => {
    const ring = await given(fresh());
    const wrapped = await ring.wrap(randomBytes(32), context);
    const open = (text: string, under = context) => ring.unwrap(ring.currentId, text, under);
    for (let i = 0; i < wrapped.length; i++) {
      const other = wrapped[i] === 'A' ? 'B' : 'A';
      await expect(open(wrapped.slice(0, i) + other + wrapped.slice(i + 1))).rejects.toMatchObject({
        kind: 'unavailable',
      });
      await expect(open(wrapped.slice(0, i))).rejects.toMatchObject({ kind: 'unavailable' });
    }
    await expect(open(`${wrapped}=`)).rejects.toMatchObject({ kind: 'unavailable' });
    await expect(open(wrapped, Buffer.from('other'))).rejects.toMatchObject({ kind: 'unavailable' });
  });

  it('makes its file on the first run for the owner alone, and reads it afterwards', async () => {
    const masterKeyFile = join(folder(), 'data', 'master.key');
    const first = await loadKeyring({ masterKeyFile, create: true });
    expect(statSync(masterKeyFile).mode & 0o777).toBe(0o600);
    const text = readFileSync(masterKeyFile, 'utf8');
    expect(Buffer.from(text.trim(), 'base64')).toHaveLength(32);
    chmodSync(masterKeyFile, 0o400);
    expect((await loadKeyring({ masterKeyFile, create: false })).currentId).toBe(first.currentId);
    expect((await loadKeyring({ masterKeyFile, create: true })).currentId).toBe(first.currentId);
    expect(readFileSync(masterKeyFile, 'utf8')).toBe(text);
  });

  it('agrees on one key when several starts make the file at once', async () => {
    const masterKeyFile = join(folder(), 'master.key');
    const rings = await Promise.all(Array.from({ length: 8 }, () => loadKeyring({ masterKeyFile, create: true })));
    expect(new Set(rings.map((ring) => ring.currentId)).size).toBe(1);
  });

  it('names the file when it is missing or holds no key, and never overwrites it', async () => {
    const masterKeyFile = join(folder(), 'master.key');
    await expect(loadKeyring({ masterKeyFile, create: false })).rejects.toThrow(`${masterKeyFile} does not exist`);
    expect(existsSync(masterKeyFile)).toBe(false);
    writeFileSync(masterKeyFile, '');
    await expect(loadKeyring({ masterKeyFile, create: true })).rejects.toThrow(`${masterKeyFile} is empty`);
    expect(readFileSync(masterKeyFile, 'utf8')).toBe('');
  });

  it('prints no key', async () => {
    const text = fresh();
    const ring = await given(text);
    const printed = [inspect(ring, { depth: 9, showHidden: true }), JSON.stringify(ring), String(ring)].join();
    expect(printed).not.toContain(text.slice(0, 12));
    expect(printed).not.toContain(Buffer.from(text, 'base64').toString('hex').slice(0, 12));
  });
});
