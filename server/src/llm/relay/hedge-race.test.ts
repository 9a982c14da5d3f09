import { describe, expect, it } from 'vitest';
import { TestClock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { WireControl, WireHandler } from '../../kernel/wire.ts';
import { Race } from './hedge-race.ts';

interface Call {
  readonly handler: WireHandler;
  readonly did: string[];
  /** Tells the head of an answer. */
  head(status: number): void;
}

/** A race over calls that are answered by hand, and what came of it. */
function race({ max = 1, mayCall = () => true }: { max?: number; mayCall?: () => boolean | Promise<boolean> } = {}) {
  const clock = new TestClock();
  const calls: Call[] = [];
  const came: unknown[] = [];
  const one = new Race({
    clock,
    hedge: { delayMs: 100, max },
    handler: {
      onHead: (status) => void came.push(status),
      onData: (chunk) => void came.push(chunk.length > 100 ? chunk.length : chunk.toString()),
      onEnd: () => void came.push('end'),
      onError: (error) => void came.push(error.kind),
    },
    call(handler) {
      const did: string[] = [];
      const control: WireControl = {
        pause: () => void did.push('pause'),
        resume: () => void did.push('resume'),
        abort: () => void did.push('abort'),
      };
      calls.push({ handler, did, head: (status) => handler.onHead(status, [], control) });
      return control;
    },
    mayCall,
  });
  const at = (index: number): Call => {
    const call = calls[index];
    if (call === undefined) throw new Error(`no call ${index}`);
    return call;
  };
  return { clock, calls, came, one, at };
}
const text = (of: string) => Buffer.from(of);
const broken = new SluiceError('upstream_unreachable', 'gone');

describe('calls of a race', () => {
  it.each([1, 2, 3])('begin one after the other while none has answered, %i more than one', async (max) => {
    const { clock, calls } = race({ max });
    for (let more = 0; more <= max; more++) {
      expect(calls).toHaveLength(1 + more);
      await clock.advance(99);
      expect(calls).toHaveLength(1 + more);
      await clock.advance(1);
    }
    await clock.advance(10_000);
    expect(calls).toHaveLength(1 + max);
  });

  it('do not begin once one has answered, was given up, or where none may', async () => {
    const answered = race();
    answered.at(0).head(200);
    answered.at(0).handler.onData(text('a'));
    const left = race();
    left.one.abort();
    const refused = race({ mayCall: () => false });
    for (const { clock, calls } of [answered, left, refused]) {
      await clock.advance(1_000);
      expect(calls).toHaveLength(1);
    }
    expect(left.at(0).did).toEqual(['abort']);
  });

  it('do not begin when leave for them comes too late', async () => {
    for (const settle of ['answer', 'leave'] as const) {
      let grant: (yes: boolean) => void = () => {};
      const { clock, calls, one, at } = race({
        mayCall: () =>
          new Promise<boolean>((resolve) => {
            grant = resolve;
          }),
      });
      await clock.advance(100);
      if (settle === 'leave') one.abort();
      else {
        at(0).head(200);
        at(0).handler.onData(text('a'));
      }
      grant(true);
      await clock.advance(1_000);
      expect(calls, settle).toHaveLength(1);
    }
  });

  it('a head alone decides nothing: the first byte of a success is taken, and the others are given up', async () => {
    const { clock, came, one, at } = race({ max: 2 });
    await clock.advance(200);
    at(0).head(200);
    at(1).head(200);
    expect(came).toEqual([]);
    at(1).handler.onData(text('one'));
    expect([at(0).did, at(1).did, at(2).did]).toEqual([['abort'], [], ['abort']]);
    one.pause();
    one.resume();
    at(1).handler.onData(text('two'));
    at(1).handler.onEnd();
    expect(came).toEqual([200, 'one', 'two', 'end']);
    expect(at(1).did).toEqual(['pause', 'resume']);
    expect(one.lost()).toMatchObject([
      { status: 200, error: null, open: true, ms: 200 },
      { status: null, ms: 0 },
    ]);
  });

  it('one that fails is waited out while another is under way; the last failure is told, whole', async () => {
    const { clock, came, one, at } = race();
    await clock.advance(100);
    at(1).handler.onError(broken);
    expect(came).toEqual([]);
    at(0).head(429);
    at(0).handler.onData(text('no'));
    at(0).handler.onEnd();
    expect(came).toEqual([429, 'no', 'end']);
    expect(one.lost()).toMatchObject([{ status: null, error: broken, open: false }]);
  });

  it('a success without a body is one, and a redirect is none', async () => {
    const empty = race();
    empty.at(0).head(204);
    empty.at(0).handler.onEnd();
    expect(empty.came).toEqual([204, 'end']);
    const moved = race();
    await moved.clock.advance(100);
    moved.at(0).head(301);
    moved.at(0).handler.onData(text('elsewhere'));
    expect(moved.came).toEqual([]);
    moved.at(1).head(200);
    moved.at(1).handler.onData(text('here'));
    expect(moved.came).toEqual([200, 'here']);
  });

  it('of a refusal that never ends a MiB is kept', async () => {
    const { clock, came, at } = race();
    await clock.advance(100);
    at(0).head(500);
    for (let i = 0; i < 3; i++) at(0).handler.onData(Buffer.alloc(512 * 1024));
    at(0).handler.onEnd();
    at(1).handler.onError(broken);
    expect(came).toEqual(['upstream_unreachable']);
    const last = race();
    last.at(0).head(500);
    for (let i = 0; i < 3; i++) last.at(0).handler.onData(Buffer.alloc(512 * 1024));
    last.at(0).handler.onEnd();
    expect(last.came).toEqual([500, 512 * 1024, 512 * 1024, 'end']);
  });

  it('all are given up when the caller leaves', async () => {
    const { clock, came, one, at } = race({ max: 2 });
    await clock.advance(200);
    one.abort();
    expect([at(0).did, at(1).did, at(2).did]).toEqual([['abort'], ['abort'], ['abort']]);
    expect(came).toEqual([]);
    expect(one.lost()).toHaveLength(2);
  });
});
