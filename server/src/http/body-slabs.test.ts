import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { giveBack, idleSlabBytes, keep, lend, watchWrites } from './body-slabs.ts';

const servers: Server[] = [];
const sockets: Socket[] = [];

afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) server.close();
});

/** A peer that reads nothing until told, and keeps what it reads. */
async function slowPeer(): Promise<{ socket: Socket; read: (bytes: number) => Promise<Buffer> }> {
  const accepted = new Promise<Socket>((resolve) => {
    const server = createServer((peer) => {
      peer.pause();
      sockets.push(peer);
      resolve(peer);
    });
    servers.push(server);
    server.listen(0, '127.0.0.1');
  });
  const [server] = servers.slice(-1);
  await new Promise<void>((resolve) => server?.once('listening', () => resolve()));
  const address = server?.address();
  const socket = watchWrites(connect(typeof address === 'object' && address !== null ? address.port : 0, '127.0.0.1'));
  sockets.push(socket);
  await new Promise<void>((resolve) => socket.once('connect', () => resolve()));
  const peer = await accepted;
  return {
    socket,
    read: (bytes) =>
      new Promise((resolve) => {
        const parts: Buffer[] = [];
        let size = 0;
        peer.on('data', (part: Buffer) => {
          parts.push(part);
          size += part.length;
          if (size >= bytes) resolve(Buffer.concat(parts));
        });
        peer.resume();
      }),
  };
}

describe('lent body memory', () => {
  it('is used again once it is given back', () => {
    const first = lend(100_000);
    expect(first.length).toBe(100_000);
    const { buffer } = first;
    giveBack(first);
    const second = lend(90_000);
    expect(second.buffer).toBe(buffer);
    giveBack(second);
  });

  it('two borrowers never share memory, and foreign Buffers are left alone', () => {
    const one = lend(50_000);
    const two = lend(50_000);
    expect(one.buffer).not.toBe(two.buffer);
    giveBack(Buffer.from('not lent'));
    giveBack(one);
    giveBack(two);
    const third = lend(50_000);
    const fourth = lend(50_000);
    expect(third.buffer).not.toBe(fourth.buffer);
    giveBack(third);
    giveBack(fourth);
  });

  it('small bodies take no slab, and idle slabs are bounded', () => {
    const before = idleSlabBytes();
    giveBack(lend(1000));
    expect(idleSlabBytes()).toBe(before);
    const many = Array.from({ length: 40 }, () => lend(1_000_000));
    for (const buffer of many) giveBack(buffer);
    expect(idleSlabBytes()).toBeLessThanOrEqual(16 * 1024 * 1024);
    const large = Array.from({ length: 5 }, () => lend(31_000_000));
    for (const buffer of large) giveBack(buffer);
    expect(idleSlabBytes()).toBeLessThanOrEqual(80 * 1024 * 1024);
  });

  it('the memory of the largest bodies is shared with the thread, and used again', () => {
    const first = lend(31_000_000);
    expect([first.length, first.buffer instanceof SharedArrayBuffer]).toEqual([31_000_000, true]);
    giveBack(first);
    const second = lend(30_000_000);
    expect(second.buffer === first.buffer).toBe(true);
    giveBack(second);
  });

  it('memory that is kept is lent to no other until it is let go, however early it is given back', () => {
    const first = lend(30_000_000);
    const drop = keep(first);
    giveBack(first);
    const second = lend(30_000_000);
    expect(second.buffer === first.buffer).toBe(false);
    drop();
    expect(lend(30_000_000).buffer === first.buffer).toBe(true);
    keep(Buffer.from('not lent'))();
  });

  it('bytes that wait in a socket are not overwritten by the next borrower, however early the first one is done', async () => {
    const { socket, read } = await slowPeer();
    const count = 64;
    const size = 500_000;
    for (let i = 0; i < count; i++) {
      const body = lend(size);
      body.fill(i + 1);
      socket.write(body);
      giveBack(body);
    }
    expect(socket.writableLength).toBeGreaterThan(0);
    const received = await read(count * size);
    for (let i = 0; i < count; i++) {
      const part = received.subarray(i * size, (i + 1) * size);
      expect(
        part.every((byte) => byte === i + 1),
        `body ${i}`,
      ).toBe(true);
    }
  });

  it('a socket that is destroyed with bytes waiting gives their memory back', async () => {
    const { socket } = await slowPeer();
    socket.on('error', () => {});
    const body = lend(1_000_000);
    const { buffer } = body;
    for (let i = 0; i < 20; i++) socket.write(body);
    giveBack(body);
    const other = lend(1_000_000);
    expect(other.buffer).not.toBe(buffer);
    giveBack(other);
    socket.destroy();
    await new Promise((resolve) => socket.once('close', resolve));
    await new Promise((resolve) => setImmediate(resolve));
    const again = [lend(1_000_000), lend(1_000_000)];
    expect(again.some((lent) => lent.buffer === buffer)).toBe(true);
    for (const lent of again) giveBack(lent);
  });
});
