/** A server whose providers a, b and c answer as told, and requests with a config. */
import { startServer, type TestServer } from './server.ts';
import { type FakeUpstream, sendJson, startUpstream } from './upstream.ts';

type Answer = FakeUpstream['answer'];

export interface Told {
  readonly status: number;
  /** Of the target whose answer it is. */
  readonly path: string | null;
  readonly retries: string | null;
  readonly text: string;
  readonly headers: Headers;
}

export const answerOf = (name: string, model = `model-${name}`) => ({
  id: `answer-${name}`,
  object: 'chat.completion',
  created: 1767225600,
  model,
  choices: [{ index: 0, message: { role: 'assistant', content: `from ${name}` }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 },
});

export const ok =
  (name: string, model?: string): Answer =>
  (_request, response) =>
    sendJson(response, 200, answerOf(name, model));

export const fails =
  (status: number, headers: Record<string, string> = {}): Answer =>
  (_request, response) => {
    for (const [header, value] of Object.entries(headers)) response.setHeader(header, value);
    const error = { message: `status ${status}`, type: 'server_error', code: null, param: null };
    sendJson(response, status, { error });
  };

export const target = (name: string, more: object = {}) => ({ provider: `@${name}`, ...more });
export const fallback = (targets: object[], more: object = {}) => ({
  strategy: { mode: 'fallback', ...more },
  targets,
});
export const balanced = (targets: object[], more: object = {}) => ({
  strategy: { mode: 'loadbalance', ...more },
  targets,
});
export const chat = (extra: object = {}) => ({
  model: 'gpt-4o',
  messages: [{ role: 'user', content: 'Hello' }],
  ...extra,
});

export interface RoutingServer {
  readonly server: TestServer;
  of(name: string): FakeUpstream;
  /** How often each provider was called. */
  counts(): number[];
  /** Everybody answers again, and what was received is forgotten. */
  reset(): void;
  /** The slug of a config that is saved. */
  saved(config: object): Promise<string>;
  ask(config: unknown, extra?: object, headers?: Record<string, string>): Promise<Told>;
  stop(): Promise<void>;
}

export async function startRouting(
  env: Record<string, string> = {},
  given: Parameters<typeof startServer>[1] = {},
): Promise<RoutingServer> {
  const upstreams = new Map<string, FakeUpstream>();
  for (const name of ['a', 'b', 'c']) upstreams.set(name, await startUpstream(ok(name)));
  const trusted = [...upstreams.values()].map(({ port }) => `127.0.0.1:${port}`).join(',');
  const server = await startServer({ SLUICE_TRUSTED_HOSTS: trusted, ...env }, given);
  for (const [name, { url }] of upstreams)
    await server.provider({ id: 'openai', slug: name, host: `${url}/v1`, key: `sk-${name}-credential` });
  return {
    server,
    of(name) {
      const upstream = upstreams.get(name);
      if (upstream === undefined) throw new Error(`no upstream ${name}`);
      return upstream;
    },
    counts: () => [...upstreams.values()].map(({ received }) => received.length),
    reset() {
      for (const [name, upstream] of upstreams) {
        upstream.answer = ok(name);
        upstream.received.length = 0;
      }
    },
    async saved(config) {
      const body = { name: 'routing', config, workspace_id: server.first.workspace_id };
      const made = await server.admin('POST', '/configs', body);
      if (made.status !== 200) throw new Error(JSON.stringify(made.body));
      return String(made.body.slug);
    },
    async ask(config, extra = {}, headers = {}) {
      const text = typeof config === 'string' ? config : JSON.stringify(config);
      const answer = await server.call('/chat/completions', chat(extra), { 'x-gateway-config': text, ...headers });
      return {
        status: answer.status,
        path: answer.headers.get('x-gateway-last-used-option-index'),
        retries: answer.headers.get('x-gateway-retry-attempt-count'),
        text: await answer.text(),
        headers: answer.headers,
      };
    },
    async stop() {
      await server.stop();
      for (const upstream of upstreams.values()) await upstream.stop();
    },
  };
}
