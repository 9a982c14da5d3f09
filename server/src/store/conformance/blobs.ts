import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemTenant } from '../../auth/tenant.ts';
import type { Blobs, StoredBlob } from '../ports.ts';

/** The promises of `Blobs`. */
export function blobsSuite(name: string, open: () => Promise<{ blobs: Blobs; close?: () => Promise<void> }>): void {
  describe(`blobs: ${name}`, () => {
    let opened: Awaited<ReturnType<typeof open>>;
    let blobs: Blobs;
    const a = systemTenant('org-a');
    const b = systemTenant('org-b');
    beforeAll(async () => {
      opened = await open();
      blobs = opened.blobs;
    });
    afterAll(async () => {
      await blobs.close();
      await opened.close?.();
    });

    const read = async (
      tenant: typeof a,
      key: string,
      range?: { start: number; end?: number },
    ): Promise<Buffer | null> => {
      const stream = await blobs.get(tenant, key, range);
      return stream && (await buffer(stream));
    };

    it('stores and returns a body of several megabytes, byte for byte', async () => {
      const body = randomBytes(3_000_001);
      const chunks = [body.subarray(0, 10), body.subarray(10, 2_000_000), body.subarray(2_000_000)];
      expect((await blobs.put(a, 'large', Readable.from(chunks))).bytes).toBe(body.length);
      expect((await read(a, 'large'))?.equals(body)).toBe(true);
      const stat = await blobs.stat(a, 'large');
      expect(stat?.bytes).toBe(body.length);
      expect(stat?.createdAt).toBeGreaterThan(0);
    });

    it('stores an empty body', async () => {
      await blobs.put(a, 'empty', Readable.from([]));
      expect(await read(a, 'empty')).toEqual(Buffer.alloc(0));
    });

    it('returns ranges with both ends included, and nothing past the end', async () => {
      await blobs.put(a, 'digits', Readable.from([Buffer.from('0123456789')]));
      const text = async (range: { start: number; end?: number }) => (await read(a, 'digits', range))?.toString();
      expect(await text({ start: 0, end: 0 })).toBe('0');
      expect(await text({ start: 3, end: 5 })).toBe('345');
      expect(await text({ start: 8 })).toBe('89');
      expect(await text({ start: 8, end: 99 })).toBe('89');
      expect(await text({ start: 10 })).toBe('');
      expect(await text({ start: 5, end: 4 })).toBe('');
      for (const start of [-1, 1.5, Number.NaN]) {
        await expect(blobs.get(a, 'digits', { start })).rejects.toThrow(RangeError);
      }
    });

    it('replaces a blob as a whole: an open reader keeps the old one', async () => {
      const old = Buffer.alloc(500_000, 'o');
      await blobs.put(a, 'replaced', Readable.from([old]));
      const reader = await blobs.get(a, 'replaced');
      await blobs.put(a, 'replaced', Readable.from([Buffer.from('new')]));
      expect(reader && (await buffer(reader)).equals(old)).toBe(true);
      expect((await read(a, 'replaced'))?.toString()).toBe('new');
    });

    it('leaves no trace of a body that fails half-way, and keeps what was there before', async () => {
      async function* failing(): AsyncGenerator<Buffer> {
        yield Buffer.alloc(100_000);
        throw new Error('client went away');
      }
      await expect(blobs.put(a, 'failed', Readable.from(failing()))).rejects.toThrow('client went away');
      expect(await blobs.stat(a, 'failed')).toBeNull();
      await blobs.put(a, 'kept', Readable.from([Buffer.from('first')]));
      await expect(blobs.put(a, 'kept', Readable.from(failing()))).rejects.toThrow('client went away');
      expect((await read(a, 'kept'))?.toString()).toBe('first');
    });

    it('keeps organisations apart', async () => {
      await blobs.put(a, 'same', Readable.from([Buffer.from('of a')]));
      expect(await read(b, 'same')).toBeNull();
      expect(await blobs.delete(b, 'same')).toBe(false);
      await blobs.put(b, 'same', Readable.from([Buffer.from('of b')]));
      expect((await read(a, 'same'))?.toString()).toBe('of a');
    });

    it('refuses keys and organisations that could name another place', async () => {
      for (const key of [
        '',
        '.',
        '..',
        '../x',
        'a/b',
        'a\\b',
        '/etc/passwd',
        '.hidden',
        'a\0b',
        'ä',
        'x'.repeat(201),
      ]) {
        await expect(blobs.put(a, key, Readable.from([])), key).rejects.toThrow(RangeError);
        await expect(blobs.get(a, key), key).rejects.toThrow(RangeError);
        await expect(blobs.delete(a, key), key).rejects.toThrow(RangeError);
      }
      for (const organisation of ['', '..', 'a/b', '.']) {
        await expect(blobs.stat(systemTenant(organisation), 'key')).rejects.toThrow(RangeError);
      }
    });

    it('deletes once, and answers null for what is not there', async () => {
      await blobs.put(a, 'gone', Readable.from([Buffer.from('x')]));
      expect(await blobs.delete(a, 'gone')).toBe(true);
      expect(await blobs.delete(a, 'gone')).toBe(false);
      expect(await blobs.get(a, 'gone')).toBeNull();
      expect(await blobs.stat(a, 'gone')).toBeNull();
    });

    it('walks every blob of every organisation once, with its age', async () => {
      for (const tenant of [a, b]) await blobs.put(tenant, 'walked', Readable.from([Buffer.from('x')]));
      await blobs.put(b, 'walked-too', Readable.from([]));
      const found: StoredBlob[] = [];
      for await (const blob of blobs.all()) if (blob.key.startsWith('walked')) found.push(blob);
      const names = found.map(({ organisationId, key }) => `${organisationId}/${key}`).sort();
      expect(names).toEqual(['org-a/walked', 'org-b/walked', 'org-b/walked-too']);
      for (const { createdAt } of found) expect(createdAt).toBeGreaterThan(1_600_000_000_000);
    });
  });
}
