/** What somebody meets who starts Sluice for the first time: a real process, its terminal, its files, its signals. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { killAll, readFirstRun, runCommand, type ServerProcess, startProcess } from '../support/process.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { keptRecords } from '../support/stored-records.ts';

const run = promisify(execFile);
let dataDir = '';

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'sluice-first-'));
});

afterAll(async () => {
  killAll();
  await rm(dataDir, { recursive: true, force: true });
});

const SLOW = { model: '@sandbox/slow?ttft_ms=1&tokens_per_s=30&tokens=24', stream: true };

async function ask(server: ServerProcess, body: object, headers: Record<string, string> = {}): Promise<Response> {
  const { workspace_api_key } = await readFirstRun(dataDir);
  return fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'x-gateway-api-key': workspace_api_key, 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ messages: [{ role: 'user', content: 'Hello' }], ...body }),
  });
}

/** Waits for the first bytes of an answer; `text` is all of it, later. */
async function begun(answer: Response): Promise<{ readonly text: Promise<string> }> {
  if (answer.body === null) throw new Error('no body');
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = (await reader.read()).value ?? '';
  const rest = async () => {
    for (let part = await reader.read(); !part.done; part = await reader.read()) text += part.value;
    return text;
  };
  return { text: rest() };
}

async function stop(server: ServerProcess): Promise<void> {
  server.child.kill('SIGINT');
  expect(await server.ended).toMatchObject({ code: 0, signal: null });
}

// The tests of this block share one data directory, as the starts of one installation do; their order matters.
describe('starts of one installation', () => {
  let server: ServerProcess;

  it('the first start prints a curl line that works as printed', async () => {
    server = await startProcess(dataDir);
    const curl = /^ +(curl [\s\S]+?\}')$/m.exec(server.out)?.[1];
    expect(curl, server.out).toBeDefined();
    const { stdout } = await run('sh', ['-c', `${curl} --silent`]);
    expect(stdout).toContain('"chat.completion.chunk"');
    expect(stdout.endsWith('data: [DONE]\n\n')).toBe(true);
  });

  it('what is printed where the output is no terminal holds no key and no sign-in link', async () => {
    expect(server.out).toContain(join(dataDir, 'first-run.json'));
    expect(server.out).not.toMatch(/slc_[a-z]{3}_|\/console\/\S*[#?=]/);
  });

  it('port 0 picks a free port, which the banner and first-run.json name', async () => {
    const { port } = new URL(server.url);
    expect(Number(port)).toBeGreaterThan(0);
    expect((await readFirstRun(dataDir)).base_url).toBe(`${server.url}/v1`);
    expect((await fetch(`${server.url}/readyz`)).status).toBe(200);
  });

  it('first-run.json is readable by its owner only and holds ids, keys and the sign-in link', async () => {
    expect(((await stat(join(dataDir, 'first-run.json'))).mode & 0o777).toString(8)).toBe('600');
    expect(((await stat(join(dataDir, 'master.key'))).mode & 0o077).toString(8)).toBe('0');
    const first = await readFirstRun(dataDir);
    expect(Object.keys(first).sort()).toEqual([
      'admin_api_key',
      'base_url',
      'console_url',
      'operator_api_key',
      'organisation_id',
      'user_id',
      'workspace_api_key',
      'workspace_id',
      'workspace_slug',
    ]);
  });

  it('a second server on the same data directory is refused in one line', async () => {
    const ended = await runCommand(['serve'], { SLUICE_DATA_DIR: dataDir, SLUICE_PORT: '0' }, dataDir);
    expect(ended.code).toBe(2);
    expect(ended.err).toBe(
      `sluice: Another Sluice server is using the data directory ${dataDir}. Stop it, or give this one another directory with SLUICE_DATA_DIR.\n`,
    );
  });

  it('kill -9 loses no record whose answer was complete, and the next start prints no keys', async () => {
    for (let i = 0; i < 5; i++)
      await (await ask(server, { model: '@sandbox/echo' }, { 'x-gateway-trace-id': `kill-${i}` })).text();
    server.child.kill('SIGKILL');
    expect(await server.ended).toMatchObject({ signal: 'SIGKILL' });
    server = await startProcess(dataDir, { SLUICE_DRAIN_SECONDS: '2' });
    const first = await readFirstRun(dataDir);
    for (const secret of [first.admin_api_key, first.workspace_api_key, first.operator_api_key, first.console_url])
      expect(server.out).not.toContain(secret);
    expect(server.out).not.toContain('slc_');
    expect((await ask(server, { model: '@sandbox/echo' })).status).toBe(200);
  });

  it('SIGTERM lets a running stream end, is not ready meanwhile, and exits with 0', async () => {
    const { text } = await begun(await ask(server, SLOW));
    server.child.kill('SIGTERM');
    let ready = 200;
    while (ready === 200) ready = (await fetch(`${server.url}/readyz`)).status;
    expect(ready).toBe(503);
    expect((await fetch(`${server.url}/healthz`)).status).toBe(200);
    const whole = await text;
    expect(whole.endsWith('data: [DONE]\n\n')).toBe(true);
    expect(whole).not.toContain('"error"');
    expect(await server.ended).toMatchObject({ code: 0, signal: null });
    const { organisation_id, workspace_id } = await readFirstRun(dataDir);
    const rows = await keptRecords({ dataDir }, organisation_id, workspace_id);
    const traces = rows.map((row) => String(row.trace_id));
    for (let i = 0; i < 5; i++) expect(traces.filter((trace) => trace === `kill-${i}`)).toHaveLength(1);
    expect(rows[0]).toMatchObject({ stream: true, outcome: 'ok', status: 200 });
  });

  it('SIGINT ends at once when it comes twice', async () => {
    server = await startProcess(dataDir);
    const { text } = await begun(await ask(server, { ...SLOW, model: '@sandbox/stall?ms=60000&after_tokens=1' }));
    const cut = expect(text).rejects.toThrow();
    server.child.kill('SIGINT');
    while ((await fetch(`${server.url}/readyz`).catch(() => null))?.status === 200);
    server.child.kill('SIGINT');
    expect(await server.ended).toMatchObject({ code: 130 });
    await cut;
  });

  it('SIGINT alone stops an idle server at once', async () => {
    await stop(await startProcess(dataDir));
  });

  it('a database of a newer version is refused in one line', async () => {
    const database = new DatabaseSync(join(dataDir, 'control.db'), { timeout: 5_000 });
    const table = database
      .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE '%migrations%'")
      .get();
    database.exec(`INSERT INTO ${String(table?.name)} (name, checksum) VALUES ('9999_later', 'x')`);
    database.close();
    const ended = await runCommand(['serve'], { SLUICE_DATA_DIR: dataDir, SLUICE_PORT: '0' }, dataDir);
    expect(ended.code).not.toBe(0);
    expect(ended.err).toMatch(
      /^sluice: The database has migration 9999_later, which this version does not know\. .+\n$/,
    );
  });
});

describe('a start that cannot work', () => {
  it.each([
    ['SLUICE_PORT', '70000', 'a whole number from 0 to 65535'],
    ['SLUICE_LOG_LEVEL', 'loud', 'debug, info, warn or error'],
    ['SLUICE_ROLES', 'gateway,cook', 'a comma-separated list of gateway, admin, jobs'],
    ['BLOCK_INLINE_CONFIG', 'yes', 'true or false'],
  ])('%s=%s stops it with one line that names variable, value and what is allowed', async (name, value, allowed) => {
    const ended = await runCommand(['serve'], { SLUICE_DATA_DIR: dataDir, [name]: value }, tmpdir());
    expect(ended).toMatchObject({ code: 2, out: '', err: `sluice: ${name} is "${value}"; allowed is ${allowed}\n` });
  });

  it('an old Node.js is refused in one line', async () => {
    const old = "Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '22.11.0' } })";
    const ended = await runCommand(['serve'], {}, tmpdir(), [
      '--import',
      `data:text/javascript,${encodeURIComponent(old)}`,
    ]);
    expect(ended.code).toBe(1);
    expect(ended.err).toMatch(/^Sluice needs Node\.js 24 or newer; this is 22\.11\.0\. [^\n]+\n$/);
  });
});

describe('several organisations', () => {
  let server: TestServer;
  let other: Record<string, string>;

  beforeAll(async () => {
    server = await startServer();
    const body = { name: 'Second', owner: { email: 'eve@example.com', first_name: 'Eve', last_name: 'Second' } };
    const made = await server.admin('POST', '/operator/organisations', body, server.first.operator_api_key);
    expect(made.status, JSON.stringify(made.body)).toBe(200);
    other = made.body as Record<string, string>;
  });

  afterAll(() => server?.stop());

  const echo = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello' }] };
  const call = (headers: Record<string, string> = {}, body: object = echo) =>
    server.call('/chat/completions', body, { 'x-gateway-api-key': String(other.workspace_api_key), ...headers });

  it('the keys of an organisation the operator made work at once', async () => {
    expect((await call()).status).toBe(200);
    expect((await server.admin('GET', '/configs', undefined, other.admin_api_key)).status).toBe(200);
  });

  it.each([
    ['inline_config_blocked', 'x-gateway-config', '{"retry":{"attempts":1}}'],
    ['inline_provider_blocked', 'x-gateway-provider', 'openai'],
    ['inline_custom_host_blocked', 'x-gateway-custom-host', 'https://example.com/v1'],
    ['inline_provider_url_blocked', 'x-gateway-azure-resource-name', 'mine'],
    ['inline_forward_headers_blocked', 'x-gateway-forward-headers', 'x-a'],
  ])('they allow saved objects only: %s for %s', async (code, field, value) => {
    const answer = await call({ [field]: value });
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ status: 'failure', error: { code, field } });
    // The organisation of the first run is free to try things.
    const free = await server.call('/chat/completions', echo, { [field]: value, authorization: 'Bearer sk-x' });
    expect(await free.text()).not.toContain('_blocked');
  });

  it('suspending an organisation answers 403 within a second, for its keys only, until it is active again', async () => {
    expect((await call()).status).toBe(200);
    const set = (status: string) =>
      server.admin(
        'PUT',
        `/operator/organisations/${other.organisation_id}`,
        { status },
        server.first.operator_api_key,
      );
    for (const [status, wanted] of [
      ['suspended', 403],
      ['active', 200],
    ] as const) {
      expect((await set(status)).status).toBe(200);
      const until = performance.now() + 1_000;
      let seen = 0;
      do seen = (await call()).status;
      while (seen !== wanted && performance.now() < until);
      expect(seen).toBe(wanted);
      expect((await server.call('/chat/completions', echo)).status).toBe(200);
    }
  });
});

describe('BLOCK_INLINE_CONFIG', () => {
  it('true allows saved objects only, for every organisation, and the banner does not say it is off', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'sluice-blocked-'));
    const server = await startProcess(directory, { BLOCK_INLINE_CONFIG: 'true' });
    try {
      const first = await readFirstRun(directory);
      const answer = await fetch(`${server.url}/v1/chat/completions`, {
        method: 'POST',
        headers: {
          'x-gateway-api-key': first.workspace_api_key,
          'content-type': 'application/json',
          'x-gateway-provider': 'openai',
          authorization: 'Bearer sk-x',
        },
        body: '{"model":"m","messages":[]}',
      });
      expect(answer.status).toBe(400);
      expect(await answer.json()).toMatchObject({ error: { code: 'inline_provider_blocked' } });
      expect(server.out).not.toContain('block_inline_config is off');
    } finally {
      await stop(server);
      await rm(directory, { recursive: true, force: true });
    }
  });
});
