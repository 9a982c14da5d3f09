/** What a whole node does while its disk takes no records, and how it returns. */
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { afterEach, describe, expect, it } from 'vitest';
import { eventually } from '../../../test/support/budgets.ts';
import { startServer, type TestServer } from '../../../test/support/server.ts';

const { writeSync } = fs;
/** For every file that is written by `writeSync`: of this process, the journals alone. */
function setDisk(full: boolean): void {
  fs.writeSync = (
    full
      ? () => {
          throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
        }
      : writeSync
  ) as typeof fs.writeSync;
  syncBuiltinESMExports();
}
afterEach(() => setDisk(false));

const BODY = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hi' }] };
const ask = async (server: TestServer, headers: Record<string, string> = {}) => {
  const answer = await server.call('/chat/completions', BODY, headers);
  return { status: answer.status, wait: answer.headers.get('retry-after'), text: await answer.text() };
};
const readyz = async ({ url }: TestServer): Promise<Record<string, unknown>> => {
  const answer = await fetch(`${url}/readyz`);
  const { dependencies } = (await answer.json()) as { dependencies: Record<string, string> };
  return { status: answer.status, ...dependencies };
};
const spool = async (server: TestServer) => {
  const health = await server.admin('GET', '/operator/health', undefined, server.first.operator_api_key);
  return health.body.spool as Record<string, number>;
};

describe('a full disk', () => {
  it('stops new requests and readiness, loses no record of what was answered, and ends by itself', async () => {
    const server = await startServer();
    try {
      setDisk(true);
      expect((await ask(server)).status).toBe(200);
      const refused = await ask(server);
      expect(refused).toMatchObject({ status: 503, wait: '2' });
      expect(refused.text).toContain('cannot write request records');
      expect(await readyz(server)).toMatchObject({ status: 503, spool: 'away' });
      // Refused callers take no part of the room that is kept for records of what was answered.
      for (let i = 0; i < 4; i++) expect((await ask(server)).status).toBe(503);
      expect(await spool(server)).toMatchObject({ failing: true, held: 1, dropped: 5 });
      setDisk(false);
      await eventually(
        () => readyz(server),
        ({ status, spool: state }) => status === 200 && state === 'ok',
      );
      expect((await ask(server)).status).toBe(200);
      const answered = (await server.records()).filter(({ status }) => status === 200);
      expect(answered).toHaveLength(2);
    } finally {
      setDisk(false);
      await server.stop();
    }
  });

  it('with SLUICE_UNRECORDED=serve stops only requests under a usage limit', async () => {
    const server = await startServer({ SLUICE_UNRECORDED: 'serve' });
    try {
      const made = await server.admin('POST', '/api-keys/workspace/service', {
        name: 'limited',
        workspace_id: server.first.workspace_id,
        scopes: ['completions.write'],
        usage_limits: { type: 'tokens', credit_limit: 1_000_000 },
      });
      const limited = { 'x-gateway-api-key': made.body.key as string };
      expect((await ask(server, limited)).status).toBe(200);
      setDisk(true);
      expect((await ask(server, limited)).status).toBe(200);
      expect((await ask(server, limited)).status).toBe(503);
      expect((await ask(server)).status).toBe(200);
      expect(await readyz(server)).toMatchObject({ status: 200, spool: 'away', usage_spool: 'away' });
      setDisk(false);
      await eventually(
        () => readyz(server),
        ({ spool: records, usage_spool: usage }) => records === 'ok' && usage === 'ok',
      );
      expect((await ask(server, limited)).status).toBe(200);
    } finally {
      setDisk(false);
      await server.stop();
    }
  });
});
