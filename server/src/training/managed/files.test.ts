import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type JobStore, jobStore } from '../../../test/support/job-store.ts';
import { systemTenant } from '../../auth/tenant.ts';
import { TestClock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { silentLog } from '../../kernel/log.ts';
import type { ObjectAnswer, ObjectCall } from '../../runtime/object-call.ts';
import { openDiskBlobs } from '../../store/disk/blobs.ts';
import type { Blobs } from '../../store/ports.ts';
import { contentDisposition, readRange } from './content-headers.ts';
import { ManagedFiles } from './files.ts';

const row = (i: number) =>
  JSON.stringify({
    messages: [
      { role: 'user', content: `q${i}` },
      { role: 'assistant', content: `a${i}` },
    ],
  });
const ROWS = `${row(1)}\n${row(2)}\n`;
const BOUNDARY = 'xxBOUNDARYxx';

let folder: string;
let store: JobStore;
let blobs: Blobs;
let files: ManagedFiles;
const clock = new TestClock();
const own = systemTenant('o1', 'w1');

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-files-'));
  store = await jobStore('sqlite', clock);
  blobs = await openDiskBlobs({ dir: folder });
  files = filesWith({});
});
afterEach(async () => {
  await files.close();
  await store.close();
  rmSync(folder, { recursive: true, force: true });
});

const filesWith = (limits: { maxUploadBytes?: number; maxBatchBytes?: number; filesQuota?: number; blobs?: Blobs }) =>
  new ManagedFiles({
    tables: store.tables,
    blobs,
    clock,
    log: silentLog,
    maxUploadBytes: 1_000_000,
    maxBatchBytes: 1_000_000,
    ...limits,
  });

interface Given {
  readonly workspace?: string;
  readonly params?: Record<string, string>;
  readonly query?: string;
  readonly headers?: Record<string, string>;
  readonly upload?: Readable;
  readonly signal?: AbortSignal;
}

function callOf({ workspace = 'w1', params = {}, query = '', headers = {}, upload, signal }: Given): ObjectCall {
  return {
    principal: { organisationId: 'o1', workspaceId: workspace, keyId: 'key-1' },
    snapshot: { organisationId: 'o1', workspaceId: workspace },
    params,
    query: new URLSearchParams(query),
    header: (name: string) => headers[name],
    copiedHeaders: null,
    upload: upload ?? null,
    signal: signal ?? new AbortController().signal,
  } as unknown as ObjectCall;
}

const purposePart = (purpose: string) =>
  `--${BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n${purpose}\r\n`;
const filePart = (content: string, filename: string) =>
  `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="${filename}"\r\nContent-Type: application/jsonl\r\n\r\n${content}\r\n`;

function uploadOf(content: string, purpose = 'fine-tune', more: Given & { filename?: string; last?: boolean } = {}) {
  const { filename = 'rows.jsonl', last = false } = more;
  const parts = [purposePart(purpose), filePart(content, filename)];
  const body = `${(last ? parts.reverse() : parts).join('')}--${BOUNDARY}--\r\n`;
  return callOf({
    ...more,
    headers: { 'content-type': `multipart/form-data; boundary=${BOUNDARY}`, ...more.headers },
    upload: more.upload ?? Readable.from([Buffer.from(body)]),
  });
}

async function bodyOf(answer: ObjectAnswer | Promise<ObjectAnswer>): Promise<JsonObject> {
  const { body } = await answer;
  const value: unknown = JSON.parse(Buffer.isBuffer(body) ? body.toString() : await text(body));
  if (!isObject(value)) throw new Error('no object');
  return value;
}

async function uploaded(
  content = ROWS,
  purpose = 'fine-tune',
  more: Given & { filename?: string; last?: boolean } = {},
) {
  const file = await bodyOf(files.upload(uploadOf(content, purpose, more)));
  return { ...file, id: String(file.id) };
}
const retrieved = (id: string, more: Given = {}) =>
  bodyOf(files.retrieve(callOf({ ...more, params: { file_id: id } })));
const content = (id: string, more: Given = {}) => files.content(callOf({ ...more, params: { file_id: id } }));
const stored = () => {
  try {
    return readdirSync(join(folder, 'blobs', 'o1'));
  } catch {
    return [];
  }
};

describe('a file that Sluice keeps', () => {
  it('is uploaded at first, and processed once its rows were checked', async () => {
    const file = await uploaded();
    expect(file).toEqual({
      id: expect.stringMatching(/^gw_file_[0-9a-f-]{36}$/),
      object: 'file',
      bytes: ROWS.length,
      created_at: Math.floor(clock.now() / 1000),
      filename: 'rows.jsonl',
      purpose: 'fine-tune',
      status: 'uploaded',
      status_details: null,
    });
    await files.settled();
    expect(await retrieved(file.id)).toEqual({ ...file, status: 'processed' });
  });

  it('ends as an error that names lines, and nothing of what they hold', async () => {
    const secret = 'the patient is called Ada';
    const file = await uploaded(`${row(1)}\n{"messages": "${secret}"}\n{"${secret}"\n`);
    await files.settled();
    expect(await retrieved(file.id)).toMatchObject({
      status: 'error',
      status_details:
        '1 of 3 rows are valid: line 2: "messages" must be a list with messages; line 3: the line is not valid JSON.',
    });
  });

  it('of a batch is checked as requests, whose ids are unique', async () => {
    const line = (id: string) =>
      JSON.stringify({ custom_id: id, method: 'POST', url: '/v1/chat/completions', body: {} });
    const good = await uploaded([line('a'), line('b')].join('\n'), 'batch');
    const bad = await uploaded([line('a'), line('a'), row(1)].join('\n'), 'batch');
    await files.settled();
    expect(await retrieved(good.id)).toMatchObject({ status: 'processed' });
    expect(await retrieved(bad.id)).toMatchObject({
      status: 'error',
      status_details: expect.stringContaining('line 2: an earlier line has the same "custom_id"; line 3: '),
    });
  });

  it('for assistants or vision may hold anything', async () => {
    const file = await uploaded('\x00\x01 not rows', 'vision', { filename: 'a.png' });
    await files.settled();
    expect(await retrieved(file.id)).toMatchObject({ status: 'processed' });
  });

  it('takes its purpose from behind the file, as the official client sends it', async () => {
    expect(await uploaded(ROWS, 'batch', { last: true })).toMatchObject({ purpose: 'batch' });
  });

  it('is read back byte for byte with its type, to be saved and not shown', async () => {
    const file = await uploaded();
    const answer = await content(file.id);
    expect(answer).toMatchObject({ status: 200, length: ROWS.length });
    expect(answer.headers).toEqual([
      'content-type',
      'application/jsonl',
      'content-disposition',
      'attachment; filename="rows.jsonl"',
      'x-content-type-options',
      'nosniff',
      'accept-ranges',
      'bytes',
    ]);
    expect(await text(answer.body as Readable)).toBe(ROWS);
  });

  it('is read in part', async () => {
    const file = await uploaded();
    const answer = await content(file.id, { headers: { range: 'bytes=2-9' } });
    expect(answer).toMatchObject({ status: 206, length: 8 });
    expect(answer.headers.slice(-2)).toEqual(['content-range', `bytes 2-9/${ROWS.length}`]);
    expect(await text(answer.body as Readable)).toBe(ROWS.slice(2, 10));
    expect(await content(file.id, { headers: { range: 'bytes=9999-' } })).toMatchObject({ status: 416 });
  });

  it('is gone after it was deleted: row and bytes', async () => {
    const file = await uploaded();
    expect(await bodyOf(files.remove(callOf({ params: { file_id: file.id } })))).toEqual({
      id: file.id,
      object: 'file',
      deleted: true,
    });
    expect(stored()).toEqual([]);
    await expect(retrieved(file.id)).rejects.toMatchObject({ kind: 'not_found' });
    await expect(content(file.id)).rejects.toMatchObject({ kind: 'not_found' });
    await expect(files.remove(callOf({ params: { file_id: file.id } }))).rejects.toMatchObject({ kind: 'not_found' });
    await files.settled();
  });

  it('does not exist for another workspace', async () => {
    const file = await uploaded();
    const other = { workspace: 'w2', params: { file_id: file.id } };
    for (const attempt of [files.retrieve, files.content, files.remove])
      await expect(attempt.call(files, callOf(other))).rejects.toMatchObject({ kind: 'not_found' });
    expect(await bodyOf(files.list(callOf({ workspace: 'w2' })))).toMatchObject({ data: [] });
    await expect(files.open(systemTenant('o1', 'w2'), file.id)).rejects.toMatchObject({ kind: 'not_found' });
    const { stream } = await files.open(own, file.id);
    expect(await text(stream)).toBe(ROWS);
  });

  it('that the product writes is processed at once', async () => {
    const written = await files.save(
      own,
      { filename: 'out.jsonl', purpose: 'batch_output', contentType: 'application/jsonl', createdBy: null },
      Readable.from([Buffer.from('{}\n')]),
    );
    expect(await retrieved(written.id)).toMatchObject({ purpose: 'batch_output', status: 'processed', bytes: 3 });
  });
});

it('files are checked two at a time, and one that waits holds nothing open', async () => {
  let open = 0;
  let most = 0;
  files = filesWith({
    blobs: {
      ...blobs,
      put: blobs.put.bind(blobs),
      async get(tenant, key) {
        open += 1;
        most = Math.max(most, open);
        const stream = await blobs.get(tenant, key);
        stream?.on('close', () => {
          open -= 1;
        });
        return stream;
      },
    } as Blobs,
  });
  const ids = await Promise.all(Array.from({ length: 8 }, async () => (await uploaded()).id));
  await files.settled();
  expect(most).toBeLessThanOrEqual(2);
  for (const id of ids) expect(await retrieved(id)).toMatchObject({ status: 'processed' });
});

describe('an upload that fails leaves nothing behind', () => {
  const nothing = async () => {
    expect(stored()).toEqual([]);
    expect(readdirSync(join(folder, 'unfinished'))).toEqual([]);
    expect(await bodyOf(files.list(callOf({})))).toMatchObject({ data: [] });
  };

  it('when it is larger than a file may be', async () => {
    files = filesWith({ maxUploadBytes: 100 });
    await expect(files.upload(uploadOf(ROWS))).rejects.toMatchObject({ kind: 'file_too_large', param: 'file' });
    await nothing();
  });

  it('when it is larger than a file of a batch may be, also when that is known last', async () => {
    files = filesWith({ maxBatchBytes: 100 });
    for (const last of [false, true])
      await expect(files.upload(uploadOf(ROWS, 'batch', { last }))).rejects.toMatchObject({ kind: 'file_too_large' });
    await nothing();
    expect(await uploaded(ROWS, 'fine-tune')).toMatchObject({ status: 'uploaded' });
  });

  it('when its purpose is unknown or missing', async () => {
    for (const last of [false, true])
      await expect(files.upload(uploadOf(ROWS, 'batch_output', { last }))).rejects.toMatchObject({ param: 'purpose' });
    const body = `${filePart(ROWS, 'x')}--${BOUNDARY}--\r\n`;
    const upload = Readable.from([Buffer.from(body)]);
    await expect(files.upload(uploadOf('', '', { upload }))).rejects.toMatchObject({ param: 'purpose' });
    await nothing();
  });

  it('when the form ends before the file does', async () => {
    const upload = Readable.from([Buffer.from(purposePart('fine-tune') + filePart(ROWS, 'x').slice(0, -20))]);
    await expect(files.upload(uploadOf('', '', { upload }))).rejects.toMatchObject({ kind: 'malformed_call' });
    await nothing();
  });

  it('when the client leaves in the middle of it', async () => {
    const leaving = new AbortController();
    const upload = new Readable({ read() {} });
    upload.push(Buffer.from(purposePart('fine-tune') + filePart(ROWS, 'x').slice(0, -20)));
    const answer = files.upload(uploadOf('', '', { upload, signal: leaving.signal }));
    answer.catch(() => undefined);
    while (stored().length + readdirSync(join(folder, 'unfinished')).length === 0) await new Promise(setImmediate);
    leaving.abort(new SluiceError('client_closed', 'The client went away.'));
    await expect(answer).rejects.toMatchObject({ kind: 'client_closed' });
    expect(upload.destroyed).toBe(true);
    await nothing();
  });

  it('when its row cannot be written', async () => {
    const elsewhere = uploadOf(ROWS, 'fine-tune', { workspace: 'missing' });
    await expect(files.upload(elsewhere)).rejects.toThrow();
    await nothing();
  });
});

describe('a list of files', () => {
  const ids = (body: JsonObject) => (body.data as { id: string }[]).map(({ id }) => id);

  it('has the newest first, and one purpose when asked', async () => {
    const first = await uploaded();
    await clock.advance(1000);
    const second = await uploaded(ROWS, 'vision');
    expect(ids(await bodyOf(files.list(callOf({}))))).toEqual([second.id, first.id]);
    expect(ids(await bodyOf(files.list(callOf({ query: 'order=asc' }))))).toEqual([first.id, second.id]);
    expect(ids(await bodyOf(files.list(callOf({ query: 'purpose=vision' }))))).toEqual([second.id]);
    expect(ids(await bodyOf(files.list(callOf({ query: 'purpose=nonsense' }))))).toEqual([]);
  });

  it('is walked completely and without repeats while files are added, several of them in one millisecond', async () => {
    const all = [];
    for (let i = 0; i < 7; i++) {
      if (i % 3 === 0) await clock.advance(5);
      all.push((await uploaded(ROWS, 'vision')).id);
    }
    const seen: string[] = [];
    for (let after = ''; ; ) {
      const page = await bodyOf(files.list(callOf({ query: `limit=2${after}` })));
      seen.push(...ids(page));
      if (page.has_more !== true) break;
      after = `&after=${seen.at(-1)}`;
      await uploaded(ROWS, 'vision');
    }
    expect(seen.toSorted()).toEqual(all.toSorted());
  });

  it.each(['limit=0', 'limit=x', 'after=gw_file_x', 'order=up', 'page=2'])('refuses %s', async (query) => {
    await expect(files.list(callOf({ query }))).rejects.toMatchObject({ kind: 'validation' });
  });
});

describe('a sweep', () => {
  const signal = new AbortController().signal;
  const DAY = 24 * 60 * 60_000;

  it('removes blobs without a row once they are a day old, and nothing else', async () => {
    const kept = await uploaded();
    await files.settled();
    for (const key of ['gw_file_orphan', 'other-blob']) await blobs.put(own, key, Readable.from([Buffer.from('x')]));
    // Blobs carry the time of the disk.
    const written = (await blobs.stat(own, 'gw_file_orphan'))?.createdAt ?? 0;
    clock.jump(written + DAY - 60_000 - clock.now());
    expect(await files.sweep(signal)).toMatchObject({ removed: 0 });
    clock.jump(120_000);
    expect(await files.sweep(signal)).toMatchObject({ removed: 1 });
    expect(stored().toSorted()).toEqual([kept.id, 'other-blob'].toSorted());
  });

  it('repeats a check that was lost with its process', async () => {
    const { id } = await uploaded();
    await files.close();
    files = filesWith({});
    await store.tables.write(own, (tx) => tx.update('files', { id }, { status: 'uploaded' }));
    expect(await files.sweep(signal)).toMatchObject({ checked: 0 });
    clock.jump(20 * 60_000);
    expect(await files.sweep(signal)).toMatchObject({ checked: 1 });
    expect(await retrieved(id)).toMatchObject({ status: 'processed' });
  });
});

describe('headers of a download', () => {
  it.each([
    [undefined, null],
    ['bytes=0-', { start: 0, end: 9 }],
    ['bytes=3-5', { start: 3, end: 5 }],
    ['bytes=8-99', { start: 8, end: 9 }],
    ['bytes=-4', { start: 6, end: 9 }],
    ['bytes=-99', { start: 0, end: 9 }],
    ['bytes=10-', 'unsatisfiable'],
    ['bytes=-0', 'unsatisfiable'],
    ['bytes=5-3', null],
    ['bytes=0-1,3-4', null],
    ['rows=0-1', null],
    ['bytes=-', null],
  ] as const)('range %s of 10 bytes', (header, expected) => {
    expect(readRange(header, 10)).toEqual(expected);
  });

  it('an empty file has no range', () => {
    expect(readRange('bytes=0-', 0)).toBe('unsatisfiable');
    expect(readRange('bytes=-5', 0)).toBe('unsatisfiable');
  });

  it('a name with quotes or other letters is encoded', () => {
    expect(contentDisposition('a "b" (ü).txt')).toBe(
      `attachment; filename="a _b_ (_).txt"; filename*=UTF-8''a%20%22b%22%20%28%C3%BC%29.txt`,
    );
  });
});

it('a large file is never held as a whole: what was read runs ahead of the disk by little', async () => {
  files = filesWith({ maxUploadBytes: 100_000_000 });
  const piece = Buffer.alloc(65_536, 'x');
  let made = 0;
  let most = 0;
  const upload = Readable.from(
    (async function* () {
      yield Buffer.from(purposePart('assistants') + filePart('', 'big.bin').slice(0, -2));
      for (let i = 0; i < 400; i++) {
        made += piece.length;
        const [name] = readdirSync(join(folder, 'unfinished'));
        if (name !== undefined) most = Math.max(most, made - statSync(join(folder, 'unfinished', name)).size);
        yield piece;
      }
      yield Buffer.from(`\r\n--${BOUNDARY}--\r\n`);
    })(),
    { highWaterMark: 1 },
  );
  const file = await uploaded('', '', { upload });
  expect(file).toMatchObject({ bytes: 400 * 65_536 });
  expect((await buffer((await files.open(own, file.id)).stream)).length).toBe(400 * 65_536);
  expect(most).toBeLessThan(2_000_000);
});

it('what does not fit into the quota is refused with 413 and leaves nothing; deleting makes room', async () => {
  files = filesWith({ filesQuota: ROWS.length + 10 });
  const file = await uploaded();
  await expect(uploaded()).rejects.toMatchObject({
    kind: 'too_large',
    message: expect.stringContaining('SLUICE_FILES_QUOTA'),
  });
  await expect(uploaded(ROWS, 'fine-tune', { workspace: 'w2' })).rejects.toMatchObject({ kind: 'too_large' });
  await files.settled();
  expect(stored().length).toBe(1);
  await files.remove(callOf({ params: { file_id: file.id } }));
  await uploaded();
  await files.settled();
});
