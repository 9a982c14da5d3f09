import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ENGINES, type JobStore, jobStore } from '../../../test/support/job-store.ts';
import { TestClock } from '../../kernel/clock.ts';
import { addFile, removeFile } from './file-rows.ts';
import { FileSpace, UPLOADS_AT_ONCE } from './file-space.ts';

const clock = new TestClock();
const chunks = (bytes: number) =>
  Readable.from(
    Array.from({ length: bytes / 10 }, () => Buffer.alloc(10)),
    { objectMode: false },
  );

describe.each(ENGINES)('room for files on %s', (engine) => {
  let store: JobStore;
  let count = 0;
  beforeAll(async () => {
    store = await jobStore(engine, clock);
  });
  afterAll(() => store?.close());

  /** As an upload does it: receives, then stores the row. */
  async function upload(space: FileSpace, bytes: number, workspace = 'w1'): Promise<string> {
    const room = await space.open('o1');
    try {
      await buffer(room.limited(chunks(bytes)));
      const id = `gw_file_${++count}`;
      await store.tables.systemWrite(async (tx) => {
        await room.take(tx, bytes);
        await addFile(tx, {
          id,
          organisation_id: 'o1',
          workspace_id: workspace,
          filename: 'f',
          purpose: 'batch',
          content_type: 'x',
          bytes,
          status: 'processed',
          status_details: null,
          created_by: null,
          created_at: clock.now(),
        });
      });
      return id;
    } finally {
      room.close();
    }
  }
  const empty = () =>
    store.tables.systemWrite(async (tx) => {
      for (const { id } of await tx.list('files')) await removeFile(tx, id);
    });
  const stored = async () => {
    const rows = await store.tables.systemRead((tx) => tx.list('files'));
    return rows.reduce((sum, row) => sum + row.bytes, 0);
  };

  it('uploads of two nodes that together do not fit pass one by one until it is full, and deleting makes room', async () => {
    const nodes = [new FileSpace(store.tables, 1_000), new FileSpace(store.tables, 1_000)];
    const all = await Promise.allSettled(
      Array.from({ length: 12 }, (_, i) => upload(nodes[i % 2] as FileSpace, 400, `w${(i % 2) + 1}`)),
    );
    expect(await stored()).toBeLessThanOrEqual(1_000);
    for (const one of all) if (one.status === 'rejected') expect(one.reason).toMatchObject({ kind: 'too_large' });
    await empty();
    const first = await upload(nodes[0] as FileSpace, 600);
    await expect(upload(nodes[1] as FileSpace, 600)).rejects.toMatchObject({ kind: 'too_large' });
    await store.tables.systemWrite((tx) => removeFile(tx, first));
    await upload(nodes[1] as FileSpace, 1_000);
    await expect(upload(nodes[1] as FileSpace, 10)).rejects.toMatchObject({ kind: 'too_large' });
    await upload(new FileSpace(store.tables, 0), 5_000);
    await empty();
  });

  it('an upload that would not fit is ended while it comes, not after it filled the disk', async () => {
    const space = new FileSpace(store.tables, 100);
    const room = await space.open('o1');
    const stream = room.limited(chunks(100_000));
    let received = 0;
    await expect(
      (async () => {
        for await (const chunk of stream as AsyncIterable<Buffer>) received += chunk.length;
      })(),
    ).rejects.toMatchObject({ kind: 'too_large' });
    expect(received).toBeLessThanOrEqual(100);
    room.close();
  });

  it('an organisation has so many uploads under way and no more', async () => {
    const space = new FileSpace(store.tables, 0);
    const rooms = await Promise.all(Array.from({ length: UPLOADS_AT_ONCE }, () => space.open('o1')));
    await expect(space.open('o1')).rejects.toMatchObject({ kind: 'rate_limit_exceeded' });
    await (await space.open('o2')).close();
    rooms[0]?.close();
    rooms[0]?.close();
    (await space.open('o1')).close();
    rooms[1]?.close();
    (await space.open('o1')).close();
  });
});
