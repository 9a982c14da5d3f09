/** Revocation on the processes of one port: what one takes away, all refuse within a second. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readFirstRun, startProcess } from '../support/process.ts';
import { chat, keepAsking, means, report, SECOND } from '../support/revocation.ts';

describe('on every process of one port (SLUICE_WORKERS)', () => {
  it('deleted keys are refused within a second, and no good key is', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'sluice-revocation-'));
    const server = await startProcess(folder, {
      SLUICE_WORKERS: '2',
      SLUICE_ADMIN_REQUESTS_PER_MINUTE: '1000000',
    });
    try {
      const { admin_api_key, workspace_api_key, workspace_id } = await readFirstRun(folder);
      // A connection of its own each time, so that the calls spread over the processes.
      const call = async (method: string, path: string, key: string, body?: unknown) => {
        const answer = await fetch(`${server.url}/v1${path}`, {
          method,
          headers: { 'x-gateway-api-key': key, connection: 'close', 'content-type': 'application/json' },
          ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        });
        return { status: answer.status, body: (await answer.json()) as Record<string, string> };
      };
      const ask = async (key: string) => (await call('POST', '/chat/completions', key, chat)).status;
      let over = false;
      const good = keepAsking(
        () => ask(workspace_api_key),
        () => over,
      );
      const lags: number[] = [];
      for (let round = 0; round < 20; round++) {
        const made = await call('POST', '/api-keys/workspace/service', admin_api_key, {
          name: 'short',
          workspace_id,
          scopes: ['completions.write'],
        });
        const { id = '', key = '' } = made.body;
        const warm = await Promise.all(Array.from({ length: 6 }, () => ask(key)));
        expect(warm.filter((status) => status !== 200)).toEqual([]);
        expect((await call('DELETE', `/api-keys/${id}`, admin_api_key)).status).toBe(200);
        const since = performance.now();
        for (;;) {
          const sent = performance.now();
          const answers = await Promise.all(Array.from({ length: 6 }, () => ask(key)));
          if (answers.every((status) => means(status, 401))) break;
          lags.push(sent - since);
          expect(sent - since).toBeLessThanOrEqual(SECOND);
        }
      }
      over = true;
      report('deleted keys, two processes on one port', lags.length === 0 ? [0] : lags);
      expect((await good).filter((status) => status !== 200)).toEqual([]);
    } finally {
      server.child.kill('SIGTERM');
      await server.ended;
      await rm(folder, { recursive: true, force: true });
    }
  }, 60_000);
});
