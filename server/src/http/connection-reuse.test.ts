import { afterEach, describe, expect, it } from 'vitest';
import { runConnectionSequences } from '../../test/support/connection-sequences.ts';
import { client, closeAll, raw, send } from '../../test/support/wire.ts';

afterEach(closeAll);

describe('a connection that is used again', () => {
  it('answers the next call after a reader that paused at the first chunk of an answer that came whole', async () => {
    const chunk = `${(100).toString(16)}\r\n${'a'.repeat(100)}\r\n`;
    const { port, opened } = await raw((socket) =>
      socket.write(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${chunk.repeat(3)}0\r\n\r\n`),
    );
    const upstream = client({ limits: { connections: 1 } });
    let paused = 0;
    const first = send(
      upstream,
      port,
      {},
      {
        onData: (control) => {
          if (paused++ > 0) return;
          control.pause();
          setImmediate(() => control.resume());
        },
      },
    );
    expect((await first.answer).body.length).toBe(300);
    const second = send(upstream, port, {}, { timeouts: { headersMs: 2_000, idleMs: 2_000 } });
    expect(await second.answer).toMatchObject({ status: 200, error: null });
    expect(opened()).toBe(1);
  });

  it('is reusable or closed after any sequence of sizes, pauses, aborts and pipelined bytes', async () => {
    await runConnectionSequences(200);
  });
});
