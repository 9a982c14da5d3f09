/** Requests that are made so that guardrails and providers might read them differently, through a whole server. */
import { request as httpRequest } from 'node:http';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

const WORD = 'swordfish';
const DENIED = { id: 'g', deny: true, 'default.contains': { words: [WORD], operator: 'none' } };
const JSON_TYPE = { 'content-type': 'application/json' };

const deployment = (model: string, is_default = false) => ({
  azure_deployment_name: `${model}-eu`,
  azure_api_version: 'v1',
  azure_model_slug: model,
  alias: model,
  is_default,
});

let upstream: FakeUpstream;
let server: TestServer;
let slug: string;
let azure: string;

beforeAll(async () => {
  upstream = await startUpstream((_request, response) =>
    sendJson(response, 200, {
      id: 'x',
      object: 'chat.completion',
      created: 1,
      model: 'gpt-4o',
      choices: [{ index: 0, message: { role: 'assistant', content: 'ok' }, finish_reason: 'stop' }],
    }),
  );
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  slug = await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
  azure = await server.provider({
    id: 'azure-openai',
    host: `${upstream.url}/openai/v1`,
    configurations: {
      azure_resource_name: 'res',
      azure_auth_mode: 'default',
      azure_deployment_config: [deployment('small', true), deployment('gpt-4o')],
    },
  });
});
afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});
beforeEach(() => {
  upstream.received.length = 0;
});

interface Sent {
  readonly path: string;
  readonly body?: Buffer | string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly guardrail?: object;
  readonly provider?: string;
}

/** As it is written: other clients mend addresses. Answers the status, and what the error is called. */
function send({
  path,
  body,
  headers = JSON_TYPE,
  guardrail = DENIED,
  provider = slug,
}: Sent): Promise<[number, unknown]> {
  const config = { provider: `@${provider}`, input_guardrails: [guardrail] };
  return new Promise((resolve, reject) => {
    const call = httpRequest(
      `${server.url}`,
      {
        path: `/v1${path}`,
        method: body === undefined ? 'GET' : 'POST',
        headers: {
          'x-gateway-api-key': server.first.workspace_api_key,
          'x-gateway-config': JSON.stringify(config),
          ...(body === undefined ? {} : headers),
        },
      },
      (answer) => {
        const parts: Buffer[] = [];
        answer.on('data', (part: Buffer) => parts.push(part));
        answer.on('end', () => {
          const { error } = JSON.parse(Buffer.concat(parts).toString()) as { error?: { code: string; type: string } };
          resolve([answer.statusCode ?? 0, error?.code ?? error?.type]);
        });
      },
    );
    call.on('error', reject);
    call.end(body);
  });
}

const chat = (text: string) => JSON.stringify({ model: 'gpt-4o', messages: [{ role: 'user', content: text }] });
const latin = (text: string) => Buffer.from(text, 'latin1');
const UNSEEN: [number, string] = [400, 'guardrail_not_enforced'];
const REFUSED: [number, string] = [446, 'hooks_failed'];

describe('a text is not sent past a guardrail', () => {
  it.each<[string, Sent, [number, unknown]]>([
    [
      'as sound, where the server may not believe it',
      {
        path: '/proxy/chat/completions',
        body: latin(`${chat(WORD).slice(0, -1)},"x":"\u00e9"}`),
        headers: { 'content-type': 'audio/wav' },
      },
      UNSEEN,
    ],
    [
      'as sound with what is no text behind it',
      { path: '/images/edits', body: latin(`  ${chat(WORD)}\0\u00ff`), headers: { 'content-type': 'audio/wav' } },
      UNSEEN,
    ],
    [
      'as sound with a letter that is no UTF-8',
      { path: '/audio/transcriptions', body: latin(`${WORD}\u00e9`), headers: { 'content-type': 'audio/wav' } },
      UNSEEN,
    ],
    ['in a list that names a member twice', { path: '/proxy/x', body: `[{"a":"\\u0073wordfish","a":""}]` }, REFUSED],
    ['in what only says that it is JSON', { path: '/proxy/x', body: WORD }, REFUSED],
    [
      'in a list that is no UTF-8',
      { path: '/proxy/x', body: latin('["\u00c1\u00b3wordfish"]') },
      [400, 'invalid_request_error'],
    ],
    [
      'in a list as deep as a stack',
      { path: '/proxy/x', body: `${'['.repeat(50_000)}"${WORD}"${']'.repeat(50_000)}` },
      REFUSED,
    ],
    ['in the query', { path: `/proxy/ask?prompt=${WORD}` }, REFUSED],
    ['in the query of a known operation', { path: `/chat/completions?note=the%20${WORD}`, body: chat('hi') }, REFUSED],
    ['in the name of a parameter', { path: `/proxy/ask?the%20${WORD}=1` }, REFUSED],
    ['in the path', { path: `/proxy/ask/the%20${WORD}` }, REFUSED],
  ])('%s', async (_, sent, expected) => {
    expect(await send(sent)).toEqual(expected);
    expect(upstream.received).toEqual([]);
  });

  it('in a coding that is told to the provider alone', async () => {
    const headers = { 'content-type': 'application/json; charset=utf-7' };
    expect(await send({ path: '/chat/completions', body: chat('+AHM-wordfish'), headers })).toEqual([200, undefined]);
    expect(upstream.received.map((one) => one.headers['content-type'])).toEqual(['application/json']);
  });
});

it('what an address says of how a call is made is no text', async () => {
  const guardrail = { id: 'g', deny: true, 'default.regexMatch': { rule: '.', not: true } };
  const path = '/proxy/things?limit=20&stream=true&after=c3RhcnQ%3D&api-version=2025-01-01&n=3';
  expect(await send({ path, guardrail })).toEqual([200, undefined]);
});

describe('a model that is kept out is not reached', () => {
  const kept = { id: 'g', deny: true, 'default.modelWhitelist': { models: ['gpt-4o', 'openai/gpt-5'], inverse: true } };
  const listed = { id: 'g', deny: true, 'default.modelWhitelist': { models: ['small'] } };
  const rules = { id: 'g', deny: true, 'default.modelRules': { rules: { defaults: ['small'] } } };
  const asking = (more: object) => JSON.stringify({ model: 'small', messages: [], ...more });

  it.each<[string, Sent]>([
    ['in capitals', { path: '/chat/completions', body: asking({ model: 'GPT-4o' }), guardrail: kept }],
    [
      'with its provider, in capitals',
      { path: '/chat/completions', body: asking({ model: 'GPT-5' }), guardrail: kept },
    ],
    ['with a space', { path: '/chat/completions', body: asking({ model: 'gpt-4o ' }), guardrail: kept }],
    [
      'in a list of models',
      { path: '/chat/completions', body: asking({ models: ['small', 'gpt-4o'] }), guardrail: kept },
    ],
    [
      'as a fallback',
      { path: '/chat/completions', body: asking({ fallbacks: [{ model: 'gpt-4o' }] }), guardrail: listed },
    ],
    ['in a list, under rules', { path: '/chat/completions', body: asking({ models: ['gpt-4o'] }), guardrail: rules }],
    ['by its path', { path: '/proxy/v1beta/models/gpt-4o:generateContent', body: '{}', guardrail: kept }],
    ['by its path, under rules', { path: '/proxy/model/large%3A0/invoke', body: '{}', guardrail: rules }],
    [
      'by a path of another model',
      { path: '/proxy/deployments/large/chat/completions', body: asking({}), guardrail: listed },
    ],
    [
      'by a deployment of the caller',
      {
        path: '/chat/completions',
        body: asking({}),
        guardrail: listed,
        provider: 'azure',
        headers: { ...JSON_TYPE, 'x-gateway-azure-deployment-id': 'gpt-4o-eu' },
      },
    ],
    [
      'by a deployment of the caller, whose model is kept out',
      {
        path: '/chat/completions',
        body: asking({}),
        guardrail: kept,
        provider: 'azure',
        headers: { ...JSON_TYPE, 'x-gateway-azure-deployment-name': 'gpt-4o-eu' },
      },
    ],
  ])('%s', async (_, sent) => {
    const provider = sent.provider === 'azure' ? azure : slug;
    expect(await send({ ...sent, provider })).toEqual(REFUSED);
    expect(upstream.received).toEqual([]);
  });

  it.each([kept, listed, rules])('in a form that cannot be read', async (guardrail) => {
    const headers = { 'content-type': 'application/x-www-form-urlencoded' };
    expect(await send({ path: '/proxy/x', body: 'model=gpt-4o', headers, guardrail })).toEqual(UNSEEN);
    expect(upstream.received).toEqual([]);
  });

  it('and one that is allowed is, by its name, its path and the deployment that the account has for it', async () => {
    for (const sent of [
      { path: '/chat/completions', body: asking({}), guardrail: listed, provider: azure },
      { path: '/chat/completions', body: asking({ models: ['small'] }), guardrail: listed },
      { path: '/proxy/model/small/invoke', body: '{}', guardrail: rules },
    ])
      expect(await send(sent)).toEqual([200, undefined]);
  });
});

describe('what a model has said is not given in disguise', () => {
  const answers = async (status: number, body: Buffer | string) => {
    const { answer } = upstream;
    upstream.answer = (_request, response) =>
      void response.writeHead(status, { 'content-type': 'application/json' }).end(body);
    try {
      const given = await server.call(
        '/chat/completions',
        { model: 'gpt-4o', messages: [] },
        { 'x-gateway-config': JSON.stringify({ provider: `@${slug}`, output_guardrails: [DENIED] }) },
      );
      return [given.status, await given.text()] as const;
    } finally {
      upstream.answer = answer;
    }
  };

  it('in an error, of which what it was about is left', async () => {
    const error = { message: 'Failed to call a function.', type: 'invalid_request_error', code: 'tool_use_failed' };
    const [status, text] = await answers(400, JSON.stringify({ error: { ...error, failed_generation: WORD } }));
    expect([status, JSON.parse(text)]).toEqual([400, { error: { ...error, param: null } }]);
  });

  it.each([
    ['in a member that is there twice', '{"choices":[{"message":{"content":"\\u0073wordfish","content":"a"}}]}'],
    ['in what is no UTF-8', latin('{"choices":[{"message":{"content":"\u00c1\u00b3wordfish"}}]}')],
  ])('%s', async (_, body) => {
    const [status, text] = await answers(200, body);
    expect(status).toBe(446);
    expect(text).not.toContain('wordfish');
  });
});
