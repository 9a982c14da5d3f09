/** A provider of OpenAI's shape on loopback that holds objects from before Sluice, and a server with callers around it. */
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, type Received, sendJson, startUpstream } from '../support/upstream.ts';

/** Every call of the official client: `GET /files/{}`. A release that knows more of them is tested with them. */
export function clientCalls(): string[] {
  const root = join(dirname(createRequire(import.meta.url).resolve('openai')), 'resources');
  const calls = new Set<string>();
  for (const file of readdirSync(root, { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.mjs')) continue;
    const text = readFileSync(join(root, file), 'utf8');
    for (const [, verb = '', path = ''] of text.matchAll(
      /\.(get|post|delete|put|patch|getAPIList)\((?:path\s*)?[`'"]([^`'"]+)[`'"]/g,
    )) {
      const method = verb === 'getAPIList' ? 'GET' : verb.toUpperCase();
      calls.add(`${method} ${path.replace(/\$\{[^}]*\}/g, '{}').replace(/\?.*$/, '')}`);
    }
  }
  return [...calls].sort();
}

const file = (id: string) => ({
  id,
  object: 'file',
  bytes: 3,
  created_at: 1,
  filename: 'old.jsonl',
  purpose: 'fine-tune',
  status: 'processed',
});
const job = (id: string) => ({
  id,
  object: 'fine_tuning.job',
  created_at: 1,
  error: null,
  fine_tuned_model: `ft:${id}`,
  finished_at: 2,
  hyperparameters: { n_epochs: 1 },
  model: 'gpt-4o-mini',
  organization_id: 'org',
  result_files: [],
  status: 'succeeded',
  trained_tokens: 1,
  training_file: 'file-old',
  validation_file: null,
  seed: 1,
});
const batch = (id: string) => ({
  id,
  object: 'batch',
  endpoint: '/v1/chat/completions',
  errors: null,
  input_file_id: 'file-old',
  completion_window: '24h',
  status: 'completed',
  output_file_id: null,
  error_file_id: null,
  created_at: 1,
  request_counts: { total: 1, completed: 1, failed: 0 },
});
const response = (id: string, more: object = {}) => ({
  id,
  object: 'response',
  created_at: 1,
  status: 'completed',
  model: 'gpt-4o',
  output: [{ id: `msg_${id}`, type: 'message', role: 'assistant', status: 'completed', content: [] }],
  usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 },
  ...more,
});

let made = 0;
let calls = 0;
/** What was uploaded, by the id of the file. */
const contents = new Map<string, Buffer>();

/** The file of a form. */
function fileIn({ headers, body }: Received): Buffer {
  const boundary = /boundary="?([^";]+)/.exec(headers['content-type'] ?? '')?.[1] ?? '';
  const begin = body.indexOf('\r\n\r\n', body.indexOf('filename='));
  return body.subarray(begin + 4, body.indexOf(`\r\n--${boundary}`, begin));
}

/** Answers what OpenAI would, roughly: ids in the path are those of the answer. */
export function answerAsOpenAi(request: Received, answer: Parameters<FakeUpstream['answer']>[1]): unknown {
  const { pathname } = new URL(request.path, 'http://upstream');
  const [, , first = '', second, third] = decodeURIComponent(pathname).split('/');
  const name = first.toLowerCase();
  const body = request.headers['content-type']?.startsWith('application/json')
    ? (JSON.parse(request.body.toString()) as Record<string, unknown>)
    : {};
  const list = (data: readonly object[]) => sendJson(answer, 200, { object: 'list', data, has_more: false });
  const one = (make: (id: string) => object, prefix: string, id: string | undefined) =>
    request.method === 'GET' && id === undefined
      ? list([make(`${prefix}old`)])
      : request.method === 'DELETE'
        ? sendJson(answer, 200, { id, object: name, deleted: true })
        : sendJson(answer, 200, make(id ?? `${prefix}${++made}`));
  if (name === 'files' && third === 'content') {
    if (second === 'file-secret') return sendJson(answer, 403, { error: { message: 'Not this one.' } });
    return answer
      .writeHead(200, { 'content-type': 'application/octet-stream' })
      .end(contents.get(second ?? '') ?? 'old');
  }
  if (name === 'files' && request.method === 'POST') contents.set(`file-${made + 1}`, fileIn(request));
  if (name === 'files') return one(file, 'file-', second);
  if (name === 'batches') return one(batch, 'batch_', second);
  if (name === 'fine_tuning' && second === 'jobs') {
    const inner = pathname.split('/')[5];
    return inner === 'events' || inner === 'checkpoints' ? list([]) : one(job, 'ftjob-', third);
  }
  if (name === 'responses' && second === undefined && body.stream === true) {
    const id = `resp_${++made}`;
    const events = [
      { type: 'response.created', response: response(id, { output: [] }) },
      { type: 'response.output_item.done', output_index: 0, item: response(id).output[0] },
      { type: 'response.completed', response: response(id) },
    ];
    answer.writeHead(200, { 'content-type': 'text/event-stream' });
    return answer.end(events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join(''));
  }
  if (name === 'responses') {
    const more = body.store === false ? { store: false } : {};
    return sendJson(answer, 200, response(second ?? `resp_${++made}`, more));
  }
  if (name === 'conversations' || name === 'vector_stores' || name === 'containers')
    return sendJson(answer, 200, { id: second ?? `${name}_${++made}`, object: name });
  if (name === 'chat')
    return sendJson(answer, 200, { id: 'c', object: 'chat.completion', model: 'gpt-4o', choices: [], usage: {} });
  if (name === 'embeddings') return sendJson(answer, 200, { object: 'list', data: [], model: 'e', usage: {} });
  if (name === 'models' && second === undefined) return list([{ id: 'gpt-4o', object: 'model' }]);
  const last = pathname.split('/').at(-1) ?? '';
  const error = last.endsWith('_failed') ? { code: 'moderation_blocked', message: 'No.' } : null;
  return sendJson(answer, 200, { id: second ?? 'one', object: name, results: [], choices: [], data: [], error });
}

export interface World {
  readonly server: TestServer;
  readonly upstream: FakeUpstream;
  /** Keys of two workspaces of one organisation, and of another organisation. */
  readonly keys: Readonly<Record<'a' | 'b' | 'stranger', string>>;
  readonly workspaces: Readonly<Record<'a' | 'b', string>>;
  /** Slugs of the provider accounts, as each workspace calls them: one that a and b share, one of a alone. */
  readonly shared: Readonly<Record<'a' | 'b', string>>;
  readonly alone: string;
  call(
    key: string,
    slug: string | null,
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<{ status: number; body: Record<string, never> & { error?: unknown }; text: string; sent: number }>;
  stop(): Promise<void>;
}

export async function startWorld(env: Record<string, string> = {}): Promise<World> {
  const upstream = await startUpstream((request, answer) => {
    answerAsOpenAi(request, answer);
  });
  const server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}`, ...env });
  const done = async (method: string, path: string, body?: unknown, key?: string) => {
    const answer = await server.admin(method, path, body, key);
    if (answer.status !== 200) throw new Error(`${method} ${path}: ${JSON.stringify(answer)}`);
    return answer.body as Record<string, string>;
  };
  const a = server.first.workspace_id;
  const b = (await done('POST', '/admin/workspaces', { name: 'B', slug: 'b' })).id ?? '';
  const integration = async (slug: string, workspaces: readonly string[]) => {
    await done('POST', '/integrations', {
      name: slug,
      slug,
      ai_provider_id: 'openai',
      key: 'sk-stored',
      configurations: { custom_host: `${upstream.url}/v1` },
    });
    const entries = workspaces.map((id) => ({ id, enabled: true, create_default_provider: false }));
    await done('PUT', `/integrations/${slug}/workspaces`, { workspaces: entries });
    for (const [index, id] of workspaces.entries()) {
      const body = { name: slug, slug: `${slug}-${index}`, integration_id: slug, workspace_id: id };
      await done('POST', '/providers', body);
    }
  };
  await integration('shared', [a, b]);
  await integration('alone', [a]);
  const keyOf = async (workspace_id: string) =>
    (
      await done('POST', '/api-keys/workspace/service', {
        name: 'for ownership',
        workspace_id,
        scopes: ['completions.write'],
      })
    ).key ?? '';
  const stranger = await done(
    'POST',
    '/operator/organisations',
    { name: 'Other', owner: { email: 'eve@other.example', first_name: 'Eve', last_name: 'Other' } },
    server.first.operator_api_key,
  );
  return {
    server,
    upstream,
    keys: { a: await keyOf(a), b: await keyOf(b), stranger: stranger.workspace_api_key ?? '' },
    workspaces: { a, b },
    shared: { a: 'shared-0', b: 'shared-1' },
    alone: 'alone-0',
    async call(key, slug, method, path, body, headers = {}) {
      // Jobs and batches are also read in the background: only what this call sends has its mark.
      const mark = String(++calls);
      const answer = await fetch(`${server.url}/v1${path}`, {
        method,
        headers: {
          'x-gateway-api-key': key,
          ...(slug === null ? {} : { 'x-gateway-provider': slug.startsWith('=') ? slug.slice(1) : `@${slug}` }),
          ...(body === undefined || body instanceof FormData ? {} : { 'content-type': 'application/json' }),
          'x-gateway-forward-headers': 'x-test-call',
          'x-test-call': mark,
          ...headers,
        },
        ...(body === undefined
          ? {}
          : { body: body instanceof FormData ? body : typeof body === 'string' ? body : JSON.stringify(body) }),
      });
      const text = await answer.text();
      let parsed: never;
      try {
        parsed = JSON.parse(text) as never;
      } catch {
        parsed = {} as never;
      }
      return {
        status: answer.status,
        body: parsed,
        text,
        sent: upstream.received.filter((one) => one.headers['x-test-call'] === mark).length,
      };
    },
    async stop() {
      await server.stop();
      await upstream.stop();
    },
  };
}
