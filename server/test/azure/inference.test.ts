import Anthropic from '@anthropic-ai/sdk';
import OpenAI, { AzureOpenAI, toFile } from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import type { StrictUpstream } from '../support/strict-upstream.ts';
import { AZURE_KEY, AZURE_VERSION, BLOCKED, startAzureInference } from '../support/upstreams/azure-inference.ts';

type Surface = 'v1' | 'dated';

let upstreams: Record<Surface, StrictUpstream>;
let server: TestServer;

const deployments = (version: string) => [
  { azure_api_version: version, azure_deployment_name: 'chat-prod', azure_model_slug: 'gpt-4o', alias: 'best' },
  { azure_api_version: version, azure_deployment_name: 'chat-small', azure_model_slug: 'gpt-4o-mini' },
  { azure_api_version: version, azure_deployment_name: 'vectors', azure_model_slug: 'text-embedding-3-small' },
];

beforeAll(async () => {
  const [v1, dated] = await Promise.all([startAzureInference('v1'), startAzureInference('dated')]);
  upstreams = { v1, dated };
  server = await startServer({ SLUICE_TRUSTED_HOSTS: '127.0.0.0/8' });
  for (const [slug, host, version] of [
    ['azure-v1', `${v1.url}/openai/v1`, 'v1'],
    ['azure-dated', `${dated.url}/openai`, AZURE_VERSION],
  ] as const) {
    await server.provider({
      id: 'azure-openai',
      slug,
      host,
      key: AZURE_KEY,
      configurations: {
        azure_auth_mode: 'default',
        azure_resource_name: 'my-resource',
        azure_deployment_config: deployments(version),
      },
    });
  }
});
afterAll(async () => {
  await server?.stop();
  await Promise.all([upstreams?.v1.stop(), upstreams?.dated.stop()]);
});
afterEach(() => expect([...upstreams.v1.faults.splice(0), ...upstreams.dated.faults.splice(0)]).toEqual([]));

const HI = [{ role: 'user' as const, content: 'Hi' }];

describe.each(['v1', 'dated'] as const)('an Azure account on the %s surface', (surface) => {
  let client: OpenAI;
  const azure = (): StrictUpstream => upstreams[surface];
  const pathOf = (operation: string, deployment: string) =>
    surface === 'v1'
      ? `/openai/v1${operation}`
      : `/openai/deployments/${deployment}${operation}?api-version=${AZURE_VERSION}`;

  beforeAll(() => {
    client = new OpenAI({
      apiKey: server.first.workspace_api_key,
      baseURL: `${server.url}/v1`,
      maxRetries: 0,
      defaultHeaders: { 'x-gateway-provider': `@azure-${surface}` },
    });
  });

  it.each([
    ['its alias', 'best', 'chat-prod'],
    ['the deployment', 'chat-prod', 'chat-prod'],
    ['its model', 'gpt-4o-mini', 'chat-small'],
    ['the slug of the account before it', `@azure-${surface}/best`, 'chat-prod'],
  ])(
    'is asked for a model by %s, and the answer keeps what the content filter found',
    async (_by, model, deployment) => {
      const answer = await client.chat.completions.create({ model, messages: HI });
      expect(answer.choices[0]?.message.content).toBe('Hello from Azure');
      expect(answer).toMatchObject({
        prompt_filter_results: [{ prompt_index: 0 }],
        choices: [{ content_filter_results: { hate: { filtered: false } } }],
      });
      expect(azure().received.at(-1)?.path).toBe(pathOf('/chat/completions', deployment));
      if (surface === 'v1') expect(azure().last.model).toBe(deployment);
    },
  );

  it('streams, also the chunk that only tells what the filter found, and asks for the usage by itself', async () => {
    const stream = await client.chat.completions.create({ model: 'best', messages: HI, stream: true });
    const chunks: OpenAI.ChatCompletionChunk[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    expect(chunks[0]).toMatchObject({ choices: [], prompt_filter_results: [{ prompt_index: 0 }] });
    expect(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('')).toBe('Hello from Azure');
    expect(chunks.some((chunk) => chunk.usage != null)).toBe(false);
    const [record] = await server.records();
    expect(record).toMatchObject({ model_answered: 'gpt-4o-2024-08-06', usage: { input: 9, output: 4 } });
    expect(record?.cost_micros).toBeGreaterThan(0);
  });

  it('answers callers of messages, whole and as a stream', async () => {
    const anthropic = new Anthropic({
      apiKey: server.first.workspace_api_key,
      baseURL: server.url,
      maxRetries: 0,
      defaultHeaders: { 'x-gateway-provider': `@azure-${surface}` },
    });
    const asked = { model: 'best', max_tokens: 50, messages: HI };
    const message = await anthropic.messages.create(asked);
    expect(message.content).toMatchObject([{ type: 'text', text: 'Hello from Azure' }]);
    const final = await anthropic.messages.stream(asked).finalMessage();
    expect(final).toMatchObject({ content: [{ type: 'text', text: 'Hello from Azure' }], stop_reason: 'end_turn' });
    expect(final.usage).toMatchObject({ input_tokens: 9, output_tokens: 4 });
  });

  it('serves completions, embeddings, responses, images, audio and models', async () => {
    const { received } = azure();
    const from = received.length;
    await client.completions.create({ model: 'best', prompt: 'Hi' });
    const embedded = await client.embeddings.create({ model: 'text-embedding-3-small', input: 'Hi' });
    expect(embedded.data[0]?.embedding).toEqual([0.25, -0.5]);
    expect((await client.responses.create({ model: 'best', input: 'Hi' })).output_text).toBe('You said so');
    await client.responses.retrieve('resp_1');
    await client.responses.inputItems.list('resp_1', { limit: 5 });
    await client.responses.delete('resp_1');
    expect((await client.images.generate({ model: 'best', prompt: 'a cat' })).data?.[0]?.b64_json).toBe('aGVsbG8=');
    const file = () => toFile(Buffer.from('bytes'), 'a.png', { type: 'image/png' });
    await client.images.edit({ model: 'best', image: await file(), prompt: 'a hat' });
    const speech = await client.audio.speech.create({ model: 'best', input: 'Hi', voice: 'alloy' });
    expect((await speech.arrayBuffer()).byteLength).toBe(7);
    expect((await client.audio.transcriptions.create({ model: 'best', file: await file() })).text).toBe('heard');
    await client.audio.translations.create({ model: 'best', file: await file() });
    await client.models.list();
    await client.models.retrieve('gpt-4o');
    const version = surface === 'v1' ? '' : `?api-version=${AZURE_VERSION}`;
    const base = surface === 'v1' ? '/openai/v1' : '/openai';
    expect(received.slice(from).map(({ method, path }) => `${method} ${path}`)).toEqual([
      `POST ${pathOf('/completions', 'chat-prod')}`,
      `POST ${pathOf('/embeddings', 'vectors')}`,
      `POST ${base}/responses${version}`,
      `GET ${base}/responses/resp_1${version}`,
      `GET ${base}/responses/resp_1/input_items${version === '' ? '?' : `${version}&`}limit=5`,
      `DELETE ${base}/responses/resp_1${version}`,
      `POST ${pathOf('/images/generations', 'chat-prod')}`,
      `POST ${pathOf('/images/edits', 'chat-prod')}`,
      `POST ${pathOf('/audio/speech', 'chat-prod')}`,
      `POST ${pathOf('/audio/transcriptions', 'chat-prod')}`,
      `POST ${pathOf('/audio/translations', 'chat-prod')}`,
      `GET ${base}/models${version}`,
      `GET ${base}/models/gpt-4o${version}`,
    ]);
  });

  it('tells a prompt that the content filter refused, with what it found', async () => {
    const failure = await client.chat.completions
      .create({ model: 'best', messages: [{ role: 'user', content: 'BLOCK me' }] })
      .catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(OpenAI.BadRequestError);
    expect(failure).toMatchObject({ code: 'content_filter', param: 'prompt', error: { innererror: BLOCKED } });
  });

  it('tells a deployment that does not exist', async () => {
    const failure = await client.chat.completions
      .create({ model: 'missing', messages: HI })
      .catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(OpenAI.NotFoundError);
    expect(failure).toMatchObject({ code: 'model_not_found' });
  });

  it('is asked by the Azure client of the library too', async () => {
    const own = new AzureOpenAI({
      apiKey: server.first.workspace_api_key,
      apiVersion: '2024-10-21',
      baseURL: `${server.url}/v1`,
      maxRetries: 0,
      defaultHeaders: {
        'x-gateway-api-key': server.first.workspace_api_key,
        'x-gateway-provider': `@azure-${surface}`,
      },
    });
    const answer = await own.chat.completions.create({ model: 'best', messages: HI });
    expect(answer.choices[0]?.message.content).toBe('Hello from Azure');
    expect(azure().received.at(-1)?.path).toBe(pathOf('/chat/completions', 'chat-prod'));
    const embedded = await own.embeddings.create({ model: 'text-embedding-3-small', input: 'Hi' });
    expect(embedded.data[0]?.embedding).toEqual([0.25, -0.5]);
  });
});
