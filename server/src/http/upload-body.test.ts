import { createServer, type IncomingMessage } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { TestClock } from '../kernel/clock.ts';
import { uploadBody } from './upload-body.ts';

const open: (() => void)[] = [];
afterEach(() => {
  for (const close of open.splice(0)) close();
});

/** A request whose head is there, and the socket its body comes over. */
async function upload(
  head: string,
  clock = new TestClock(),
): Promise<{ body: Readable; client: Socket; clock: TestClock }> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const arrived = new Promise<IncomingMessage>((resolve) => server.once('request', resolve));
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
  client.on('error', () => {});
  open.push(() => {
    client.destroy();
    server.closeAllConnections();
    server.close();
  });
  client.write(`POST / HTTP/1.1\r\nhost: x\r\n${head}\r\n\r\n`);
  return { body: uploadBody(await arrived, { clock, idleMs: 1000 }), client, clock };
}

describe('the body of an upload', () => {
  it('is handed on as it comes and ends when it is complete', async () => {
    const { body, client } = await upload('content-length: 6');
    client.write('abc');
    client.write('def');
    expect(Buffer.concat(await body.toArray()).toString()).toBe('abcdef');
  });

  it('fails when the client leaves before it is complete', async () => {
    const { body, client } = await upload('content-length: 6');
    client.write('abc', () => client.destroy());
    await expect(body.toArray()).rejects.toMatchObject({ kind: 'client_closed' });
  });

  it('fails when chunks stop without the last one', async () => {
    const { body, client } = await upload('transfer-encoding: chunked');
    client.end('3\r\nabc\r\n');
    await expect(body.toArray()).rejects.toMatchObject({ kind: 'client_closed' });
  });

  it('gives up a client that sends nothing while it is waited for', async () => {
    const { body, client, clock } = await upload('content-length: 6');
    client.write('abc');
    const read = body.toArray();
    read.catch(() => {});
    await clock.advance(5000);
    await expect(read).rejects.toMatchObject({ kind: 'timeout' });
  });

  it('gives up a client that drips, and none that was quick before it paused', async () => {
    const { body, client, clock } = await upload('content-length: 100000');
    const read = body[Symbol.asyncIterator]();
    const next = async (bytes: number) => {
      client.write(Buffer.alloc(bytes));
      return read.next();
    };
    expect((await next(15_000)).done).toBe(false);
    let time = 0;
    for (; time < 14_000; time += 900) {
      const more = read.next();
      await clock.advance(900);
      client.write('x');
      expect((await more).done).toBe(false);
    }
    const more = read.next();
    await clock.advance(900);
    client.write('x');
    await expect(more).rejects.toMatchObject({ kind: 'timeout', message: 'The upload arrives too slowly.' });
  });

  it('gives up a client that sent much at once and drips since', async () => {
    const { body, client, clock } = await upload('content-length: 5000000');
    const read = body[Symbol.asyncIterator]();
    client.write(Buffer.alloc(600_000));
    for (let got = 0; got < 600_000; got += ((await read.next()).value as Buffer).length);
    let failure: unknown = null;
    let seconds = 0;
    // What ten minutes ask for is there; it pays for the first one only.
    for (; failure === null && seconds < 120; seconds++) {
      const more = read.next().catch((error: unknown) => {
        failure = error;
      });
      await clock.advance(900);
      client.write('x');
      await more;
    }
    expect(failure).toMatchObject({ kind: 'timeout', message: 'The upload arrives too slowly.' });
    expect(seconds).toBeLessThan(120);
  });

  it('does not blame the client while nobody reads', async () => {
    const { body, client, clock } = await upload('content-length: 400000');
    client.write(Buffer.alloc(400_000));
    await clock.advance(60_000);
    const iterator = body[Symbol.asyncIterator]();
    const first = await iterator.next();
    await expect.poll(() => body.readableLength).toBeGreaterThan(0);
    await clock.advance(60_000);
    let size = (first.value as Buffer).length;
    for (let next = await iterator.next(); next.done !== true; next = await iterator.next())
      size += (next.value as Buffer).length;
    expect(size).toBe(400_000);
  });

  it('takes no content coding', async () => {
    await expect(upload('content-length: 3\r\ncontent-encoding: gzip')).rejects.toMatchObject({
      kind: 'malformed_call',
    });
  });
});
