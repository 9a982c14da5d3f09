/** How long the event loop of a server in a process of its own is held by what it is sent and answered. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { slowness } from './cost.ts';
import { type FakeUpstream, startUpstream } from './upstream.ts';

export const MB = 1024 * 1024;
/** About the largest body that may be sent. */
export const BODY = 31 * MB;

/** What the upstream answers. */
export interface Answered {
  readonly type?: string;
  readonly status?: number;
  readonly parts: readonly (string | Buffer)[];
}

/** One request, and what it is answered upstream. */
export interface LoopCase {
  readonly title: string;
  readonly method?: string;
  readonly path?: string;
  readonly slug?: string;
  readonly key?: string;
  /** Made anew for each run, counted from 0, where what was compiled for the run before would be found again. */
  readonly body?: string | Buffer | ((run: number) => string);
  readonly headers?: Readonly<Record<string, string>>;
  /** By the path that is asked for upstream. */
  readonly answer?: (path: string) => Answered;
  /** Statuses that the caller may get; absent: any. */
  readonly statuses?: readonly number[];
}

export const SMALL = '{"model":"m","messages":[{"role":"user","content":"Hi"}],"max_tokens":9}';

export interface LoopServer {
  readonly url: string;
  /** Of the workspace, and of the organisation. */
  readonly key: string;
  readonly admin: string;
  readonly workspace: string;
  readonly upstream: FakeUpstream;
  /** Milliseconds of CPU of the longest turn that the case causes, and the status it got; 0 where the body was refused midway. */
  longestTurn(one: LoopCase, run?: number): Promise<{ readonly ms: number; readonly status: number }>;
  /**
   * The least of several runs: noise only adds. Ends with the first below `bar`, after eight at the latest. In time of the
   * machine that the bars were set on.
   */
  measured(one: LoopCase, bar: number, runs?: number): Promise<number>;
  stop(): Promise<void>;
}

/** The answer; null where the server has refused the body and closed the connection before all of it was sent. */
const sent = (url: string, init: RequestInit): Promise<Response | null> => fetch(url, init).catch(() => null);

export async function startLoopServer(): Promise<LoopServer> {
  const upstream = await startUpstream((_request, response) => {
    response.end();
  });
  const child: ChildProcess = fork(
    fileURLToPath(new URL('./children/loop-server.ts', import.meta.url)),
    [JSON.stringify({ port: upstream.port })],
    { execArgv: ['--expose-gc', '--max-semi-space-size=8', ...(process.env.SLUICE_LOOP_ARGS?.split(' ') ?? [])] },
  );
  const [{ url, key, admin, workspace }] = (await once(child, 'message')) as [Record<string, string>];
  const told = async (question: string): Promise<Record<string, number>> => {
    const answer = once(child, 'message');
    child.send(question);
    return (await answer)[0] as Record<string, number>;
  };
  const longestTurn: LoopServer['longestTurn'] = async (one, run = 0) => {
    const { method = 'POST', path = '/messages', slug, body = SMALL, headers, answer } = one;
    upstream.answer = async (request, response) => {
      const { type = 'application/json', status = 200, parts } = answer?.(request.path) ?? { parts: ['{}'] };
      response.writeHead(status, { 'content-type': type });
      response.on('error', () => {});
      for (const part of parts) {
        if (response.destroyed) return;
        if (!response.write(part)) await Promise.race([once(response, 'drain'), once(response, 'close')]);
      }
      response.end();
    };
    await told('watch');
    const given = await sent(`${url}/v1${path}`, {
      method,
      headers: {
        'x-gateway-api-key': one.key ?? key ?? '',
        ...(slug === undefined ? {} : { 'x-gateway-provider': `@${slug}` }),
        ...(method === 'GET' ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(method === 'GET' ? {} : { body: typeof body === 'function' ? body(run) : body }),
    });
    try {
      for await (const _ of given?.body ?? []) {
        // Read to its end, or to where it is cut.
      }
    } catch {
      // A cut is an answer too.
    }
    upstream.received.length = 0;
    return { ms: (await told('tell')).longest ?? 0, status: given?.status ?? 0 };
  };
  return {
    url: url ?? '',
    key: key ?? '',
    admin: admin ?? '',
    workspace: workspace ?? '',
    upstream,
    longestTurn,
    async measured(one, bar, runs = 8) {
      let best = Number.POSITIVE_INFINITY;
      let last = 0;
      for (let run = 0; run < runs && best >= bar; run++) {
        const { ms, status } = await longestTurn(one, run);
        last = status;
        if (one.statuses !== undefined && !one.statuses.includes(status))
          throw new Error(`${one.title}: the answer has status ${status}`);
        best = Math.min(best, ms < bar ? ms : ms / slowness());
      }
      if (process.env.SLUICE_SHOW_DELAYS !== undefined)
        process.stderr.write(`${one.title.padEnd(76)} ${String(last).padEnd(4)} ${best.toFixed(1)}\n`);
      return best;
    },
    async stop() {
      if (child.connected) {
        const ended = once(child, 'exit');
        child.send('stop');
        await ended;
      }
      await upstream.stop();
    },
  };
}
