import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { createFetcher } from './background-fetcher.ts';
import { createEgressGuard, parseTrustedHosts } from './egress-guard.ts';

it('keeps a socket for the organisation it was opened for', async () => {
  const sockets = new Map<string, Set<Socket>>([
    ['o1', new Set()],
    ['o2', new Set()],
  ]);
  const server = createServer((request, response) => {
    sockets.get(String(request.headers['x-organisation']))?.add(request.socket);
    response.end('ok');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const egress = createEgressGuard({
    trustedHosts: parseTrustedHosts('127.0.0.0/8'),
    ownListeners: () => [],
    clock: systemClock,
    log: silentLog,
    resolver: { resolve: () => Promise.resolve([]) },
  });
  const fetcher = createFetcher({ egress, clock: systemClock });
  onTestFinished(async () => {
    await fetcher.close();
    server.closeAllConnections();
    server.close();
  });
  for (let i = 0; i < 30; i++) {
    // In no rhythm that sockets taken in turn could keep to.
    const organisationId = i % 2 === 0 || i % 3 === 0 ? 'o1' : 'o2';
    const { status, stream } = await fetcher.send({
      method: 'GET',
      url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`),
      headers: ['x-organisation', organisationId],
      body: null,
      organisationId,
      storedCredential: false,
      headersTimeoutMs: 10_000,
      idleMs: 10_000,
    });
    expect([status, String(Buffer.concat(await stream.toArray()))]).toEqual([200, 'ok']);
  }
  const [first, second] = [...sockets.values()];
  expect([...(first ?? [])].filter((socket) => second?.has(socket))).toEqual([]);
  // They are used again, so there was something to share.
  for (const own of [first, second]) expect(own?.size).toBeLessThan(8);
});
