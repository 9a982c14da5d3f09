// Own process: it counts the idle buffers of the whole process.
import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { borrowBuffer, idleBufferBytes, keepBuffer, returnBuffer, watchWrites } from './buffer-pool.ts';

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
    const first = borrowBuffer(100_000);
    expect(first.length).toBe(100_000);
    const { buffer } = first;
    returnBuffer(first);
    const second = borrowBuffer(90_000);
    expect(second.buffer).toBe(buffer);
    returnBuffer(second);
  });

  it('two borrowers never share memory, and foreign Buffers are left alone', () => {
    const one = borrowBuffer(50_000);
    const two = borrowBuffer(50_000);
    expect(one.buffer).not.toBe(two.buffer);
    returnBuffer(Buffer.from('not lent'));
    returnBuffer(one);
    returnBuffer(two);
    const third = borrowBuffer(50_000);
    const fourth = borrowBuffer(50_000);
    expect(third.buffer).not.toBe(fourth.buffer);
    returnBuffer(third);
    returnBuffer(fourth);
  });

  it('small bodies take no slab, and idle slabs are bounded', () => {
    const before = idleBufferBytes();
    returnBuffer(borrowBuffer(1000));
    expect(idleBufferBytes()).toBe(before);
    const many = Array.from({ length: 40 }, () => borrowBuffer(1_000_000));
    for (const buffer of many) returnBuffer(buffer);
    expect(idleBufferBytes()).toBeLessThanOrEqual(16 * 1024 * 1024);
    const large = Array.from({ length: 5 }, () => borrowBuffer(31_000_000));
    for (const buffer of large) returnBuffer(buffer);
    expect(idleBufferBytes()).toBeLessThanOrEqual(80 * 1024 * 1024);
  });

  it('the memory of the largest bodies is shared with the thread, and used again', () => {
    const first = borrowBuffer(31_000_000);
    expect([first.length, first.buffer instanceof SharedArrayBuffer]).toEqual([31_000_000, true]);
    returnBuffer(first);
    const second = borrowBuffer(30_000_000);
    expect(second.buffer === first.buffer).toBe(true);
    returnBuffer(second);
  });

  it('memory that is kept is lent to no other until it is let go, however early it is given back', () => {
    const first = borrowBuffer(30_000_000);
    const drop = keepBuffer(first);
    returnBuffer(first);
    const second = borrowBuffer(30_000_000);
    expect(second.buffer === first.buffer).toBe(false);
    drop();
    expect(borrowBuffer(30_000_000).buffer === first.buffer).toBe(true);
    keepBuffer(Buffer.from('not lent'))();
  });

  it('bytes that wait in a socket are not overwritten by the next borrower, however early the first one is done', async () => {
    const { socket, read } = await slowPeer();
    const count = 64;
    const size = 500_000;
    for (let i = 0; i < count; i++) {
      const body = borrowBuffer(size);
      body.fill(i + 1);
      socket.write(body);
      returnBuffer(body);
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
    const body = borrowBuffer(1_000_000);
    const { buffer } = body;
    for (let i = 0; i < 20; i++) socket.write(body);
    returnBuffer(body);
    const other = borrowBuffer(1_000_000);
    expect(other.buffer).not.toBe(buffer);
    returnBuffer(other);
    socket.destroy();
    await new Promise((resolve) => socket.once('close', resolve));
    await new Promise((resolve) => setImmediate(resolve));
    const again = [borrowBuffer(1_000_000), borrowBuffer(1_000_000)];
    expect(again.some((lent) => lent.buffer === buffer)).toBe(true);
    for (const lent of again) returnBuffer(lent);
  });
});
