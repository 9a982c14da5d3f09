/** How a server ends that a supervisor started: by the command of docs/guides/operations.md, by npm, from a shell that goes. */
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, expect, it } from 'vitest';
import { killAll, readFirstRun, type ServerProcess, startByCommand, startByNpm } from '../support/process.ts';

let dataDir = '';
let command = '';

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'sluice-supervisor-'));
  const guide = await readFile(new URL('../../../docs/guides/operations.md', import.meta.url), 'utf8');
  command = /^(\S*node --max-semi-space-size=8 server\/bin\/start\.mjs)$/m.exec(guide)?.[1] ?? '';
  expect(command).not.toBe('');
});

afterEach(async () => {
  await rm(dataDir, { recursive: true, force: true });
});

afterAll(killAll);

/** A stream of three quarters of a second that has begun; `text` is all of it. */
async function stream(server: ServerProcess): Promise<{ readonly text: Promise<string> }> {
  const { workspace_api_key } = await readFirstRun(dataDir);
  const answer = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'x-gateway-api-key': workspace_api_key, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: '@sandbox/slow?ttft_ms=1&tokens_per_s=40&tokens=30',
      stream: true,
      messages: [{ role: 'user', content: 'Hello' }],
    }),
  });
  expect(answer.status).toBe(200);
  return { text: answer.text() };
}

it('the command of the guide lets a running stream end on SIGTERM, and ends after it with 0', async () => {
  const server = await startByCommand(command, dataDir, { SLUICE_DRAIN_SECONDS: '10' });
  const { text } = await stream(server);
  let whole: string | null = null;
  void text.then((said) => (whole = said));
  server.child.kill('SIGTERM');
  expect(await server.ended).toMatchObject({ code: 0, signal: null, err: expect.not.stringContaining('npm') });
  expect(whole).toMatch(/data: \[DONE\]\n\n$/);
});

it('npm ends at SIGTERM before the server does, and the server says that requests may still run and then ends them', async () => {
  const server = await startByNpm(dataDir, { SLUICE_DRAIN_SECONDS: '2', SLUICE_LOG_LEVEL: 'info' });
  const { text } = await stream(server);
  server.child.kill('SIGTERM');
  expect((await once(server.child, 'exit'))[1]).toBe('SIGTERM');
  expect(await text).toMatch(/data: \[DONE\]\n\n$/);
  const { out, err } = await server.ended;
  expect(err).toMatch(/^npm has ended, and process \d+ may still be finishing requests\. [^\n]+operations\.md\)\.$/m);
  expect(out).toContain('"msg":"draining"');
});

it('a server that a shell started in the background outlives the shell', async () => {
  const server = await startByCommand(`sh -c '${command} & echo server $!; wait'`, dataDir);
  const pid = Number(/^server (\d+)$/m.exec(server.out)?.[1]);
  try {
    server.child.kill('SIGKILL');
    await once(server.child, 'exit');
    // The look at the parent comes four times a second.
    const until = performance.now() + 1_000;
    while (performance.now() < until) expect((await fetch(`${server.url}/readyz`)).status).toBe(200);
  } finally {
    process.kill(pid, 'SIGINT');
    await server.ended;
  }
});
