import { randomBytes } from 'node:crypto';
import { createServer, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '../kernel/clock.ts';
import { BodyBudget } from './body-budget.ts';
import { readBody } from './read-body.ts';

const MB = 1024 * 1024;
const closers: (() => unknown)[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  for (const close of closers.splice(0).reverse()) await close();
});

/** Bytes that are copied from one buffer to another in each turn of the event loop. */
function copiedEachTurn(): () => number {
  let most = 0;
  let now = 0;
  let watching = true;
  const { copy } = Buffer.prototype;
  vi.spyOn(Buffer.prototype, 'copy').mockImplementation(function (this: Buffer, ...parts: Parameters<typeof copy>) {
    const copied = copy.apply(this, parts);
    now += copied;
    most = Math.max(most, now);
    return copied;
  });
  const turn = (): void => {
    now = 0;
    if (watching) setImmediate(turn);
  };
  setImmediate(turn);
  return () => {
    watching = false;
    return most;
  };
}

async function received(sent: Buffer, headers: Record<string, string | number>): Promise<Buffer> {
  const budget = new BodyBudget(128 * MB);
  return new Promise((resolve, reject) => {
    const server = createServer((request, response) => {
      void readBody(request, { limit: 31 * MB, clock: systemClock, budget, holder: 'sender' }).then((body) => {
        response.end();
        resolve(body);
      }, reject);
    });
    closers.push(() => {
      server.closeAllConnections();
      return new Promise((closed) => server.close(closed));
    });
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      const call = httpRequest({ port, method: 'POST', headers }, (response) => response.resume());
      call.end(sent);
    });
  });
}

describe('a large body', () => {
  const body = Buffer.concat([randomBytes(10 * MB), Buffer.alloc(10 * MB, 'a')]);
  const noise = randomBytes(6 * MB);
  const packed = gzipSync(noise, { level: 1 });

  it.each<[string, Buffer, Buffer, Record<string, string | number>]>([
    ['of a declared length', body, body, { 'content-length': body.length }],
    ['in chunks', body, body, { 'transfer-encoding': 'chunked' }],
    [
      'just large enough to be moved once',
      noise.subarray(0, 1.1 * MB),
      noise.subarray(0, 1.1 * MB),
      { 'transfer-encoding': 'chunked' },
    ],
    ['that is compressed', packed, noise, { 'content-length': packed.length, 'content-encoding': 'gzip' }],
  ])('%s is copied little by little: nobody waits for all of it', async (_, sent, whole, headers) => {
    const most = copiedEachTurn();
    const given = await received(sent, headers);
    expect(most()).toBeLessThan(0.6 * MB);
    vi.restoreAllMocks();
    expect(given.equals(whole)).toBe(true);
  });
});
