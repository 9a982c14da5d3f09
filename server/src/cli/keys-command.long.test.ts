/** `sluice operator-key` and `sluice master-key` beside a running server. */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';
import { createLogger } from '../telemetry/logger.ts';

const BIN = join(import.meta.dirname, '../../bin/sluice.mjs');
let server: TestServer;

const lines: string[] = [];
const log = createLogger({ level: 'warn', format: 'json', write: (line) => lines.push(line) });

beforeAll(async () => {
  server = await startServer({}, {}, log);
  await server.provider({ id: 'openai', host: 'https://h.example/v1' });
});
afterAll(() => server?.stop());

const run = (args: readonly string[], more: Record<string, string> = {}) =>
  new Promise<{ code: number | string; out: string; err: string }>((resolve) => {
    const options = { env: { PATH: process.env.PATH, SLUICE_DATA_DIR: server.dataDir, ...more } };
    execFile(process.execPath, [BIN, ...args], options, (error, out, err) =>
      resolve({ code: error?.code ?? 0, out, err }),
    );
  });
const works = async (key: string) => (await server.admin('GET', '/operator/organisations', undefined, key)).status;

it('an operator key is rotated with both valid, and revoked for the running server', async () => {
  const old = server.first.operator_api_key;
  const id = old.slice(8, 20);
  expect(await works(old)).toBe(200);
  expect(await run(['operator-key', 'revoke', id])).toMatchObject({
    code: 2,
    err: expect.stringContaining('only operator key'),
  });
  const made = (await run(['operator-key', 'rotate'])).out.trim();
  expect([await works(made), await works(old)]).toEqual([200, 200]);
  const listed = (await run(['operator-key', 'list'])).out;
  expect(listed).toContain(id);
  expect(listed).not.toContain(made);
  expect(await run(['operator-key', 'revoke', id])).toMatchObject({ code: 0 });
  await expect.poll(() => works(old), { timeout: 20_000 }).toBe(401);
  expect(await works(made)).toBe(200);
});

it('the log of the running server names the operator keys that were added and revoked, and holds none', async () => {
  const before = lines.length;
  const made = (await run(['operator-key', 'rotate'])).out.trim();
  const id = made.slice(8, 20);
  const noted = () =>
    lines.slice(before).filter((line) => line.includes('operator key was') && line.includes(id)).length;
  await expect.poll(noted, { timeout: 20_000 }).toBe(1);
  await run(['operator-key', 'revoke', id]);
  await expect.poll(noted, { timeout: 20_000 }).toBe(2);
  expect(lines.join()).not.toContain(made);
});

it('data keys are wrapped with the newest master key, and the old one is needed no longer', async () => {
  const old = (await readFile(join(server.dataDir, 'master.key'), 'utf8')).trim();
  const next = randomBytes(32).toString('base64');
  const both = { SLUICE_MASTER_KEY: `${next},${old}` };
  expect((await run(['master-key', 'rewrap'], both)).out).toMatch(
    /^1 data keys are wrapped[\s\S]*: 1 data keys\n[\s\S]*: 0 data keys\n$/,
  );
  expect(await run(['master-key', 'status'], { SLUICE_MASTER_KEY: next })).toMatchObject({ code: 0 });
  expect(await run(['master-key', 'status'], { SLUICE_MASTER_KEY: old })).not.toMatchObject({ code: 0 });
  expect(await run(['master-key', 'nothing'])).toMatchObject({ code: 2, err: expect.stringContaining('usage') });
});
