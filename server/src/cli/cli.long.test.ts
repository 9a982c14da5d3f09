/** The commands of `npm run sluice`, as real processes: what they print, and what they do beside a running server. */
import { copyFile, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { killAll, readFirstRun, runCommand, type ServerProcess, startProcess } from '../../test/support/process.ts';

const SECRET = 'sk-a-stored-credential';
let dataDir = '';
let server: ServerProcess;
const folders: string[] = [];

async function folder(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'sluice-cli-'));
  folders.push(dir);
  return dir;
}

beforeAll(async () => {
  dataDir = await folder();
  server = await startProcess(dataDir, { SLUICE_LOG_LEVEL: 'info', SLUICE_PORRT: '1' });
});

afterAll(async () => {
  killAll();
  for (const dir of folders) await rm(dir, { recursive: true, force: true });
});

const sluice = (args: string[], env: Record<string, string> = {}) =>
  runCommand(args, { SLUICE_DATA_DIR: dataDir, ...env }, dataDir);

async function call(url: string, path: string, key: string, body?: unknown) {
  const answer = await fetch(`${url}/v1${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'x-gateway-api-key': key, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
}

const chat = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello' }] };

// Commands of their own, which change nothing: several at a time.
describe.concurrent('what is printed', () => {
  it('without a word it is the help, and nothing is started', async () => {
    const ended = await sluice([]);
    expect(ended).toMatchObject({ code: 0, err: '' });
    expect(ended.out).toMatch(/npm start .*\n.*sluice -- check/);
  });

  it('--version is one line', async () => {
    const { version } = JSON.parse(await readFile(new URL('../../package.json', import.meta.url), 'utf8')) as {
      version: string;
    };
    for (const ended of await Promise.all([sluice(['--version']), sluice(['version'])]))
      expect(ended).toMatchObject({
        code: 0,
        out: `sluice ${version} (Node.js ${process.versions.node})\n`,
        err: '',
      });
  });

  it('a command that is misspelt is told with the nearest one', async () => {
    const ended = await sluice(['bakcup']);
    expect(ended.code).toBe(2);
    expect(ended.err).toBe('bakcup is not a command of Sluice; did you mean backup?\n');
  });

  it('check prints each setting, where it comes from, and warns of variables that are none', async () => {
    const ended = await sluice(['check', '--port', '0'], { SLUICE_LOG_LEVLE: 'debug' });
    expect(ended.code).toBe(0);
    expect(ended.out).toMatch(/^SLUICE_PORT +0 {2}\[flag\]$/m);
    expect(ended.out).toMatch(/^SLUICE_DATA_DIR +\/.* {2}\[environment\]$/m);
    expect(ended.out).toMatch(/^SLUICE_REDIS_URL +\(not set\) {2}\[default\]$/m);
    expect(ended.err).toBe(
      'warning: the variable SLUICE_LOG_LEVLE is not a setting and is ignored; did you mean SLUICE_LOG_LEVEL?\n',
    );
  });

  it('check and a start refuse the same keys with the same words, from a variable and from a file', async () => {
    const dir = await folder();
    await writeFile(join(dir, 'keys'), 'c2hvcnQ=\n');
    const keys = [
      ['SLUICE_MASTER_KEY', 'c2hvcnQ='],
      ['SLUICE_MASTER_KEY_FILE', join(dir, 'keys')],
    ] as const;
    for (const [name, value] of keys) {
      const given = { SLUICE_DATA_DIR: join(dir, 'data'), SLUICE_PORT: '0', [name]: value };
      const [checked, started] = await Promise.all(['check', 'serve'].map((one) => runCommand([one], given, dir)));
      expect(checked?.err).toMatch(/^sluice: \S+ holds a key that is too short; [^\n]+\n$/);
      expect(checked).toEqual({ ...started, out: '' });
      expect(checked?.code).toBe(2);
    }
  });

  it('the first start logs no migrations, and warns of a variable that is no setting', () => {
    expect(server.out).not.toContain('migration');
    expect(server.out).toContain(
      'the variable SLUICE_PORRT is not a setting and is ignored; did you mean SLUICE_PORT?',
    );
  });
});

describe('beside a running server', () => {
  it('every file of the data directory is for its owner alone', async () => {
    for (const name of await readdir(dataDir, { recursive: true })) {
      const found = await stat(join(dataDir, name)).catch(() => null);
      if (found !== null) expect([name, found.mode & 0o077]).toEqual([name, 0]);
    }
  });

  it('keys create makes a key that works at once, prints it alone on standard output, and leaves an audit row', async () => {
    const first = await readFirstRun(dataDir);
    const made = await sluice(['keys', 'create', '--workspace', first.workspace_slug, '--name', 'rescue']);
    expect(made, made.err).toMatchObject({ code: 0 });
    const key = made.out.trimEnd();
    expect(key).toMatch(/^slc_wks_\S+$/);
    expect((await call(server.url, '/chat/completions', key, chat)).status).toBe(200);
    const admin = (await sluice(['keys', 'create', `--organisation=${first.organisation_id}`])).out.trimEnd();
    expect((await call(server.url, '/admin/workspaces', admin)).status).toBe(200);
    const audit = await call(
      server.url,
      '/audit-logs?start_time=2026-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z',
      first.admin_api_key,
    );
    expect(JSON.stringify(audit.body)).toContain('rescue');
    expect(JSON.stringify(audit.body)).not.toContain(key);
    expect((await sluice(['audit', 'verify'])).code).toBe(0);
  });

  it('backup copies a node under load; a server on the copy knows keys, credentials, records and files of before', async () => {
    const first = await readFirstRun(dataDir);
    const { workspace_api_key: key, admin_api_key: admin } = first;
    const made = await call(server.url, '/integrations', admin, {
      name: 'kept',
      slug: 'kept',
      ai_provider_id: 'openai',
      key: SECRET,
      workspace_id: first.workspace_id,
    });
    expect(made.status, JSON.stringify(made.body)).toBe(200);
    const form = new FormData();
    form.set('purpose', 'batch');
    form.set(
      'file',
      new Blob(['{"custom_id":"1","method":"POST","url":"/v1/chat/completions","body":{"model":"x"}}\n']),
      'a.jsonl',
    );
    const upload = await fetch(`${server.url}/v1/files`, {
      method: 'POST',
      headers: { 'x-gateway-api-key': key, 'x-gateway-provider': 'gateway' },
      body: form,
    });
    const file = (await upload.json()) as { id: string };
    expect(upload.status, JSON.stringify(file)).toBe(200);
    const before: string[] = [];
    let running = true;
    const load = Array.from({ length: 4 }, async (_, lane) => {
      for (let i = 0; running; i++) {
        const trace = `b-${lane}-${i}`;
        const answer = await fetch(`${server.url}/v1/chat/completions`, {
          method: 'POST',
          headers: { 'x-gateway-api-key': key, 'content-type': 'application/json', 'x-gateway-trace-id': trace },
          body: JSON.stringify(chat),
        });
        await answer.text();
        if (answer.status === 200) before.push(trace);
      }
    });
    while (before.length < 50) await new Promise((resolve) => setImmediate(resolve));
    const known = [...before];
    const target = join(await folder(), 'copy');
    const link = join(await folder(), 'link');
    await symlink(join(dataDir, 'spool'), link);
    for (const inside of [join(dataDir, 'copy'), join(dataDir, 'a', 'b'), join(link, 'copy')]) {
      const refused = await sluice(['backup', inside]);
      expect(refused).toMatchObject({ code: 2, out: '' });
      expect(refused.err).toMatch(
        /^sluice: \S+ is inside the data directory \S+, and would be lost with it\. [^\n]+\n$/,
      );
    }
    const ended = await sluice(['backup', target]);
    running = false;
    await Promise.all(load);
    expect(ended, ended.err).toMatchObject({ code: 0, err: '' });
    expect(ended.out).toContain(`keep ${join(dataDir, 'master.key')} in another place`);

    expect((await readdir(target)).sort()).toEqual(['blobs', 'control.db', 'logs', 'node-id', 'spool']);
    for (const name of await readdir(target, { recursive: true }))
      expect([name, (await stat(join(target, name))).mode & 0o077]).toEqual([name, 0]);
    expect((await sluice(['backup', target])).err).toContain('exists already');
    const without = await runCommand(['serve'], { SLUICE_DATA_DIR: target, SLUICE_PORT: '0' }, target);
    expect(without).toMatchObject({ code: 2, out: '' });
    expect(without.err).toMatch(/^sluice: \S+master\.key does not exist, and the store is in use already\. [^\n]+\n$/);

    await copyFile(join(dataDir, 'master.key'), join(target, 'master.key'));
    const restored = await startProcess(target);
    expect((await call(restored.url, '/chat/completions', key, chat)).status).toBe(200);
    const content = await fetch(`${restored.url}/v1/files/${file.id}/content`, {
      headers: { 'x-gateway-api-key': key },
    });
    expect(await content.text()).toContain('custom_id');
    // The stored credential opens: the call leaves for its provider, which no test reaches.
    const dry = await fetch(`${restored.url}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        'x-gateway-api-key': key,
        'content-type': 'application/json',
        'x-gateway-dry-run': 'true',
        'x-gateway-provider': '@kept',
      },
      body: JSON.stringify({ ...chat, model: 'gpt-4o' }),
    });
    expect([dry.status, await dry.text()]).toEqual([200, expect.stringContaining('openai')]);
    restored.child.kill('SIGINT');
    expect(await restored.ended).toMatchObject({ code: 0 });
    const { keptRecords } = await import('../../test/support/stored-records.ts');
    const rows = await keptRecords({ dataDir: target }, first.organisation_id, first.workspace_id);
    const traces = rows.map((row) => String(row.trace_id));
    expect(known.filter((trace) => traces.filter((one) => one === trace).length !== 1)).toEqual([]);
  }, 90_000);
});

describe.concurrent('beside a running server, without a change', () => {
  it.each([
    [['keys'], 'usage: npm run sluice -- keys create'],
    [['keys', 'create'], 'usage: npm run sluice -- keys create'],
    [['keys', 'create', '--workspace', 'nowhere'], 'There is no workspace nowhere.'],
    [['keys', 'create', '--workspace'], '--workspace needs one value.'],
    [['backup'], 'usage: npm run sluice -- backup'],
  ])('%j is refused in one line', async (args, says) => {
    const ended = await sluice(args);
    expect(ended).toMatchObject({ code: 2, out: '' });
    expect(ended.err).toMatch(/^sluice: [^\n]+\n$/);
    expect(ended.err).toContain(says);
  });

  it('doctor finds nothing wrong, and changes nothing', async () => {
    const ended = await sluice(['doctor']);
    expect(ended, ended.out).toMatchObject({ code: 0, err: '' });
    expect(ended.out).not.toContain('FAIL');
    for (const check of ['configuration', 'data directory', 'store', 'master key'])
      expect(ended.out).toMatch(new RegExp(`^ok +${check} `, 'm'));
  });

  it('doctor names a master key that does not fit, with exit code 1', async () => {
    const ended = await sluice(['doctor'], { SLUICE_MASTER_KEY: 'uT6Kd9cXo0bSg3V1mYw7Rj2nZq8LhPeA5fEiNtHxJ4M=' });
    expect(ended.code).toBe(1);
    expect(ended.out).toMatch(/^FAIL +master key +The store was sealed with master key [0-9a-f]{16},/m);
  });
});

describe.concurrent('without a server', () => {
  it('commands take flags before words, and name the running server in links', async () => {
    const target = join(await folder(), 'copy');
    expect(await sluice(['backup', '--data-dir', dataDir, target])).toMatchObject({ code: 0, err: '' });
    const link = await runCommand(['console-link', '--data-dir', dataDir], {}, dataDir);
    expect(link.out).toContain(`${server.url}/console/sign-in#`);
  });

  it('a backup needs no PostgreSQL that answers; every other command says in one line that it is away', async () => {
    const away = { SLUICE_DATABASE_URL: 'postgres://u:p@127.0.0.1:1/x' };
    const target = join(await folder(), 'copy');
    expect(await sluice(['backup', target], away)).toMatchObject({ code: 0, err: '' });
    for (const words of [['console-link'], ['audit', 'verify'], ['keys', 'create', '--organisation', 'x']]) {
      const { code, err } = await sluice(words, away);
      expect([code, err.trim().split('\n').length], err).toEqual([2, 1]);
      expect(err).toContain('Start it, or correct SLUICE_DATABASE_URL.');
    }
  });

  it('backup and keys create make nothing where there is no installation', async () => {
    const dir = await folder();
    const commands = [
      ['backup', join(dir, 'copy')],
      ['keys', 'create', '--workspace', 'x'],
    ].map((args) => runCommand(args, { SLUICE_DATA_DIR: join(dir, 'data') }, dir));
    for (const ended of await Promise.all(commands)) {
      expect(ended.code).toBe(2);
      expect(ended.err).toMatch(/^sluice: There is no \S+control\.db: [^\n]+\n$/);
    }
    expect(await readdir(dir)).toEqual([]);
  });

  it('doctor says what is wrong with each setting', async () => {
    const dir = await folder();
    await writeFile(join(dir, 'sluice.config.json'), '{"SLUICE_PORT": "x", "SLUICE_WORKERS": 0}');
    const ended = await runCommand(['doctor'], {}, dir);
    expect(ended.code).toBe(1);
    expect(ended.out).toMatch(/^FAIL +configuration +SLUICE_PORT is "x"; allowed is/m);
    expect(ended.out).toMatch(/^FAIL +configuration +SLUICE_WORKERS is "0"; allowed is/m);
  });

  it('a data directory that is none, or that cannot be made, is refused by a start and by doctor in one line', async () => {
    const dir = await folder();
    await writeFile(join(dir, 'file'), '');
    const given = { SLUICE_DATA_DIR: join(dir, 'file'), SLUICE_PORT: '0' };
    const says = `The data directory ${given.SLUICE_DATA_DIR} cannot be used (${given.SLUICE_DATA_DIR} is not a directory). Point SLUICE_DATA_DIR at a directory on a local disk that this user may write.`;
    const started = await runCommand(['serve'], given, dir);
    expect(started).toMatchObject({ code: 2, out: '', err: `sluice: ${says}\n` });
    const { code, out } = await runCommand(['doctor'], given, dir);
    expect(code).toBe(1);
    expect(out.match(/^(?:FAIL|warn).*$/gm)?.filter((line) => !line.includes('console'))).toEqual([
      `FAIL  data directory  ${says}`,
    ]);
    if (process.platform !== 'linux') return;
    const ended = await runCommand(['serve'], { SLUICE_DATA_DIR: '/proc/x', SLUICE_PORT: '0' }, dir);
    expect(ended).toMatchObject({ code: 2, out: '' });
    expect(ended.err).toMatch(
      /^sluice: The data directory \/proc\/x cannot be used \(no directory can be made in \/proc\)\. .+\n$/,
    );
  });
});
