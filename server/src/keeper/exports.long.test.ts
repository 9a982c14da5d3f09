/** Parts of exports from a real engine: what is in the files, and that they are the same however they are cut. */
import { createHash } from 'node:crypto';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type KeeperUnderTest, recent, recordOfNow, startKeeper } from '../../test/support/log-keeper.ts';
import { systemClock } from '../kernel/clock.ts';
import { EXPORT_FIELD_IDS, type ExportFile, type ExportPlan } from '../telemetry/log-export.ts';
import type { LogPlace } from '../telemetry/log-query.ts';
import { literal, openEngine, rowsOf } from './engine.ts';
import { KeeperExporter } from './exporter.ts';

const RECORDS = 25;
const PLAN: ExportPlan = {
  format: 'jsonl',
  fields: EXPORT_FIELD_IDS,
  origin: 'https://sluice.example',
  bom: false,
  behind: null,
  skip: 0,
  limit: 1_000,
  bodies: null,
};

let under: KeeperUnderTest;
let exporter: KeeperExporter;
let scratch: string;
/** The numbers of the records and their ids, in order of time. */
let order: number[] = [];
let ids: string[] = [];
beforeAll(async () => {
  under = await startKeeper();
  exporter = new KeeperExporter(under.keeper, join(under.dir, 'logs'), systemClock);
  scratch = await mkdtemp(join(tmpdir(), 'sluice-exports-'));
  const begin = systemClock.now() - 60_000;
  const made: { readonly n: number; readonly place: string; readonly id: string }[] = [];
  for (let n = 0; n < RECORDS; n++) {
    const more = {
      time: begin + Math.floor(n / 3),
      trace_id: `trace ${n}`,
      metadata: { n: String(n), _user: 'ada' },
      path: '/v1/x',
    };
    const record = recordOfNow(n + 1, more);
    made.push({ n, place: `${more.time} ${record.id}`, id: String(record.id) });
    await under.write(record, { ...recordOfNow(100 + n, more), organisation_id: 'org-b', workspace_id: 'ws-b1' });
    // Some in files, the last ones in none.
    if (n % 7 === 6) await under.keeper.flush();
  }
  made.sort((one, other) => (one.place < other.place ? -1 : 1));
  order = made.map(({ n }) => n);
  ids = made.map(({ id }) => id);
}, 60_000);
afterAll(async () => {
  await under.close();
  await rm(scratch, { recursive: true });
});

async function bytesOf(file: ExportFile): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of file.read()) chunks.push(chunk as Buffer);
  await file.remove();
  const bytes = Buffer.concat(chunks);
  expect([file.bytes, file.sha256]).toEqual([bytes.length, createHash('sha256').update(bytes).digest('hex')]);
  return bytes;
}

/** Every part of a file, as bytes. */
async function partsOf(plan: Partial<ExportPlan>): Promise<Buffer[]> {
  const parts: Buffer[] = [];
  for (let behind: LogPlace | null = null; ; ) {
    const part = await exporter.part(recent(), { ...PLAN, ...plan, behind });
    parts.push(await bytesOf(part));
    if (part.next === null) return parts;
    behind = part.next;
  }
}

const linesOf = (parts: readonly Buffer[]) => Buffer.concat(parts).toString().trimEnd().split('\n');

describe('a part of an export', () => {
  it('has the fields that were asked for, in their order, and the rows oldest first', async () => {
    const lines = linesOf(await partsOf({})).map((line) => JSON.parse(line));
    expect(lines.map(({ trace_id }) => trace_id)).toEqual(order.map((n) => `trace ${n}`));
    expect(Object.keys(lines[0])).toEqual([...EXPORT_FIELD_IDS, 'bodies_reason']);
    expect(lines[0]).toMatchObject({
      id: ids[0],
      created_at: expect.stringMatching(/Z$/),
      request: null,
      response: null,
      is_success: expect.any(Boolean),
      request_url: expect.stringMatching(/^https:\/\/sluice\.example\//),
      cost_currency: 'USD',
      metadata: { n: String(order[0]), _user: 'ada' },
    });
    const some = linesOf(await partsOf({ fields: ['cost', 'id'] }));
    expect(Object.keys(JSON.parse(some[0] ?? ''))).toEqual(['cost', 'id']);
  });

  it.each(['jsonl', 'csv'] as const)('%s parts of any size are the same file', async (format) => {
    const whole = Buffer.concat(await partsOf({ format, bom: true }));
    for (const limit of [1, 4, 24, 25, 26]) {
      const parts = await partsOf({ format, bom: true, limit });
      expect(parts).toHaveLength(Math.ceil(RECORDS / limit));
      expect(Buffer.concat(parts).equals(whole)).toBe(true);
    }
  });

  it('leaves out the rows of the pages before', async () => {
    const first = async (skip: number, limit: number) => {
      const part = await exporter.part(recent(), { ...PLAN, fields: ['trace_id'], skip, limit });
      const lines = (await bytesOf(part)).toString().split('\n').slice(0, -1);
      return lines.map((line) => Number(JSON.parse(line).trace_id.slice(6)));
    };
    expect(await first(0, 3)).toEqual(order.slice(0, 3));
    expect(await first(4, 3)).toEqual(order.slice(4, 7));
    expect(await first(24, 3)).toEqual(order.slice(24));
    expect(await first(25, 3)).toEqual([]);
    expect(await first(1_000, 3)).toEqual([]);
  });

  it('of CSV begins with the names of the fields, also without a row, and quotes texts only', async () => {
    const nobody = { ...recent(), from: 0, to: 1 };
    const empty = await exporter.part(nobody, { ...PLAN, format: 'csv', fields: ['id', 'cost'], bom: true });
    expect((await bytesOf(empty)).toString()).toBe('\uFEFF"id","cost"\r\n');
    const [, row] = linesOf(await partsOf({ format: 'csv', fields: ['id', 'response_status_code', 'metadata'] }));
    expect(row).toBe(`"${ids[0]}",200,"{""n"":""${order[0]}"",""_user"":""ada""}"\r`);
  });

  it('Parquet parts are joined to one file of the same rows and typed columns, the same bytes each time', async () => {
    const joined = async () => {
      const parts: ExportFile[] = [];
      for (let behind: LogPlace | null = null; ; ) {
        const part = await exporter.part(recent(), { ...PLAN, format: 'parquet', limit: 4, behind });
        parts.push(part);
        if (part.next === null) break;
        behind = part.next;
      }
      expect(parts).toHaveLength(7);
      const streams = async function* () {
        for (const part of parts) yield part.read();
      };
      const file = await exporter.join(streams());
      const path = join(scratch, `${file.sha256}.parquet`);
      await writeFile(path, await bytesOf(file));
      await Promise.all(parts.map((part) => part.remove()));
      return path;
    };
    const [path, again] = [await joined(), await joined()];
    expect(again).toBe(path);
    const engine = await openEngine({ memory: '256MB', threads: 1, temporary: scratch, ordered: true });
    const connection = await engine.connect();
    const rows = await rowsOf(connection, { sql: `SELECT * FROM read_parquet(${literal(path)})`, values: [] });
    const types = await rowsOf(connection, {
      sql: `DESCRIBE SELECT * FROM read_parquet(${literal(path)})`,
      values: [],
    });
    connection.closeSync();
    engine.closeSync();
    expect(rows.map(({ trace_id }) => trace_id)).toEqual(order.map((n) => `trace ${n}`));
    expect(rows[3]).toMatchObject({ id: ids[3], metadata: { n: String(order[3]), _user: 'ada' }, request: null });
    expect(Object.fromEntries(types.map(({ column_name, column_type }) => [column_name, column_type]))).toMatchObject({
      id: 'VARCHAR',
      created_at: 'TIMESTAMP WITH TIME ZONE',
      is_success: 'BOOLEAN',
      cost: 'DOUBLE',
      total_units: 'BIGINT',
      metadata: 'MAP(VARCHAR, VARCHAR)',
    });
  });

  it('leaves nothing on the disk but the files of the logs', async () => {
    await expect
      .poll(() => readdir(join(under.dir, 'logs')))
      .toEqual(expect.not.arrayContaining([expect.stringMatching(/unfinished/)]));
  });
});
