import { execFile } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statfsSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it, onTestFinished } from 'vitest';
import { systemTenant } from '../../auth/tenant.ts';
import { TestClock } from '../../kernel/clock.ts';
import { blobsSuite } from '../conformance/blobs.ts';
import { openDiskBlobs } from './blobs.ts';
import { writeStream } from './files.ts';
import { openDiskScratch } from './scratch.ts';

const FILLER = fileURLToPath(new URL('../../../test/support/children/fill-disk.ts', import.meta.url));

function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-blobs-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

blobsSuite('disk', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-blobs-'));
  return { blobs: await openDiskBlobs({ dir }), close: async () => rmSync(dir, { recursive: true, force: true }) };
});

describe('blobs on disk', () => {
  const tenant = systemTenant('org-a');

  it('leave no partial file when the disk refuses more, keep what was there, and go on', async () => {
    const dir = folder();
    // A file-size limit of the child process: 1,000 blocks of 512 or 1,024 bytes.
    const limited = 'ulimit -f 1000 && exec "$0" "$1" "$2"';
    const { stdout } = await promisify(execFile)('sh', ['-c', limited, process.execPath, FILLER, dir]);
    expect(JSON.parse(stdout)).toEqual({
      kinds: ['unavailable', 'unavailable'],
      large: null,
      small: 10_000,
      later: 10_000,
      unfinished: [],
    });
  });

  it('are refused below the reserve of free space, before and while they are written, and nothing is kept', async () => {
    const dir = folder();
    const { bavail, bsize } = statfsSync(dir);
    const full = await openDiskBlobs({ dir, reserveBytes: bavail * bsize * 2 });
    const refused = { kind: 'unavailable', message: expect.stringContaining('nearly full') };
    await expect(full.put(tenant, 'a', Readable.from([Buffer.from('x')]))).rejects.toMatchObject(refused);
    const scratch = await openDiskScratch({ dir, clock: new TestClock(), reserveBytes: bavail * bsize * 2 });
    await expect(scratch.hold(Readable.from([Buffer.from('x')]))).rejects.toMatchObject(refused);
    let asked = 0;
    const handle = await open(join(dir, 'growing'), 'wx');
    const body = Readable.from(Array.from({ length: 40 }, () => Buffer.alloc(1 << 20)));
    const twice = async () => {
      if (++asked === 2) throw new Error('nearly full');
    };
    await expect(writeStream(handle, body, twice)).rejects.toThrow('nearly full');
    expect((await handle.stat()).size).toBe(16 << 20);
    expect(body.destroyed).toBe(true);
    await handle.close();
    expect(readdirSync(join(dir, 'unfinished'))).toEqual([]);
    expect(await full.stat(tenant, 'a')).toBeNull();
  });

  it('lie under their organisation and are readable by the owner alone', async () => {
    const dir = folder();
    const blobs = await openDiskBlobs({ dir });
    await blobs.put(tenant, 'file-1', Readable.from([Buffer.from('x')]));
    const path = join(dir, 'blobs', 'org-a', 'file-1');
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(statSync(join(path, '..')).mode & 0o777).toBe(0o700);
  });

  it('read as slowly as the reader: a body is never held in memory as a whole', async () => {
    const dir = folder();
    const blobs = await openDiskBlobs({ dir });
    let produced = 0;
    let most = 0;
    const body = Readable.from(
      (async function* () {
        for (let i = 0; i < 200; i++) {
          produced += 65_536;
          const [name] = readdirSync(join(dir, 'unfinished'));
          if (name) most = Math.max(most, produced - statSync(join(dir, 'unfinished', name)).size);
          yield Buffer.alloc(65_536);
        }
      })(),
      { highWaterMark: 1 },
    );
    await blobs.put(tenant, 'big', body);
    expect(produced).toBe(200 * 65_536);
    expect(most).toBeLessThan(1_000_000);
  });

  it('remove what a killed process left unfinished, but not what another one is writing', async () => {
    const dir = folder();
    mkdirSync(join(dir, 'unfinished'));
    const old = join(dir, 'unfinished', 'old');
    const fresh = join(dir, 'unfinished', 'fresh');
    writeFileSync(old, 'x');
    writeFileSync(fresh, 'x');
    utimesSync(old, 1_000_000, 1_000_000);
    const clock = new TestClock(Date.now());
    const blobs = await openDiskBlobs({ dir, clock });
    expect(existsSync(old)).toBe(false);
    expect(existsSync(fresh)).toBe(true);
    // A restart right after the kill finds nothing stale; the sweep of the next day does.
    for await (const _ of blobs.all());
    expect(existsSync(fresh)).toBe(true);
    clock.jump(25 * 60 * 60_000);
    for await (const _ of blobs.all());
    expect(existsSync(fresh)).toBe(false);
  });

  it('do not follow a link planted in the folder', async () => {
    const dir = folder();
    const blobs = await openDiskBlobs({ dir });
    await blobs.put(tenant, 'real', Readable.from([]));
    symlinkSync('/etc/hostname', join(dir, 'blobs', 'org-a', 'planted'));
    await expect(blobs.get(tenant, 'planted')).rejects.toThrow(/ELOOP/);
  });
});
