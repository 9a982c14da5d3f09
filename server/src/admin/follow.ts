/** Answers that are server-sent events: an action carried out again and again, until one side ends it. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { FairShares } from '../kernel/fair-shares.ts';
import type { Log } from '../kernel/log.ts';
import type { EventTurn } from '../resources/resource.ts';
import type { Trail } from './audit.ts';
import { type AdminAnswer, adminError, BASE_HEADERS } from './respond.ts';

/** Of one process. */
const MOST_FOLLOWERS = 20;
/** A sign of life after so long without an event: proxies close connections that are silent. */
const HEARTBEAT_MS = 15_000;
/** A client that has so much to take yet gets no more until it has. */
const MOST_WAITING_BYTES = 256 * 1024;
/** One that takes nothing for so long is cut off. */
const PATIENCE_MS = 60_000;

/** Who follows events, all organisations together. */
export const newFollowers = (): FairShares => new FairShares('followers of events', MOST_FOLLOWERS);

interface Following {
  readonly everyMs: number;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly trail: Trail;
  /** The request once more, with all its checks. */
  turn(since: string | null): Promise<EventTurn>;
  /** Notes the end. */
  ended(answer: AdminAnswer, error?: unknown): void;
}

/**
 * Answers events until the client leaves, the server stops, or the request would not be answered any more: a key was revoked, a
 * right is lost. The last event is `error` then, with the body that such a request gets. Rejects for what is refused in the first
 * turn, before anything is sent.
 */
export async function follow(
  deps: { readonly followers: FairShares; readonly stopping?: AbortSignal; readonly clock: Clock; readonly log: Log },
  { everyMs, request, reply, trail, turn, ended }: Following,
): Promise<FastifyReply> {
  const { followers, stopping, clock, log } = deps;
  const { raw: response } = reply;
  let { events, next } = await turn(null);
  const holder = trail.principal?.organisationId ?? '';
  if (!followers.take(holder)) {
    const message = 'Too many follow events already, of your organisation or of all. Try again when some have ended.';
    throw new SluiceError('throttled', message, { retryAfter: 5 });
  }
  try {
    reply.hijack();
    const headers = { ...BASE_HEADERS, 'content-type': 'text/event-stream; charset=utf-8', 'x-accel-buffering': 'no' };
    response.writeHead(200, { ...headers, 'x-gateway-request-id': trail.requestId });
    response.flushHeaders();
    let heard = clock.monotonic();
    let taken = heard;
    for (;;) {
      for (const { event, data } of events) response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
      const now = clock.monotonic();
      if (events.length > 0) heard = now;
      if (now - heard >= HEARTBEAT_MS) {
        response.write(': still here\n\n');
        heard = now;
      }
      await pause(clock, everyMs, request, stopping);
      if (request.raw.socket.destroyed || stopping?.aborted === true) break;
      events = [];
      if (response.writableLength <= MOST_WAITING_BYTES) taken = clock.monotonic();
      else if (clock.monotonic() - taken < PATIENCE_MS) continue;
      else {
        response.destroy();
        break;
      }
      try {
        ({ events, next } = await turn(next));
      } catch (error) {
        // What passes by itself ends nothing: the next turn tells what came meanwhile.
        if (error instanceof SluiceError && (error.kind === 'unavailable' || error.kind === 'throttled')) continue;
        const refusal = adminError(error, trail.requestId, log);
        response.write(`event: error\ndata: ${refusal.body}\n\n`);
        ended(refusal, error);
        return reply;
      }
    }
    ended({ status: 200, headers: {}, body: '' });
    return reply;
  } finally {
    followers.give(holder);
    response.end();
  }
}

/** Resolves after so long, or when the client leaves or the server stops. */
function pause(clock: Clock, ms: number, { raw }: FastifyRequest, stopping: AbortSignal | undefined): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const done = () => resolve();
  const cancel = clock.after(ms, done);
  raw.socket.once('close', done);
  stopping?.addEventListener('abort', done, { once: true });
  if (raw.socket.destroyed || stopping?.aborted === true) resolve();
  return promise.finally(() => {
    cancel();
    raw.socket.off('close', done);
    stopping?.removeEventListener('abort', done);
  });
}
