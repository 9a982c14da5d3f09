import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemTenant } from '../auth/tenant.ts';
import { openSegmentKey, segmentKey } from '../compose/body-keys.ts';
import { BodyLog } from '../gateway/body-log.ts';
import { TestClock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import { silentLog } from '../kernel/log.ts';
import { openDiskBlobs } from '../store/disk/blobs.ts';
import { BodyJournal } from '../store/disk/body-journal.ts';
import { type EnvelopeVault, openVault } from '../store/envelope.ts';
import { loadKeyring } from '../store/keyring.ts';
import type { Blobs, Tables } from '../store/ports.ts';
import { openSqliteTables } from '../store/sqlite/tables.ts';
import { chunkBlob } from '../telemetry/bodies/chunk.ts';
import { BodyKeeper } from './body-keeper.ts';
import type { KeeperClient } from './keeper-client.ts';
import { bodyStore, StoredBodies, type StoredBodiesOptions } from './stored-bodies.ts';

const A = 'org-a';
const B = 'org-b';
let dir: string;
let clock: TestClock;
let tables: Tables;
let blobs: Blobs;
let vault: EnvelopeVault;
let options: StoredBodiesOptions;
let journal: BodyJournal;
let log: BodyLog;
let keeper: BodyKeeper;
let stored: StoredBodies;

const journalHere = (more: object = {}) => {
  const keyOf = (name: string, segment: string) => segmentKey(vault, name, segment);
  return new BodyJournal({ dir: join(dir, 'spool', 'bodies'), clock, log: silentLog, keyOf, ...more });
};
const logHere = (to: BodyJournal) =>
  new BodyLog({ journal: to, clock, rule: 'allowed', maxBytes: 1 << 20, maskedHeaders: [] });
const keeperHere = () =>
  new BodyKeeper({
    dir: join(dir, 'logs'),
    spool: join(dir, 'spool'),
    store: bodyStore(options),
    clock,
    log: silentLog,
  });

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'sluice-bodies-'));
  clock = new TestClock(Date.now());
  tables = await openSqliteTables({ file: join(dir, 'control.db'), log: silentLog });
  await tables.migrate();
  for (const id of [A, B]) {
    await tables.systemWrite((tx) =>
      tx.insert('organisations', {
        id,
        name: id,
        slug: id,
        status: 'active',
        settings: { block_inline_config: true },
        created_at: 1,
        last_updated_at: 1,
      }),
    );
  }
  blobs = await openDiskBlobs({ dir, clock });
  const keyring = await loadKeyring({ masterKeyFile: join(dir, 'master.key'), create: true });
  vault = openVault({ keyring, tables, clock });
  const segment = (...place: readonly [string, string, string]) => openSegmentKey(vault, ...place);
  options = { blobs, tables, keys: vault, clock, tenantOf: systemTenant, segmentKey: segment };
  journal = journalHere();
  log = logHere(journal);
  keeper = keeperHere();
  // Nothing waits in memory: what is found is in a blob.
  const resting = { ask: () => Promise.reject(new Error('rests')) } as unknown as KeeperClient;
  stored = new StoredBodies(options, resting);
});
afterEach(async () => {
  await journal.close();
  await vault.close();
  await tables.close();
  await rm(dir, { recursive: true, force: true });
});

interface Place {
  readonly organisationId: string;
  readonly chunk: string;
  readonly slot: number;
  readonly id: string;
}

/** Keeps a request with this body. */
function keep(organisationId: string, text: string, answer = 'fine'): Place {
  const id = uuidv7(clock);
  const place = log.place(`ws-${organisationId}`, text.length);
  log.piece(id, 'request', 1, Buffer.from(text.slice(0, 10)));
  log.piece(id, 'request', 1, Buffer.from(text.slice(10)));
  log.piece(id, 'sent', 1, Buffer.from(text));
  log.piece(id, 'answer', 1, Buffer.from(answer));
  const parts = { request: { bytes: text.length }, sent: { bytes: text.length }, answer: { bytes: answer.length } };
  const end = {
    organisation_id: organisationId,
    workspace_id: `ws-${organisationId}`,
    time: clock.now(),
    flags: 0,
    parts,
  };
  log.end(id, { ...end, ...place });
  return { organisationId, id, ...place };
}

async function pack(): Promise<void> {
  await journal.flush();
  await keeper.flush();
}

const segments = async () => (await readdir(join(dir, 'spool', 'bodies'))).filter((name) => name.endsWith('.bodies'));
const blobFile = ({ organisationId, chunk }: Place) => join(dir, 'blobs', organisationId, chunkBlob(chunk));
const textOf = async (place: Place) => (await stored.find(place))?.bodies.request?.toString();

describe('chunks', () => {
  it('have the bodies of many requests, each whole and equal ones once', async () => {
    const places = ['one', 'two', 'three'].map((word) => keep(A, `${word} `.repeat(50)));
    await pack();
    for (const [i, word] of ['one', 'two', 'three'].entries()) {
      const found = await stored.find(places[i] as Place);
      expect(found?.bodies.request?.toString()).toBe(`${word} `.repeat(50));
      expect(found?.bodies.answer?.toString()).toBe('fine');
      expect(found?.end.parts.sent).toMatchObject({ same: 'request' });
      expect(found?.bodies.sent).toBeUndefined();
    }
    expect(await tables.systemRead((tx) => tx.list('body_chunks', {}))).toMatchObject([
      { organisation_id: A, workspace_id: `ws-${A}`, records: 3 },
    ]);
  });

  it('are of one organisation each, and begin anew after a minute', async () => {
    const [a, b] = [keep(A, 'of a'), keep(B, 'of b')];
    clock.advance(61_000);
    const later = keep(A, 'of a later');
    expect(new Set([a.chunk, b.chunk, later.chunk]).size).toBe(3);
    await pack();
    expect([await textOf(a), await textOf(b), await textOf(later)]).toEqual(['of a', 'of b', 'of a later']);
  });

  it('are packed when their time is over, and not before', async () => {
    const place = keep(A, 'soon');
    await journal.flush();
    await keeper.tick();
    expect(await stored.find(place)).toBeNull();
    expect((await keeper.find(A, place.chunk, place.slot))?.bodies.request?.toString()).toBe('soon');
    expect(await keeper.find(B, place.chunk, place.slot)).toBeNull();
    clock.advance(76_000);
    await keeper.tick();
    expect(await textOf(place)).toBe('soon');
  });

  it('take prompts that are sent again and again once', async () => {
    const history = Array.from({ length: 200 }, (_, i) => `${i} ${uuidv7(clock)}`).join(' ');
    const place = keep(A, history);
    for (let i = 0; i < 99; i++) keep(A, `${history} and then ${i}`);
    await pack();
    expect((await readFile(blobFile(place))).length).toBeLessThan(history.length * 6);
  });
});

describe('a keeper that was killed', () => {
  it('loses and doubles nothing, whether the chunk was stored or not', async () => {
    const first = keep(A, 'before');
    await pack();
    const second = keep(A, 'after');
    expect(second.chunk).toBe(first.chunk);
    await journal.flush();
    keeper = keeperHere();
    await keeper.flush();
    expect([await textOf(first), await textOf(second)]).toEqual(['before', 'after']);
    keeper = keeperHere();
    await keeper.flush();
    expect(await tables.systemRead((tx) => tx.list('body_chunks', {}))).toMatchObject([{ records: 2 }]);
  });

  it('what a killed server began and never ended is in no chunk', async () => {
    log.piece(uuidv7(clock), 'request', 1, Buffer.from('half'));
    const place = keep(A, 'whole');
    await pack();
    expect(await textOf(place)).toBe('whole');
    expect(await tables.systemRead((tx) => tx.list('body_chunks', {}))).toMatchObject([{ records: 1 }]);
  });
});

describe('a blob', () => {
  const refused = { kind: 'unavailable' };

  it('with a flipped bit is refused, wherever it is', async () => {
    const place = keep(A, 'secret');
    await pack();
    const bytes = await readFile(blobFile(place));
    for (const at of [0, 5, 45, 60, bytes.length - 1]) {
      const changed = Buffer.from(bytes);
      changed[at] = (changed[at] ?? 0) ^ 1;
      await writeFile(blobFile(place), changed);
      await expect(stored.find(place)).rejects.toMatchObject(refused);
    }
  });

  it('in the place of another one is refused', async () => {
    const one = keep(A, 'one');
    clock.advance(61_000);
    const two = keep(A, 'two');
    await pack();
    await writeFile(blobFile(one), await readFile(blobFile(two)));
    await expect(stored.find(one)).rejects.toMatchObject(refused);
  });

  it('of another organisation is refused, also under its name', async () => {
    const [a, b] = [keep(A, 'of a'), keep(B, 'of b')];
    await pack();
    await writeFile(blobFile(a), await readFile(blobFile(b)));
    await expect(stored.find(a)).rejects.toMatchObject(refused);
    await writeFile(join(dir, 'blobs', A, chunkBlob(b.chunk)), await readFile(blobFile(b)));
    await expect(stored.find({ ...b, organisationId: A })).rejects.toMatchObject(refused);
  });

  it('cannot be read once the data key of its organisation is deleted', async () => {
    const [a, b] = [keep(A, 'of a'), keep(B, 'of b')];
    await pack();
    await tables.systemWrite((tx) => tx.remove('data_keys', { organisation_id: A }));
    await vault.close();
    await expect(stored.find(a)).rejects.toMatchObject(refused);
    expect(await textOf(b)).toBe('of b');
  });

  it('gives the bodies of the request that is asked for only', async () => {
    const place = keep(A, 'mine');
    await pack();
    expect(await stored.find({ ...place, id: uuidv7(clock) })).toBeNull();
    expect(await stored.find({ ...place, slot: 7 })).toBeNull();
  });
});

describe('the journal of bodies', () => {
  it('has nothing in clear, and its segments go when they are packed', async () => {
    journal = journalHere({ segmentBytes: 4_096 });
    log = logHere(journal);
    for (let i = 0; i < 20; i++) {
      keep(A, `canary ${'x'.repeat(1_000)}`);
      await journal.flush();
    }
    const before = await segments();
    expect(before.length).toBeGreaterThan(3);
    for (const name of before)
      expect((await readFile(join(dir, 'spool', 'bodies', name))).includes('canary')).toBe(false);
    await keeper.flush();
    expect(await segments()).toEqual(before.slice(-1));
  });

  it('a segment that nothing is added to any more goes too, and later ones are read', async () => {
    const place = keep(A, 'once');
    await pack();
    clock.advance(400_000);
    await keeper.tick();
    expect(await segments()).toEqual([]);
    const next = keep(A, 'twice');
    await pack();
    expect([await textOf(place), await textOf(next)]).toEqual(['once', 'twice']);
  });

  it('drops frames above its cap and counts them, and takes them again when there is room', async () => {
    journal = journalHere({ maxBytes: 2_000 });
    log = logHere(journal);
    keep(A, 'x'.repeat(3_000));
    await journal.flush();
    clock.advance(3_000);
    log.piece(uuidv7(clock), 'request', 1, Buffer.from('look'));
    await journal.flush();
    expect(log.piece(uuidv7(clock), 'request', 1, Buffer.from('no room'))).toBe(false);
    expect(journal.dropped).toBeGreaterThan(0);
    for (const name of await segments()) await rm(join(dir, 'spool', 'bodies', name));
    clock.advance(3_000);
    log.piece(uuidv7(clock), 'request', 1, Buffer.from('look again'));
    await journal.flush();
    expect(log.piece(uuidv7(clock), 'request', 1, Buffer.from('room'))).toBe(true);
  });

  it('drops frames while less of the disk is free than is kept for others', async () => {
    journal = journalHere({ reserveBytes: Number.MAX_SAFE_INTEGER });
    log = logHere(journal);
    keep(A, 'first');
    await journal.flush();
    expect(log.piece(uuidv7(clock), 'request', 1, Buffer.from('second'))).toBe(false);
    expect(await segments()).toEqual([]);
  });
});
