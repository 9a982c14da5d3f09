/**
 * Shared counters and change hints of the worker processes of one machine: the primary process holds the counters and
 * passes hints on, the workers ask it over their IPC channel. With Redis configured none of this is used.
 */
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Counters, Feed, WindowHit, WindowResult } from '../ports.ts';

/** A worker's end, or the primary's end to one worker. */
export interface Channel {
  send(message: unknown): void;
  onMessage(receive: (message: unknown) => void): void;
}

type Question =
  | { readonly sluice: 'hit'; readonly id: number; readonly windows: readonly WindowHit[] }
  | { readonly sluice: 'add'; readonly id: number; readonly windows: readonly Omit<WindowHit, 'limit'>[] }
  | { readonly sluice: 'get'; readonly id: number; readonly keys: readonly string[] }
  | { readonly sluice: 'hint'; readonly seq: number };

interface Answer {
  readonly sluice: 'answer';
  readonly id: number;
  readonly value: unknown;
}

function isOurs(message: unknown): message is { sluice: string } {
  return typeof message === 'object' && message !== null && 'sluice' in message;
}

/** The primary's part: answers one worker's questions and passes its hints to `others`. */
export function serveWorker(channel: Channel, counters: Counters, others: () => Iterable<Channel>): void {
  const answer = (id: number, value: unknown) => channel.send({ sluice: 'answer', id, value } satisfies Answer);
  channel.onMessage((message) => {
    if (!isOurs(message)) return;
    const question = message as Question;
    if (question.sluice === 'hit') void counters.hit(question.windows).then((value) => answer(question.id, value));
    else if (question.sluice === 'add') void counters.add(question.windows).then(() => answer(question.id, null));
    else if (question.sluice === 'get') void counters.get(question.keys).then((value) => answer(question.id, value));
    else if (question.sluice === 'hint') for (const other of others()) if (other !== channel) other.send(question);
  });
}

/** The primary is there as long as the workers are: one that takes longer hangs, or the whole machine is held up. */
const ANSWER_MS = 5_000;

/** A worker's part. A primary that does not answer within five seconds is `unavailable`. */
export function workerShared(
  channel: Channel,
  after: (ms: number, fn: () => void) => () => void,
): { counters: Counters; feed: Feed } {
  const waiting = new Map<number, (value: unknown) => void>();
  const listeners = new Set<(seq: number) => void>();
  let last = 0;
  channel.onMessage((message) => {
    if (!isOurs(message)) return;
    if (message.sluice === 'answer') {
      const { id, value } = message as unknown as Answer;
      waiting.get(id)?.(value);
    } else if (message.sluice === 'hint') {
      for (const listener of listeners) listener((message as unknown as { seq: number }).seq);
    }
  });
  function ask<T>(question: Record<string, unknown>): Promise<T> {
    last += 1;
    const id = last;
    return new Promise<T>((resolve, reject) => {
      const giveUp = () => {
        waiting.delete(id);
        reject(new SluiceError('unavailable', 'The shared counters do not answer; try again.'));
      };
      // Where this process was held up itself, its timers are due before it has read the answer that waits for it.
      let cancel = after(ANSWER_MS, () => {
        cancel = after(1, giveUp);
      });
      waiting.set(id, (value) => {
        cancel();
        waiting.delete(id);
        resolve(value as T);
      });
      channel.send({ ...question, id });
    });
  }
  return {
    counters: {
      hit: (windows) => ask<WindowResult>({ sluice: 'hit', windows }),
      add: (windows) => ask<void>({ sluice: 'add', windows }),
      get: (keys) => ask<number[]>({ sluice: 'get', keys }),
      async close() {},
    },
    feed: {
      publish: (seq) => channel.send({ sluice: 'hint', seq }),
      subscribe(onHint) {
        listeners.add(onHint);
        return () => {
          listeners.delete(onHint);
        };
      },
      async close() {
        listeners.clear();
      },
    },
  };
}

/** `counters` for callers whose windows go by `windows`, where they themselves are held by the clock of this machine. */
export function countersByClock(counters: Counters, windows: Clock, machine: Clock): Counters {
  const moved = <T extends { readonly expiresAt: number }>(all: readonly T[]): T[] => {
    const difference = machine.now() - windows.now();
    return all.map((window) => ({ ...window, expiresAt: window.expiresAt + difference }));
  };
  return {
    hit: (all) => counters.hit(moved(all)),
    add: (all) => counters.add(moved(all)),
    get: (keys) => counters.get(keys),
    close: () => counters.close(),
  };
}
