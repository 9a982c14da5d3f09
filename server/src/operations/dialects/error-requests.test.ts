/**
 * What real requests that fail are answered, over all planes and dialects: status, headers, bytes, and the name under
 * which the access log keeps the failure. Clients, retries and dashboards are built on each of them.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../../test/support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../../../test/support/upstream.ts';

let upstream: FakeUpstream;
let server: TestServer;
let lines: string[] = [];
let limitedKey = '';
let spentKey = '';
let readOnlyKey = '';

const HI = [{ role: 'user', content: 'Hi' }];
const CARD = [{ role: 'user', content: 'My card is 4111 1111 1111 1111.' }];
const DENY = { input_guardrails: [{ 'gateway.pii': { categories: ['CREDIT_CARD'] }, deny: true }] };
const BATCH = { input_file_id: 'file-x', endpoint: '/v1/chat/completions', completion_window: '24h' };

interface Bad {
  readonly path: string;
  readonly method?: string;
  /** A text is sent as it is, anything else as JSON. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** Default `workspace`. */
  readonly key?: 'workspace' | 'admin' | 'limited' | 'spent' | 'read' | 'wrong' | 'none';
}

const config = (value: object) => ({ 'x-gateway-config': JSON.stringify(value) });
const tooLong = `/v1/models?search=${'a'.repeat(9_000)}`;

/** The three ways of asking a model for a text: `model` and `more` vary. */
const ASKS: Readonly<Record<string, (model: unknown, more?: object) => { path: string; body: object }>> = {
  chat: (model: unknown, more: object = {}) => ({
    path: '/v1/chat/completions',
    body: { model, messages: HI, ...more },
  }),
  messages: (model: unknown, more: object = {}) => ({
    path: '/v1/messages',
    body: { model, messages: HI, max_tokens: 9, ...more },
  }),
  responses: (model: unknown, more: object = {}) => ({ path: '/v1/responses', body: { model, input: 'Hi', ...more } }),
};
type Ask = (typeof ASKS)[string];

const asked = (name: string, bad: (ask: Ask) => Bad): [string, Bad][] =>
  Object.entries(ASKS).map(([shape, ask]) => [`${shape}: ${name}`, bad(ask)]);

const MODEL_CALLS: readonly (readonly [string, Bad])[] = [
  ...asked('no key', (ask) => ({ ...ask('@sandbox/echo'), key: 'none' })),
  ...asked('a key that is wrong', (ask) => ({ ...ask('@sandbox/echo'), key: 'wrong' })),
  ...asked('a key of the administration', (ask) => ({ ...ask('@sandbox/echo'), key: 'admin' })),
  ...asked('a key that may only read', (ask) => ({ ...ask('@sandbox/echo'), key: 'read' })),
  ...asked('a key at its rate limit', (ask) => ({ ...ask('@sandbox/echo'), key: 'limited' })),
  ...asked('no JSON', (ask) => ({ path: ask('').path, body: '{"model": ' })),
  ...asked('a body that is a list', (ask) => ({ path: ask('').path, body: [] })),
  ...asked('a member twice', (ask) => ({ path: ask('').path, body: '{"model":"a","model":"b"}' })),
  ...asked('a body that is no JSON by its type', (ask) => ({
    ...ask('@sandbox/echo'),
    headers: { 'content-type': 'text/plain' },
  })),
  ...asked('a content coding that is not known', (ask) => ({
    ...ask('@sandbox/echo'),
    headers: { 'content-encoding': 'br' },
  })),
  ...asked('a coding that is not what it says', (ask) => ({
    ...ask('@sandbox/echo'),
    headers: { 'content-encoding': 'gzip' },
  })),
  ...asked('a body above the limit', (ask) => ask('@sandbox/echo', { user: 'x'.repeat(300_000) })),
  ...asked('a model that is a number', (ask) => ask(7)),
  ...asked('a stream that is a text', (ask) => ask('@sandbox/echo', { stream: 'yes' })),
  ...asked('no provider', (ask) => ask('gpt-4o')),
  ...asked('a provider that is not there', (ask) => ask('@nowhere/gpt-4o')),
  ...asked('a config that is no JSON', (ask) => ({
    ...ask('gpt-4o'),
    headers: { 'x-gateway-config': '{"provider":' },
  })),
  ...asked('a config that is not valid', (ask) => ({
    ...ask('gpt-4o'),
    headers: config({ retry: { attempts: 99 }, a: 1 }),
  })),
  ...asked('a config that is not there', (ask) => ({ ...ask('gpt-4o'), headers: { 'x-gateway-config': 'cf-none' } })),
  ...asked('a custom host that is private', (ask) => ({
    ...ask('gpt-4o'),
    headers: {
      'x-gateway-provider': 'openai',
      'x-gateway-custom-host': 'http://127.0.0.1:1/v1',
      authorization: 'Bearer sk-own',
    },
  })),
  ...asked('a refusal by a guardrail', (ask) => ({
    ...ask('echo', ask('').path === '/v1/responses' ? { input: CARD } : { messages: CARD }),
    headers: config({ provider: '@sandbox', ...DENY }),
  })),
  ...asked('a refusal by a provider', (ask) => ask('@openai-test/refused')),
  ...asked('a provider without capacity', (ask) => ask('@openai-test/busy')),
  ...asked('a provider that answers with text', (ask) => ask('@openai-test/text')),
  ...asked('a provider that hangs up', (ask) => ask('@openai-test/reset')),
  ...asked('an answer that is no JSON', (ask) => ask('@openai-test/odd')),
  ...asked('an answer that is cut', (ask) => ask('@openai-test/cut')),
  ...asked('a provider that does not answer in time', (ask) => ({
    ...ask('@openai-test/silent'),
    headers: { 'x-gateway-request-timeout': '50' },
  })),
  ...asked('a stream without content in time', (ask) => ({
    ...ask('silent', { stream: true }),
    headers: config({ provider: '@openai-test', request_timeout: 50 }),
  })),
  ...asked('a stream that is cut before its end', (ask) => ask('@openai-test/cut-stream', { stream: true })),
  ...asked('a stream that fails at once', (ask) => ask('@openai-test/failed-stream', { stream: true })),
  ...asked('a stream that fails after content', (ask) => ask('@openai-test/late-stream', { stream: true })),
  ...asked('a budget that is used up', (ask) => ({ ...ask('@sandbox/echo'), key: 'spent' })),
  ...asked('a dry run that is no word', (ask) => ({
    ...ask('@sandbox/echo'),
    headers: { 'x-gateway-dry-run': 'maybe' },
  })),
  ...asked('metadata that is no JSON', (ask) => ({
    ...ask('@sandbox/echo'),
    headers: { 'x-gateway-metadata': 'team=a' },
  })),
];

const INLINE: readonly Readonly<Record<string, string>>[] = [
  { 'x-gateway-config': '{}' },
  { 'x-gateway-provider': 'openai' },
  { 'x-gateway-custom-host': 'https://example.com' },
  { 'x-gateway-azure-resource-name': 'mine' },
  { 'x-gateway-forward-headers': 'x-a' },
];
const SAVED_ONLY: readonly (readonly [string, Bad])[] = INLINE.flatMap((headers) =>
  asked(Object.keys(headers).join(), (ask) => ({ ...ask('@sandbox/echo'), headers })),
);

const OTHER_CALLS: readonly (readonly [string, Bad])[] = [
  [
    'embeddings of a provider without them',
    { path: '/v1/embeddings', body: { model: '@anthropic-test/x', input: 'a' } },
  ],
  [
    'a parameter that a provider lacks',
    { path: '/v1/chat/completions', body: { model: '@anthropic-test/x', messages: HI, n: 2 } },
  ],
  ['a transcription without form', { path: '/v1/audio/transcriptions', body: { model: '@sandbox/echo' } }],
  [
    'a transcription with a broken form',
    {
      path: '/v1/audio/transcriptions',
      body: 'no form',
      headers: { 'content-type': 'multipart/form-data; boundary=x' },
    },
  ],
  [
    'token counting of a provider without it',
    { path: '/v1/messages/count_tokens', body: { model: '@openai-test/x', messages: HI } },
  ],
  ['a list of models sorted by nothing', { method: 'GET', path: '/v1/models?sort=age' }],
  ['a list of models with two limits', { method: 'GET', path: '/v1/models?limit=1&limit=2' }],
  ['a list of models without key', { method: 'GET', path: '/v1/models', key: 'none' }],
  [
    'a stored response that is not there',
    { method: 'GET', path: '/v1/responses/resp_none', headers: { 'x-gateway-provider': '@openai-test' } },
  ],
  ['a pass-through without provider', { path: '/v1/proxy/anything', body: {} }],
  [
    'a pass-through with dot segments',
    { path: '/v1/proxy/%2e%2e/x', body: {}, headers: { 'x-gateway-provider': '@openai-test' } },
  ],
  ['a misspelt path', { method: 'GET', path: '/v1/chats' }],
  ['a path that nobody has', { method: 'GET', path: '/nothing' }],
  ['a path with another method', { method: 'GET', path: '/v1/chat/completions' }],
  ['a target that is too long', { method: 'GET', path: tooLong }],
  ['a target with a broken escape', { method: 'GET', path: '/v1/models/%zz' }],
  ['a file without form', { path: '/v1/files', body: {} }],
  [
    'a file whose form is broken',
    { path: '/v1/files', body: 'no form', headers: { 'content-type': 'multipart/form-data; boundary=x' } },
  ],
  ['a file without provider', { method: 'GET', path: '/v1/files/file-x' }],
  [
    'a file of the gateway that is not there',
    { method: 'GET', path: '/v1/files/file-x', headers: { 'x-gateway-provider': 'gateway' } },
  ],
  [
    'a file of the sandbox that is not there',
    { method: 'GET', path: '/v1/files/file-x', headers: { 'x-gateway-provider': '@sandbox' } },
  ],
  [
    'a file of a provider that is not there',
    { method: 'GET', path: '/v1/files/file-x', headers: { 'x-gateway-provider': '@openai-test' } },
  ],
  [
    'files of a provider without them',
    { method: 'GET', path: '/v1/files', headers: { 'x-gateway-provider': '@anthropic-test' } },
  ],
  [
    'a list of files with a bad limit',
    { method: 'GET', path: '/v1/files?limit=many', headers: { 'x-gateway-provider': 'gateway' } },
  ],
  [
    'a batch with fields that are wrong',
    { path: '/v1/batches', body: { endpoint: 7, a: 1 }, headers: { 'x-gateway-provider': 'gateway' } },
  ],
  [
    'a batch of a file that is not there',
    { path: '/v1/batches', body: BATCH, headers: { 'x-gateway-provider': 'gateway' } },
  ],
  [
    'a batch of the sandbox with a file that is not there',
    { path: '/v1/batches', body: BATCH, headers: { 'x-gateway-provider': '@sandbox' } },
  ],
  [
    'a batch that is not there',
    { method: 'GET', path: '/v1/batches/batch_x', headers: { 'x-gateway-provider': 'gateway' } },
  ],
  ['a batch without provider', { path: '/v1/batches', body: BATCH }],
  [
    'a job with fields that are wrong',
    { path: '/v1/fine_tuning/jobs', body: { model: 7 }, headers: { 'x-gateway-provider': '@sandbox' } },
  ],
  ['a job that is no JSON', { path: '/v1/fine_tuning/jobs', body: '{', headers: { 'x-gateway-provider': '@sandbox' } }],
  [
    'a job of a provider without them',
    { method: 'GET', path: '/v1/fine_tuning/jobs', headers: { 'x-gateway-provider': '@anthropic-test' } },
  ],
  [
    'a job that is not there',
    { method: 'GET', path: '/v1/fine_tuning/jobs/ftjob-x', headers: { 'x-gateway-provider': '@sandbox' } },
  ],
];

const ADMINISTRATION: readonly (readonly [string, Bad])[] = [
  ['no key', { method: 'GET', path: '/v1/configs', key: 'none' }],
  ['a wrong key', { method: 'GET', path: '/v1/configs', key: 'wrong' }],
  ['a key without the scope', { method: 'POST', path: '/v1/configs', body: { name: 'a', config: {} }, key: 'read' }],
  ['no JSON', { path: '/v1/configs', body: '{"name": ', key: 'admin' }],
  ['a list', { path: '/v1/configs', body: [], key: 'admin' }],
  ['another content type', { path: '/v1/configs', body: 'a', headers: { 'content-type': 'text/plain' }, key: 'admin' }],
  [
    'a content coding that is not known',
    { path: '/v1/configs', body: {}, headers: { 'content-encoding': 'br' }, key: 'admin' },
  ],
  ['fields that are wrong', { path: '/v1/configs', body: { name: 7, odd: 1 }, key: 'admin' }],
  [
    'a config that is not valid',
    { path: '/v1/configs', body: { name: 'a', config: { retry: { attempts: 99 } } }, key: 'workspace' },
  ],
  ['no workspace', { path: '/v1/configs', body: { name: 'a', config: {} }, key: 'admin' }],
  ['an object that is not there', { method: 'GET', path: '/v1/configs/none', key: 'admin' }],
  [
    'a reference that is not there',
    { path: '/v1/providers', body: { name: 'a', slug: 'a', integration_id: 'none' }, key: 'workspace' },
  ],
  [
    'a name that is taken',
    {
      path: '/v1/integrations',
      body: { name: 'a', slug: 'openai-test-integration', ai_provider_id: 'openai', key: 'sk-x' },
      key: 'admin',
    },
  ],
  ['another method', { method: 'DELETE', path: '/v1/configs', key: 'admin' }],
  ['a query that is not known', { method: 'GET', path: '/v1/configs?odd=1', key: 'admin' }],
  ['a query with a broken escape', { method: 'GET', path: '/v1/configs?a=%zz', key: 'admin' }],
  [
    'an idempotency key that is too long',
    {
      path: '/v1/configs',
      body: { name: 'a', config: {} },
      headers: { 'idempotency-key': 'x'.repeat(300) },
      key: 'workspace',
    },
  ],
  [
    'a custom host that is private',
    {
      path: '/v1/integrations',
      body: {
        name: 'p',
        slug: 'p',
        ai_provider_id: 'openai',
        key: 'sk-x',
        configurations: { custom_host: 'http://127.0.0.1:1' },
      },
      key: 'admin',
    },
  ],
  ['the console without a session', { method: 'GET', path: '/console/api/session', key: 'none' }],
  ['a sign-in link that is not valid', { path: '/console/api/session', body: { link: 'x' }, key: 'none' }],
  // The last one: the server closes its connection.
  ['a body above the limit', { path: '/v1/configs', body: { name: 'x'.repeat(1_060_000) }, key: 'admin' }],
];

/** What differs from run to run. */
function steady(text: string): string {
  return text
    .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, '<id>')
    .replaceAll(String(upstream.port), '<port>')
    .replaceAll(server.url, '<url>')
    .replace(/in \d+ s\b/g, 'in <n> s')
    .replace(/"(execution_time|latency_ms|created_at|created)":("[^"]*"|[\d.]+)/g, '"$1":<n>')
    .slice(0, 1500);
}

const HEADERS = ['content-type', 'retry-after', 'allow', 'cache-control', 'x-request-id', 'www-authenticate'];

interface Said {
  readonly id: string | null;
  readonly text: string;
}

async function sayingOf({ path, method = 'POST', body, headers = {}, key = 'workspace' }: Bad): Promise<Said> {
  const keys = {
    workspace: server.first.workspace_api_key,
    admin: server.first.admin_api_key,
    limited: limitedKey,
    spent: spentKey,
    read: readOnlyKey,
    wrong: `slc_${'0'.repeat(44)}`,
    none: null,
  };
  const credential = keys[key];
  const answer = await fetch(`${server.url}${path}`, {
    method,
    headers: {
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(credential === null ? {} : { 'x-gateway-api-key': credential }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await answer.text().catch(() => '<cut>');
  const head = HEADERS.flatMap((name) => {
    const value = answer.headers.get(name);
    if (value === null) return [];
    return [`${name}=${name === 'retry-after' ? '<n>' : value}`];
  });
  return { id: answer.headers.get('x-gateway-request-id'), text: steady(`${answer.status} ${head.join(' ')} ${text}`) };
}

/** What the access log says of each request. Its lines are written after the answers. */
async function logged(): Promise<Map<unknown, unknown>> {
  for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve));
  const entries = lines.splice(0).map((line) => JSON.parse(line) as Record<string, unknown>);
  return new Map(entries.map(({ request_id: id, error }) => [id, error]));
}

async function saidOf(table: readonly (readonly [string, Bad])[]): Promise<Record<string, string>> {
  const said: [string, Said][] = [];
  for (const [name, bad] of table) said.push([name, await sayingOf(bad)]);
  const log = await logged();
  const all = Object.fromEntries(said.map(([name, { id, text }]) => [name, `${text} log=${log.get(id) ?? 'none'}`]));
  expect(Object.keys(all)).toHaveLength(table.length);
  return all;
}

beforeAll(async () => {
  upstream = await startUpstream((request, response) => {
    const { model } = JSON.parse(request.body.toString() || '{}') as { model?: string };
    const event = (data: object) => `data: ${JSON.stringify(data)}\n\n`;
    const chunk = event({
      id: 'c',
      object: 'chat.completion.chunk',
      created: 1,
      model,
      choices: [{ index: 0, delta: { content: 'Hi' } }],
    });
    const failed = event({ error: { message: 'Broke down.', type: 'server_error', code: 'gpu_lost' } });
    const stream = (...events: string[]) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(events.join(''));
    };
    if (model === 'refused')
      return sendJson(
        response,
        400,
        '{"error":{"message":"No.","type":"invalid_request_error","param":"a","code":"odd_one"}}',
      );
    if (model === 'busy') return sendJson(response, 503, '{"error":{"message":"Full.","type":"overloaded_error"}}');
    if (model === 'text') {
      response.writeHead(500, { 'content-type': 'text/plain' });
      return void response.end('It is down.');
    }
    if (model === 'reset') return void response.destroy();
    if (model === 'silent') return;
    if (model === 'odd') return sendJson(response, 200, '{"half":');
    if (model === 'cut') {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': '100' });
      return void response.write('{"id":', () => response.destroy());
    }
    if (model === 'cut-stream') return stream(chunk);
    if (model === 'failed-stream') return stream(failed);
    if (model === 'late-stream') return stream(chunk, failed);
    sendJson(
      response,
      404,
      '{"error":{"message":"Not found.","type":"invalid_request_error","param":null,"code":null}}',
    );
  });
  server = await startServer(
    { SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}`, SLUICE_ACCESS_LOG: 'all', SLUICE_MAX_BODY_BYTES: '262144' },
    { writeAccess: (text) => void lines.push(...text.split('\n').filter((line) => line !== '')) },
  );
  await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
  await server.provider({ id: 'anthropic', host: `${upstream.url}/v1` });
  const create = async (body: object) => {
    const made = await server.admin('POST', '/api-keys/workspace/service', {
      workspace_id: server.first.workspace_id,
      ...body,
    });
    expect(made.status).toBe(200);
    return String(made.body.key);
  };
  limitedKey = await create({
    name: 'limited',
    scopes: ['completions.write'],
    rate_limits: [{ type: 'requests', unit: 'rpd', value: 1 }],
  });
  readOnlyKey = await create({ name: 'reader', scopes: ['configs.read'] });
  await server.call('/chat/completions', { model: '@sandbox/echo', messages: HI }, { 'x-gateway-api-key': limitedKey });
  spentKey = await create({
    name: 'spent',
    scopes: ['completions.write'],
    usage_limits: { type: 'tokens', credit_limit: 1 },
  });
  await server.call('/chat/completions', { model: '@sandbox/echo', messages: HI }, { 'x-gateway-api-key': spentKey });
  await server.records();
  lines = [];
});
afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

describe('a request that fails is answered byte for byte as clients know it', () => {
  it('calls of models, in each dialect', async () => {
    expect(await saidOf(MODEL_CALLS)).toMatchSnapshot();
  });
  it('other calls of the data plane', async () => {
    expect(await saidOf(OTHER_CALLS)).toMatchSnapshot();
  });
  it('calls that a mode of saved settings forbids, in each dialect', async () => {
    const settings = (block: boolean) =>
      server.admin('PUT', '/admin/organisation/settings', {
        data_plane_security_settings: { block_inline_config: block },
      });
    expect((await settings(true)).status).toBe(200);
    lines = [];
    expect(await saidOf(SAVED_ONLY)).toMatchSnapshot();
    await settings(false);
    lines = [];
  });
  it('the administration and the console', async () => {
    expect(await saidOf(ADMINISTRATION)).toMatchSnapshot();
  });
});
