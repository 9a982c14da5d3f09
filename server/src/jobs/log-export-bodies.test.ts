/** Bodies in the files of exports: with real chunks, keys and settings, in every format. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { refused } from '../../test/support/accounts.ts';
import { type ExportsUnderTest, exportsOf, fileOf, type Said, startExports } from '../../test/support/log-exports.ts';
import { literal, openEngine, rowsOf } from '../keeper/engine.ts';
import type { StoredLog } from '../store/ports.ts';
import { BODY_FLAGS } from '../telemetry/bodies/frame.ts';

const FIELDS = ['trace_id', 'request', 'response'];
const RECORDS = 12;
const askedFor = (n: number) => ({
  model: 'm',
  user: 'ada',
  messages: [{ role: 'user', content: `=SUM(${n}) "x", 🦆\n` }],
});
const answered = (n: number) => ({ choices: [{ message: { role: 'assistant', content: `answer ${n}` } }] });

let under: ExportsUnderTest;
let mine: ReturnType<typeof exportsOf>;
let written: StoredLog[];

beforeAll(async () => {
  under = await startExports('sqlite');
  const { a } = under.on.admin;
  mine = exportsOf(under.on.as(a.admin_api_key), a.workspace_id);
  const said = (n: number): Said => ({ request: JSON.stringify(askedFor(n)), answer: JSON.stringify(answered(n)) });
  const more = (n: number) => ({ trace_id: `trace ${n}`, metadata: { team: 'red' } });
  const first = await under.write(6, (n) => ({ ...more(n), said: said(n) }));
  // In chunks and in files; the others are in journals still.
  await under.keeper.keeper.flush();
  const rest = await under.write(4, (n) => ({ ...more(n + 6), said: said(n + 6) }));
  const failed = { error: { message: 'limit metadata.team:red is used up' } };
  const none = await under.write(1, () => ({
    ...more(10),
    body_chunk: undefined,
    body_slot: undefined,
    body_flags: 0,
  }));
  const only = await under.write(1, () => ({
    ...more(11),
    status: 500,
    said: { request: '', answer: JSON.stringify(failed), flags: BODY_FLAGS.answerOnly },
  }));
  written = [...first, ...rest, ...none, ...only];
  under.work();
}, 60_000);
afterAll(() => under.close());

async function textOf(body: object = {}, of = mine): Promise<string> {
  const { id, status, error } = await of.run({ requested_data: FIELDS, ...body });
  expect([status, error]).toEqual(['success', null]);
  return (await fileOf(under, await of.link(id))).text();
}
const linesOf = async (body: object = {}, of = mine) =>
  (await textOf(body, of))
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line));
const setting = async (body: object) => {
  const answer = await under.on.admin.call('PUT', '/v1/admin/organisation/settings', { body });
  expect(answer.status, answer.text).toBe(200);
};
const expected = Array.from({ length: RECORDS }, (_, n) =>
  n < 10
    ? { trace_id: `trace ${n}`, request: askedFor(n), response: answered(n), bodies_reason: null }
    : n === 10
      ? { trace_id: 'trace 10', request: null, response: null, bodies_reason: 'off' }
      : {
          trace_id: 'trace 11',
          request: null,
          response: { error: { message: 'limit metadata.team:red is used up' } },
          bodies_reason: 'off',
        },
);

it('JSON Lines have bodies as objects, from chunks and from journals, and why there is none', async () => {
  expect(await linesOf()).toEqual(expected);
});

it('CSV has them as JSON in one cell, which no spreadsheet runs', async () => {
  const text = await textOf({ format: 'csv', requested_data: ['response', 'request'], filters: { page_size: 1 } });
  const cell = (value: unknown) => `"${JSON.stringify(value).replaceAll('"', '""')}"`;
  expect(text).toBe(`"response","request","bodies_reason"\r\n${cell(answered(0))},${cell(askedFor(0))},\r\n`);
});

it('Parquet has them as texts of JSON', async () => {
  const { id } = await mine.run({ requested_data: FIELDS, format: 'parquet' });
  const file = await fileOf(under, await mine.link(id));
  const path = join(under.keeper.dir, 'exported.parquet');
  await writeFile(path, Buffer.from(await file.arrayBuffer()));
  const engine = await openEngine({ memory: '256MB', threads: 1, temporary: under.keeper.dir, ordered: true });
  const connection = await engine.connect();
  const rows = await rowsOf(connection, { sql: `SELECT * FROM read_parquet(${literal(path)})`, values: [] });
  connection.closeSync();
  engine.closeSync();
  const parsed = rows.map((row) => ({
    ...row,
    request: JSON.parse(String(row.request)),
    response: JSON.parse(String(row.response)),
  }));
  expect(parsed).toEqual(expected);
});

it('parts end where they have enough bytes, and the file is the same', async () => {
  const whole = await textOf();
  const small = { partRows: 50, partBytes: 500 };
  under.work(small);
  const { id } = await mine.run({ requested_data: FIELDS });
  expect(await (await fileOf(under, await mine.link(id))).text()).toBe(whole);
});

it('with denied metadata bodies have neither its members nor its values', async () => {
  const { on } = under;
  const { a } = on.admin;
  const member = await on.addUser('member', { [a.workspace_id]: 'member' });
  const made = await on.makeKey('workspace/user', ['logs.view', 'logs.list', 'logs.export'], { user_id: member });
  const own = exportsOf(on.as(made.key), a.workspace_id);
  await setting({ security_settings: { membersViewLogMetadata: false } });
  const lines = await linesOf({}, own);
  await setting({ security_settings: { membersViewLogMetadata: true } });
  expect(lines).toHaveLength(RECORDS);
  const { user: _, ...request } = askedFor(0);
  expect(lines[0]).toEqual({ ...expected[0], request });
  expect(lines[11].response).toEqual({ error: { message: 'limit metadata.team:*** is used up' } });
});

it('bodies past their days are null with the reason, also within a file that was begun before', async () => {
  await setting({ bodies_days: 1 });
  const day = 86_400_000;
  const old = { begin: Date.now() - 2 * day };
  const [record] = await under.write(1, () => ({
    trace_id: 'old',
    time: old.begin,
    said: { request: '{"a":1}', answer: '{}' },
  }));
  const lines = await linesOf({ filters: { trace_id: 'old' } });
  expect(lines).toEqual([{ trace_id: 'old', request: null, response: null, bodies_reason: 'expired' }]);
  expect(record).toBeDefined();
});

it('bodies need the scope logs.view, at each part', async () => {
  const { on } = under;
  const { key, id } = await on.makeKey('workspace/service', ['logs.list', 'logs.export']);
  const body = { filters: {}, requested_data: ['id', 'response'] };
  refused(await on.admin.call('POST', '/v1/logs/exports', { key, body }), 403, 'AB03', 'requested_data');
  const without = { filters: {}, requested_data: ['id'] };
  expect((await on.admin.call('POST', '/v1/logs/exports', { key, body: without })).status).toBe(200);
  expect(id).toEqual(expect.any(String));
  const may = await on.makeKey('workspace/service', ['logs.view', 'logs.list', 'logs.export']);
  const theirs = exportsOf(on.as(may.key), on.admin.a.workspace_id);
  const exportId = await theirs.made({ requested_data: FIELDS });
  await on.admin.tables.systemWrite(async (tx) => {
    await tx.update('api_keys', { id: may.id }, { scopes: ['logs.list', 'logs.export'] });
    await tx.update('log_exports', { id: exportId }, { status: 'in_progress', step: 'begin', runs: 1, due_at: 0 });
  });
  expect(await mine.ended(exportId)).toMatchObject({ status: 'failed', error: { code: 'forbidden' } });
});

it('bodies of a deed that was recorded twice are kept once, those that its record names', async () => {
  const said = { request: '{"n":1}', answer: '{}' };
  const same = { node: 'custom ["again"]', seq: 1, trace_id: 'again', said };
  const [first] = await under.write(1, () => same);
  await under.keeper.keeper.flush();
  const [second] = await under.write(1, () => same);
  const find = ({ id, organisation_id, body_chunk, body_slot }: StoredLog) =>
    under.bodies.find({
      organisationId: String(organisation_id),
      chunk: String(body_chunk),
      slot: Number(body_slot),
      id: String(id),
    });
  if (first === undefined || second === undefined) throw new Error('both were written');
  expect(Object.keys((await find(second))?.bodies ?? {})).toEqual(['request', 'answer']);
  await expect.poll(async () => Object.keys((await find(second))?.bodies ?? {}), { timeout: 10_000 }).toEqual([]);
  expect(Object.keys((await find(first))?.bodies ?? {})).toEqual(['request', 'answer']);
});

it('bodies whose data key is gone are null with the reason, and the file goes on', async () => {
  const { organisation_id } = under.on.admin.a;
  await under.keeper.keeper.flush();
  await under.on.admin.tables.systemWrite((tx) => tx.remove('data_keys', { organisation_id }));
  const lines = await linesOf();
  const { length } = written;
  expect(lines.filter(({ trace_id }) => /^trace/.test(trace_id)).slice(0, length)).toMatchObject(
    expected.map((row, n) =>
      n === 10 ? row : { trace_id: row.trace_id, request: null, response: null, bodies_reason: 'unreadable' },
    ),
  );
});
