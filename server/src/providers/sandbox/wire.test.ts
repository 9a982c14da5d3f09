/** The handler keeps the contract a socket keeps. */
import { describe, expect, it } from 'vitest';
import { call, eventsOf } from '../../../test/support/local.ts';
import { systemClock, TestClock } from '../../kernel/clock.ts';
import type { WireControl } from '../../kernel/wire.ts';
import { createLocal } from './local.ts';

const local = createLocal();
const messages = [{ role: 'user', content: 'x' }];

const turns = async (count: number): Promise<void> => {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
};

describe('the wire contract', () => {
  it('nothing comes while paused, not even the end', async () => {
    let control: WireControl | undefined;
    let chunks = 0;
    let ended = false;
    const done = call(local, {
      body: { model: 'lorem?tokens=5000', stream: true, messages },
      onChunk: (_, given) => {
        chunks += 1;
        control = given;
        given.pause();
      },
    }).then((answer) => {
      ended = true;
      return answer;
    });
    for (let seen = 0; ; seen++) {
      // The first chunk waits for the tokeniser to be loaded.
      while (chunks === seen && !ended) await turns(1);
      if (ended) break;
      await turns(10);
      expect(chunks).toBe(seen + 1);
      control?.resume();
    }
    expect((await done).text).toContain('[DONE]');
    expect(chunks).toBeGreaterThan(5);
  });

  it('a pause that outlasts a wait keeps the answer waiting', async () => {
    const clock = new TestClock();
    let control: WireControl | undefined;
    let text = '';
    const done = call(local, {
      clock,
      body: { model: 'stall?after_tokens=2&ms=1000', stream: true, messages },
      onHead: (given) => {
        control = given;
      },
      onChunk: (chunk) => {
        text += chunk;
      },
    });
    await turns(50);
    control?.pause();
    await clock.advance(2000);
    await turns(50);
    expect(text).not.toContain('dolor');
    control?.resume();
    await done;
    expect(text).toContain('dolor');
  });

  it.each(['before the head', 'in mid-stream', 'while waiting'])('nothing comes after an abort %s', async (when) => {
    const clock = new TestClock();
    const seen: string[] = [];
    const model = when === 'while waiting' ? 'slow?ttft_ms=1000' : 'lorem?tokens=100000';
    const control = local(
      {
        method: 'POST',
        origin: 'http://in-process',
        path: '/chat/completions',
        headers: [],
        body: [Buffer.from(JSON.stringify({ model, stream: true, messages }))],
        organisationId: 'o',
        storedCredential: false,
      },
      {
        onHead: () => seen.push('head'),
        onData: () => {
          seen.push('data');
          if (when === 'in mid-stream') control.abort();
        },
        onEnd: () => seen.push('end'),
        onError: () => seen.push('error'),
      },
      clock,
    );
    if (when === 'before the head') control.abort();
    await turns(50);
    if (when === 'while waiting') control.abort();
    await clock.advance(5000);
    await turns(50);
    expect(seen).toEqual(when === 'in mid-stream' ? ['head', 'data'] : []);
  });

  it('a reader that throws is told so once', async () => {
    const errors: string[] = [];
    await new Promise<void>((resolve) => {
      local(
        {
          method: 'POST',
          origin: 'http://in-process',
          path: '/chat/completions',
          headers: [],
          body: [Buffer.from(JSON.stringify({ model: 'echo', messages }))],
          organisationId: 'o',
          storedCredential: false,
        },
        {
          onHead: () => {
            throw new Error('reader broke');
          },
          onData: () => errors.push('data'),
          onEnd: () => errors.push('end'),
          onError: (error) => {
            errors.push(error.kind);
            resolve();
          },
        },
        systemClock,
      );
    });
    await turns(20);
    expect(errors).toEqual(['upstream_invalid']);
  });

  it('bodies in several parts are read as one', async () => {
    const text = JSON.stringify({ model: 'echo', messages: [{ role: 'user', content: 'héllo' }] });
    const bytes = Buffer.from(text);
    const at = bytes.indexOf(0xc3) + 1;
    const answer = await new Promise<string>((resolve, reject) => {
      let out = '';
      local(
        {
          method: 'POST',
          origin: 'http://in-process',
          path: '/v1/chat/completions',
          headers: [],
          body: [bytes.subarray(0, at), bytes.subarray(at)],
          organisationId: 'o',
          storedCredential: false,
        },
        {
          onHead: () => undefined,
          onData: (chunk) => {
            out += chunk;
          },
          onEnd: () => resolve(out),
          onError: reject,
        },
        systemClock,
      );
    });
    expect(answer).toContain('héllo');
  });
});

describe('long answers', () => {
  it.each([true, false])('a hundred thousand tokens leave the event loop free (stream: %s)', async (stream) => {
    let turnsSeen = 0;
    let running = true;
    const tick = (): void => {
      turnsSeen += 1;
      if (running) setImmediate(tick);
    };
    setImmediate(tick);
    const answer = await call(local, { body: { model: 'lorem?tokens=100000', stream, messages } });
    running = false;
    const text = stream
      ? eventsOf(answer.text)
          .map((event) => event.json?.choices?.[0]?.delta?.content ?? '')
          .join('')
      : answer.json.choices[0].message.content;
    expect(text.split(/(?=[ .])/)).toHaveLength(100_000);
    expect(turnsSeen).toBeGreaterThan(20);
    if (!stream) expect(answer.json.usage.completion_tokens).toBe(100_000);
  });

  it('256 MB stream through memory that does not grow with them, with pauses', async () => {
    const wanted = 256 * 1024 * 1024;
    let received = 0;
    let highest = 0;
    const before = process.memoryUsage.rss();
    await call(local, {
      drop: true,
      body: { model: `lorem?bytes=${wanted}`, stream: true, messages },
      onChunk: (chunk, control) => {
        const step = received >> 22;
        received += chunk.length;
        if (received >> 22 === step) return;
        highest = Math.max(highest, process.memoryUsage.rss());
        control.pause();
        setImmediate(() => control.resume());
      },
    });
    expect(received).toBeGreaterThan(wanted);
    // The garbage collector decides when chunks are freed; a stream that is kept would be the whole 256 MB.
    expect(highest - before).toBeLessThan(192 * 1024 * 1024);
  });
});
