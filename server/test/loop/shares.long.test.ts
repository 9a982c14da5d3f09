/** One organisation takes all it can of everything that is shared; the others are served as before. */
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { FairShares } from '../../src/kernel/fair-shares.ts';
import { startServer, type TestServer } from '../support/server.ts';

let server: TestServer;

beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server?.stop());

const CHAT = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'hi' }] };

function named(name: string): FairShares {
  const found = server.running.shares.find((shares) => shares.name === name);
  if (found === undefined) throw new Error(`nothing is called ${name}`);
  return found;
}

/** Takes what this organisation may have, in steps; answers how to give it back. */
function takeAll(shares: FairShares, organisation: string): () => void {
  let taken = 0;
  for (let step = shares.max; step >= 1; step = Math.floor(step / 2)) {
    while (shares.take(organisation, step)) taken += step;
  }
  expect(taken).toBeGreaterThan(0);
  return () => shares.give(organisation, taken);
}

const NAMES = [
  'bytes of bodies',
  'requests under way',
  'connection pools',
  'threads that read data sets',
  'threads that convert data sets',
];

describe('what all organisations share', () => {
  it('is listed: memory, requests, connections, threads', () => {
    expect(server.running.shares.map(({ name }) => name)).toEqual(NAMES);
  });

  it.each(NAMES)(
    '%s: one organisation that takes all it can leaves a quarter to another, and requests work',
    async (name) => {
      const shares = named(name);
      const back = takeAll(shares, 'greedy');
      expect(shares.held).toBeLessThanOrEqual(Math.max(1, shares.max / 2));
      expect(shares.take('other', shares.each)).toBe(true);
      shares.give('other', shares.each);
      const large = { ...CHAT, messages: [{ role: 'user', content: 'x'.repeat(100_000) }] };
      const response = await server.call('/chat/completions', large);
      expect(response.status).toBe(200);
      await response.text();
      back();
    },
  );

  it('a request of an organisation that has all it may have is 503 with Retry-After and says why', async () => {
    const back = takeAll(named('requests under way'), server.first.organisation_id);
    const refused = await server.call('/chat/completions', CHAT);
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '1']);
    expect(JSON.stringify(await refused.json())).toMatch(
      /Your organisation has [0-9]+ requests under way on this node/,
    );
    back();
    expect((await server.call('/chat/completions', CHAT)).status).toBe(200);
  });

  it('is given back by requests that succeed, fail, are refused, and whose client leaves', async () => {
    const { hostname, port } = new URL(server.url);
    const leaves = () =>
      new Promise<void>((resolve) => {
        const socket = connect(Number(port), hostname, () => {
          socket.write(
            `POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\ncontent-type: application/json\r\nx-gateway-api-key: ${server.first.workspace_api_key}\r\ncontent-length: 200000\r\n\r\n${'x'.repeat(100_000)}`,
            () => setImmediate(() => socket.destroy()),
          );
        });
        socket.on('close', () => resolve());
      });
    const calls = [
      server.call('/chat/completions', CHAT),
      server.call('/chat/completions', { ...CHAT, stream: true }),
      server.call('/chat/completions', { ...CHAT, model: '@nobody/x' }),
      server.call('/chat/completions', '{'),
      server.call('/chat/completions', CHAT, { 'x-gateway-api-key': 'wrong' }),
      server.call('/chat/completions', CHAT, { 'x-gateway-dry-run': 'true' }),
    ];
    for (const answer of await Promise.all(calls)) await answer.text();
    await leaves();
    await expect.poll(() => ['bytes of bodies', 'requests under way'].map((name) => named(name).held)).toEqual([0, 0]);
  });
});
