/** Log destinations of several processes and nodes, and after kills: each request arrives, and once where nothing happens. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { compose } from '../../src/compose.ts';
import { loadConfig } from '../../src/config.ts';
import { Exporter } from '../../src/exporter/exporter.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { openJournal } from '../../src/store/disk/journal.ts';
import { eventually } from '../support/budgets.ts';
import { type LogReceiver, startLogReceiver } from '../support/log-receiver.ts';
import { logRecord } from '../support/log-record.ts';
import { postgresDatabase } from '../support/postgres.ts';
import { readFirstRun, startReady, stopProcess } from '../support/process.ts';
import { startServer } from '../support/server.ts';

let receiver: LogReceiver;
let dir: string;

beforeEach(async () => {
  receiver = await startLogReceiver();
  dir = await mkdtemp(join(tmpdir(), 'sluice-destination-'));
});

afterEach(async () => {
  expect(receiver.faults).toEqual([]);
  await receiver.close();
  await rm(dir, { recursive: true, force: true });
});

const idsAt = () => receiver.records().map(({ id }) => String(id));
const CHAT = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'hi' }] };

async function arrived(ids: readonly string[]): Promise<void> {
  const all = (found: string[]) => ids.every((id) => found.includes(id));
  const found = await eventually(async () => idsAt(), all);
  expect(ids.filter((id) => !found.includes(id))).toEqual([]);
}

it('of two nodes with one PostgreSQL send each request once, stored ones included', { timeout: 60_000 }, async () => {
  const shared = {
    SLUICE_DATABASE_URL: await postgresDatabase(),
    SLUICE_MASTER_KEY: randomBytes(32).toString('base64'),
    SLUICE_TRUSTED_HOSTS: receiver.host,
  };
  const one = await startServer(shared);
  const { first } = one;
  const own = { SLUICE_DATA_DIR: dir, SLUICE_PORT: '0', SLUICE_LOG_LEVEL: 'error', SLUICE_DRAIN_SECONDS: '1' };
  const other = await compose(loadConfig([], { ...own, ...shared }, dir), silentLog);
  try {
    const ask = async (url: string) => {
      const answer = await fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'x-gateway-api-key': first.workspace_api_key, 'content-type': 'application/json' },
        body: JSON.stringify(CHAT),
      });
      expect(answer.status, await answer.text()).toBe(200);
      return answer.headers.get('x-gateway-request-id') ?? '';
    };
    const start_at = new Date().toISOString();
    const before = [await ask(one.url), await ask(other.url)];
    const body = {
      name: 'both',
      kind: 'webhook',
      workspace_id: first.workspace_id,
      webhook: { url: receiver.url },
      start_at,
    };
    const made = await one.admin('POST', '/log-destinations', body);
    expect(made.status, JSON.stringify(made.body)).toBe(200);
    await arrived(before);
    const after = [await ask(one.url), await ask(other.url), await ask(other.url)];
    await arrived(after);
    expect(idsAt().sort()).toEqual([...before, ...after].sort());
    const state = async () => (await one.admin('GET', `/log-destinations/${made.body.id}`)).body.state;
    const shown = await eventually(state, (found) => (found as { delivered: number }).delivered === 5);
    expect(shown).toMatchObject({ nodes: 2, delivered: 5, waiting: 0 });
  } finally {
    await other.stop({ noticeMs: 0, drainMs: 1_000 });
    await one.stop();
  }
});

it('of two processes send each request once, and all after the whole server was killed', {
  timeout: 60_000,
}, async () => {
  const env = { SLUICE_WORKERS: '2', SLUICE_TRUSTED_HOSTS: receiver.host };
  let server = await startReady(dir, env);
  try {
    const { workspace_api_key: key, admin_api_key: admin, workspace_id } = await readFirstRun(dir);
    const call = (path: string, body: object, by: string) =>
      fetch(`${server.url}/v1${path}`, {
        method: 'POST',
        headers: { 'x-gateway-api-key': by, 'content-type': 'application/json', connection: 'close' },
        body: JSON.stringify(body),
      });
    const ask = async (count: number) => {
      const ids: string[] = [];
      for (let i = 0; i < count; i++) {
        const answer = await call('/chat/completions', CHAT, key);
        await answer.text();
        ids.push(answer.headers.get('x-gateway-request-id') ?? '');
      }
      return ids;
    };
    const made = await call(
      '/log-destinations',
      { name: 'x', kind: 'webhook', workspace_id, webhook: { url: receiver.url } },
      admin,
    );
    expect(made.status, await made.text()).toBe(200);
    const quiet = await ask(20);
    await arrived(quiet);
    expect(idsAt()).toHaveLength(20);
    receiver.refuse = { status: 503 };
    const waiting = await ask(10);
    await stopProcess(server, 'SIGKILL');
    receiver.refuse = null;
    server = await startReady(dir, env);
    await arrived([...waiting, ...(await ask(5))]);
  } finally {
    await stopProcess(server, 'SIGKILL');
  }
});

it('send again what was taken when their process was killed before it could note it', async () => {
  const spool = join(dir, 'spool');
  const journal = await openJournal({ dir: join(spool, 'journal'), clock: systemClock, log: silentLog });
  const exporter = new Exporter({
    settings: {
      ...{ spool, dir: join(spool, 'telemetry'), maxBytes: 1 << 30, reserveBytes: 0, resource: {}, version: '1' },
      ...{ metrics: null, traces: null, destinations: { trustedHosts: [receiver.host], keepMs: 0 } },
    },
    environment: {},
    clock: systemClock,
    log: silentLog,
  });
  const ids: string[] = [];
  const write = (seq: number) => {
    const id = uuidv7(systemClock);
    ids.push(id);
    const more = { time: systemClock.now(), latency_ms: 1, path: '/v1/x', decision: undefined };
    const record = { ...logRecord(seq, { ...more }), id, span_id: id, trace_id: id };
    return new Promise<void>((resolve) => journal.append(JSON.stringify(record), resolve));
  };
  const plan = {
    ...{ id: 'd', organisationId: 'org-a', workspaceId: null, where: [], fields: ['id' as const], bodies: false },
    ...{
      sample: 1,
      startAt: 0,
      shared: false,
      version: '1',
      target: { kind: 'webhook' as const, url: receiver.url, headers: {} },
    },
  };
  const host = {
    terms: async () => ({ denied: [], secrets: [], origin: '' }),
    bodies: async () => ({ found: new Map(), pending: false }),
    past: async () => ({ records: [], next: null }),
    settled: async () => undefined,
    parquet: async () => '',
    left: async () => null,
    leftSettled: async () => undefined,
  };
  try {
    await exporter.setDestinations({ plans: [plan], listeners: [], host });
    const settled = async () => (await exporter.state())?.destinations?.states[0]?.backfilling;
    expect(await eventually(settled, (found) => found === false)).toBe(false);
    const killed: (number | null)[] = [];
    receiver.taken = () => {
      killed.push(exporter.pid);
      process.kill(exporter.pid ?? 0, 'SIGKILL');
      receiver.taken = null;
      return false;
    };
    await write(1);
    expect(
      await eventually(
        async () => idsAt().length,
        (count) => count >= 2,
      ),
    ).toBe(2);
    expect(idsAt()).toEqual([ids[0], ids[0]]);
    await write(2);
    await arrived(ids);
    expect(killed).toHaveLength(1);
    expect(exporter.pid).not.toBe(killed[0]);
  } finally {
    await exporter.close();
    await journal.close();
  }
});
