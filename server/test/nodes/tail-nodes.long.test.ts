/** Following the requests of two nodes with one PostgreSQL and one Redis: all of the tenant, none of another, and honest without Redis. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { compose, type Running } from '../../src/compose.ts';
import { loadConfig } from '../../src/config.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { postgresDatabase } from '../support/postgres.ts';
import { ownRedisMissing, startRedis, type TestRedis } from '../support/redis.ts';
import { startServer, type TestServer } from '../support/server.ts';

const CHAT = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'a canary that no message may hold' }] };

interface Event {
  readonly event: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into events of every kind
  readonly data: any;
}

let redis: TestRedis;
let one: TestServer;
let other: Running;
let dir: string;
const heard: string[] = [];

beforeAll(async () => {
  redis = await startRedis();
  dir = await mkdtemp(join(tmpdir(), 'sluice-tail-'));
  const shared = {
    SLUICE_DATABASE_URL: await postgresDatabase(),
    SLUICE_REDIS_URL: redis.url,
    SLUICE_MASTER_KEY: randomBytes(32).toString('base64'),
  };
  one = await startServer(shared);
  const own = { SLUICE_DATA_DIR: dir, SLUICE_PORT: '0', SLUICE_LOG_LEVEL: 'error' };
  other = await compose(loadConfig([], { ...own, ...shared }, dir), silentLog);
  const listener = redis.client.duplicate();
  listener.on('error', () => undefined);
  await listener.psubscribe('sluice:tail:*');
  listener.on('pmessage', (_pattern: string, _channel: string, text: string) => heard.push(text));
}, 120_000);

afterAll(async () => {
  await other?.stop({ noticeMs: 0, drainMs: 1_000 });
  await one?.stop();
  await redis?.close();
  await rm(dir, { recursive: true, force: true });
}, 60_000);

async function ask(url: string): Promise<string> {
  const answer = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'x-gateway-api-key': one.first.workspace_api_key, 'content-type': 'application/json' },
    body: JSON.stringify(CHAT),
  });
  expect(answer.status, await answer.text()).toBe(200);
  return answer.headers.get('x-gateway-request-id') ?? '';
}

/** Reads events until one is wanted, of which all that came before are answered as well. */
async function follow(
  wanted: (events: readonly Event[]) => boolean,
  begun: (seen: readonly Event[]) => Promise<unknown>,
  query = '',
) {
  const stop = new AbortController();
  const answer = await fetch(`${one.url}/v1/logs/tail${query}`, {
    headers: { 'x-gateway-api-key': one.first.admin_api_key },
    signal: stop.signal,
  });
  expect(answer.status).toBe(200);
  const events: Event[] = [];
  let text = '';
  let started = false;
  const reader = (answer.body as ReadableStream<Uint8Array>).getReader();
  // What is recorded before the other node knows of the tail is of the past: it is asked for with the first turn.
  const begin = async () => {
    started = true;
    await begun(events);
  };
  const first = begin();
  while (!wanted(events)) {
    const { done, value } = await reader.read();
    if (done) throw new Error('the tail ended');
    text += Buffer.from(value).toString();
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const [, event = '', data = ''] = /^event: (.*)\ndata: (.*)$/s.exec(text.slice(0, end)) ?? [];
      text = text.slice(end + 2);
      if (event !== '') events.push({ event, data: JSON.parse(data) });
    }
  }
  expect(started).toBe(true);
  await first;
  stop.abort();
  return events;
}

const idsIn = (events: readonly Event[]) => events.filter(({ event }) => event === 'log').map(({ data }) => data.id);

describe.skipIf(ownRedisMissing !== null)('the tail of two nodes', { timeout: 120_000 }, () => {
  it('shows what both serve, and no message between them holds a body or a key', async () => {
    const ids: string[] = [];
    const events = await follow(
      (seen) => ids.length === 2 && ids.every((id) => idsIn(seen).includes(id)),
      async () => {
        // The keeper of the other node starts with the first ask.
        while (!heard.some((text) => text.includes('"rows"'))) await new Promise((resolve) => setImmediate(resolve));
        const made = [await ask(one.url), await ask(other.url)];
        ids.push(...made);
      },
    );
    expect(idsIn(events).sort()).toEqual([...ids].sort());
    expect(heard.join('\n')).toContain(ids[1]);
    for (const secret of ['canary', one.first.workspace_api_key, one.first.admin_api_key]) {
      expect(heard.join('\n')).not.toContain(secret);
    }
  });

  it('leaves out on the node that answers what its filter does not take', async () => {
    const made: { taken?: string } = {};
    const events = await follow(
      (seen) => made.taken !== undefined && idsIn(seen).includes(made.taken),
      async () => {
        const told = heard.length;
        while (heard.length < told + 4) await new Promise((resolve) => setImmediate(resolve));
        await fetch(`${other.url}/v1/chat/completions`, {
          method: 'POST',
          headers: { 'x-gateway-api-key': one.first.workspace_api_key, 'content-type': 'application/json' },
          body: JSON.stringify({ ...CHAT, model: '@no-such-provider/none' }),
        });
        made.taken = await ask(other.url);
      },
      '?outcome=ok',
    );
    expect(idsIn(events)).toEqual([made.taken]);
  });

  it('says that the others are missing while Redis is away, and that they are back', async () => {
    const events = await follow(
      (seen) => seen.filter(({ event }) => event === 'incomplete').length === 2,
      async (seen) => {
        await redis.kill();
        while (!seen.some(({ event }) => event === 'incomplete')) await new Promise((resolve) => setImmediate(resolve));
        await redis.start();
      },
    );
    const said = events.filter(({ event }) => event === 'incomplete').map(({ data }) => data.nodes);
    expect(said).toEqual([null, []]);
  });
});
