/** The snippets of the page Connect, run as they are shown against a whole server. */
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { clients } from '../../../console/src/pages/connect/clients.ts';
import { startServer, type TestServer } from '../support/server.ts';

const PROMPT = `It's "quoted" \\ $HOME \`id\` 100%`;
const hasCurl = spawnSync('sh', ['-c', 'curl --version']).status === 0;
// Inside the repository, so that the SDKs are found from here.
const folder = mkdtempSync(path.join(import.meta.dirname, '.connect-'));
let server: TestServer;

beforeAll(async () => {
  server = await startServer();
});
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  await server.stop();
});

function run(command: string, args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, SLUICE_API_KEY: server.first.workspace_api_key };
    const child = spawn(command, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    const out: Buffer[] = [];
    const err: Buffer[] = [];
    child.stdout.on('data', (data: Buffer) => out.push(data));
    child.stderr.on('data', (data: Buffer) => err.push(data));
    child.on('error', reject);
    child.on('exit', (code) =>
      code === 0 ? resolve(Buffer.concat(out).toString()) : reject(new Error(Buffer.concat(err).toString())),
    );
  });
}

const codeOf = (id: string) =>
  clients({ baseUrl: `${server.url}/v1`, model: '@sandbox/echo', prompt: PROMPT }).find((one) => one.id === id)?.code ??
  '';

test.skipIf(!hasCurl)('the curl snippet, pasted into a shell, prints the stream of the sandbox', async () => {
  const out = await run('sh', ['-c', codeOf('curl')]);
  const texts = [...out.matchAll(/^data: (\{.*\})$/gm)].map(([, json = '{}']) => {
    const { choices } = JSON.parse(json) as { choices: { delta: { content?: string } }[] };
    return choices[0]?.delta.content ?? '';
  });
  expect(texts.join('')).toBe(PROMPT);
  expect(out).toContain('data: [DONE]');
});

test.each(['typescript', 'anthropic'])('the %s snippet, saved as a file, prints the answer', async (id) => {
  const file = path.join(folder, `${id}.mts`);
  writeFileSync(file, codeOf(id));
  expect(await run(process.execPath, [file])).toBe(PROMPT);
});

test('no snippet holds a key, and each names the address and the model', () => {
  const all = clients({ baseUrl: 'https://sluice.example/v1', model: '@a/b', prompt: 'Hi' });
  expect(all.map(({ id }) => id)).toEqual([
    ...['curl', 'python', 'typescript', 'anthropic', 'vercel', 'langchain', 'claude-code', 'codex', 'cursor'],
  ]);
  for (const { code } of all) {
    expect(code).toMatch(/https:\/\/sluice\.example/);
    expect(code).toContain('@a/b');
    expect(code).toContain('SLUICE_API_KEY');
    expect(code).not.toMatch(/slc_/);
  }
});
