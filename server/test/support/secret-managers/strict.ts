/** A secret manager on loopback that answers nothing which its published definition does not name, and notes what else came. */
import { type FakeUpstream, type Received, sendJson, startUpstream } from '../upstream.ts';

export interface Reply {
  readonly status: number;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface StrictManager {
  readonly url: string;
  readonly received: Received[];
  /** What was wrong with requests; a test that leaves any has failed. */
  readonly faults: string[];
  /** Answered in place of all else while it is set: an outage, or throttling. */
  instead: Reply | 'hang up' | null;
  stop(): Promise<void>;
}

/** `answer` throws an Error that says what is wrong with the request. */
export async function startStrict(answer: (request: Received, url: URL) => Reply): Promise<StrictManager> {
  const faults: string[] = [];
  const upstream: FakeUpstream = await startUpstream((request, response) => {
    const { instead } = manager;
    if (instead === 'hang up') {
      response.socket?.destroy();
      return;
    }
    let reply: Reply;
    try {
      const made = answer(request, new URL(request.path, 'http://manager'));
      reply = instead ?? made;
    } catch (error) {
      faults.push(`${request.method} ${request.path}: ${error instanceof Error ? error.message : String(error)}`);
      reply = { status: 418, body: {} };
    }
    for (const [name, value] of Object.entries(reply.headers ?? {})) response.setHeader(name, value);
    sendJson(response, reply.status, reply.body);
  });
  const manager: StrictManager = {
    url: upstream.url,
    received: upstream.received,
    faults,
    instead: null,
    stop: () => upstream.stop(),
  };
  return manager;
}

/** Throws unless it holds. */
export function must(holds: boolean, what: string): void {
  if (!holds) throw new Error(what);
}

/** The JSON object of a request with these members and no other. */
export function members(request: Received, ...names: readonly string[]): Readonly<Record<string, unknown>> {
  const body = JSON.parse(request.body.toString('utf8')) as Record<string, unknown>;
  must(JSON.stringify(Object.keys(body).sort()) === JSON.stringify([...names].sort()), `members ${Object.keys(body)}`);
  return body;
}
