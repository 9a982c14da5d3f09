/** `on_break: continue`: each provider that takes the beginning of an answer is told so in its own way, and no other is asked. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type FaultyUpstream, PIECES, startFaulty, streamed } from '../../test/support/faults.ts';
import { eventsOf } from '../../test/support/local.ts';
import { startServer, type TestServer } from '../../test/support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../../test/support/upstream.ts';

type Body = Record<string, unknown> & { messages: { role: string; content: unknown }[] };

const BEGUN = 'Water finds';
const REST = [' its', ' way.'];
const VERTEX = { vertex_project_id: 'project', vertex_region: 'europe-west4' };
const CLAUDE_45 = 'claude-opus-4-5-20251101';

let server: TestServer;
let broken: FaultyUpstream;
let second: FakeUpstream;
/** Body of the call that goes on. */
const bodyOf = (): Body => JSON.parse(String(second.received[0]?.body));

beforeAll(async () => {
  broken = await startFaulty();
  second = await startUpstream(({ path }, response) => {
    const shape = /\/messages$|anthropic/.test(path) ? 'messages' : 'chat';
    const { start, content, end } = streamed(shape, 'second', REST);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end([...start, ...content, ...end].join(''));
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: '127.0.0.0/8' });
  await server.provider({
    id: 'azure-ai',
    slug: 'foundry',
    host: second.url,
    key: 'key-of-foundry',
    configurations: {
      custom_host: undefined,
      azure_foundry_url: `${second.url}/anthropic`,
      azure_auth_mode: 'default',
    },
  });
}, 60_000);
afterAll(async () => {
  await server?.stop();
  await Promise.all([broken?.stop(), second?.stop()]);
});
beforeEach(() => {
  second.received.length = 0;
});

let cases = 0;
/** A stream of another provider breaks, and `target` is next. */
function rescue(path: string, target: Record<string, unknown>, model: string): Promise<Response> {
  const first = {
    provider: 'openai',
    api_key: 'sk-own',
    custom_host: `${broken.url}/v1`,
    override_params: { model: `cut.x9.${++cases}` },
  };
  const given = typeof target.provider === 'string' && target.provider.startsWith('@');
  const next = {
    ...(given ? null : { api_key: 'second-key', custom_host: `${second.url}/v1` }),
    ...target,
    override_params: { model },
  };
  const config = { strategy: { mode: 'fallback' }, stream: { on_break: 'continue' }, targets: [first, next] };
  const asked = [{ role: 'user', content: 'Where to?' }];
  const body = path === '/responses' ? { input: asked } : { messages: asked, max_tokens: 50 };
  return server.call(path, { model: 'any', stream: true, ...body }, { 'x-gateway-config': JSON.stringify(config) });
}

/** All the text that a caller of the path has seen. */
const textIn = (path: string, text: string): string =>
  eventsOf(text)
    .filter(({ data }) => data !== '[DONE]')
    .map(({ json }) => {
      if (path === '/chat/completions') return json.choices?.[0]?.delta?.content ?? '';
      if (path === '/messages') return json.delta?.type === 'text_delta' ? json.delta.text : '';
      return json.type === 'response.output_text.delta' ? json.delta : '';
    })
    .join('');

interface Row {
  readonly target: Record<string, unknown>;
  readonly model: string;
  readonly path: string;
  /** The last message, as it arrives. */
  readonly begun: unknown;
  readonly more?: Record<string, unknown>;
  /** Callers it serves in shapes of their own, where nothing is known to go on. */
  readonly except?: readonly string[];
}

const plain = { role: 'assistant', content: BEGUN };
const TAKE: Readonly<Record<string, Row>> = {
  'Anthropic itself': { target: { provider: 'anthropic' }, model: CLAUDE_45, path: '/v1/messages', begun: plain },
  'Claude on Vertex AI': {
    target: { provider: 'vertex-ai', ...VERTEX },
    model: 'claude-opus-4-5@20251101',
    path: '/v1/projects/project/locations/europe-west4/publishers/anthropic/models/claude-opus-4-5@20251101:streamRawPredict',
    begun: plain,
    more: { anthropic_version: 'vertex-2023-10-16' },
  },
  'Claude in Foundry': {
    target: { provider: '@foundry' },
    model: CLAUDE_45,
    path: '/anthropic/v1/messages',
    begun: plain,
  },
  Mistral: {
    target: { provider: 'mistral-ai' },
    model: 'mistral-large-latest',
    path: '/v1/chat/completions',
    begun: { ...plain, prefix: true },
  },
  'Mistral on Vertex AI': {
    target: { provider: 'vertex-ai', ...VERTEX },
    model: 'mistral-small-2503',
    path: '/v1/projects/project/locations/europe-west4/publishers/mistralai/models/mistral-small-2503:streamRawPredict',
    begun: { ...plain, prefix: true },
  },
  'the beta surface of DeepSeek': {
    target: { provider: 'deepseek' },
    model: 'deepseek-chat',
    path: '/beta/chat/completions',
    begun: { ...plain, prefix: true },
  },
  Moonshot: {
    target: { provider: 'moonshot' },
    model: 'kimi-k2',
    path: '/v1/chat/completions',
    begun: { ...plain, partial: true },
  },
  Groq: {
    target: { provider: 'groq' },
    model: 'llama-3.3-70b',
    path: '/v1/chat/completions',
    begun: plain,
    except: ['/responses'],
  },
  vLLM: {
    target: { provider: 'vllm' },
    model: 'qwen',
    path: '/v1/chat/completions',
    begun: plain,
    more: { continue_final_message: true, add_generation_prompt: false },
    except: ['/messages', '/responses'],
  },
};

describe.each(Object.entries(TAKE))('%s goes on with an answer that was begun', (_name, row) => {
  const paths = ['/chat/completions', '/messages', '/responses'].filter((path) => !row.except?.includes(path));
  it.each(paths)('for callers of %s', async (path) => {
    const answer = await rescue(path, row.target, row.model);
    const text = await answer.text();
    expect(textIn(path, text)).toBe(PIECES.join(''));
    expect(text).not.toContain('"error":{');
    expect(second.received).toHaveLength(1);
    expect(second.received[0]?.path.split('?')[0]).toBe(row.path);
    const { messages, ...rest } = bodyOf();
    const { content, ...last } = messages.at(-1) ?? { content: null };
    // A conversion may write one text as a list of parts.
    const said = Array.isArray(content) ? content.map(({ text }) => text).join('') : content;
    expect({ ...last, content: said }).toEqual(row.begun);
    expect(rest).toMatchObject(row.more ?? {});
  });
});

const REFUSE: Readonly<Record<string, Pick<Row, 'target' | 'model'>>> = {
  OpenAI: { target: { provider: 'openai' }, model: 'gpt-4o' },
  'a Claude model of the 4.6 generation': { target: { provider: 'anthropic' }, model: 'claude-opus-4-6' },
  'the same on Vertex AI': { target: { provider: 'vertex-ai', ...VERTEX }, model: 'claude-sonnet-4-6' },
  'the same in Foundry': { target: { provider: '@foundry' }, model: 'claude-opus-4-6' },
  Gemini: { target: { provider: 'google' }, model: 'gemini-2.5-flash' },
  Cohere: { target: { provider: 'cohere' }, model: 'command-a' },
  xAI: { target: { provider: 'xai' }, model: 'grok-4' },
};

describe.each(Object.entries(REFUSE))('%s takes no beginning', (_name, { target, model }) => {
  it('and is not asked: the stream ends with what broke it', async () => {
    const text = await (await rescue('/chat/completions', target, model)).text();
    expect(eventsOf(text).at(-1)?.json.error).toMatchObject({ code: 'upstream_stream_cut' });
    expect(text).not.toContain('[DONE]');
    expect(second.received).toEqual([]);
  });
});

it('a refusal of the beginning is never what the caller is told', async () => {
  const { answer } = second;
  second.answer = (_request, response) =>
    sendJson(response, 400, {
      type: 'error',
      error: { type: 'invalid_request_error', message: 'no assistant message prefill' },
    });
  // A name of the account's own does not tell what the model takes.
  const text = await (await rescue('/chat/completions', { provider: 'anthropic' }, 'our-model')).text();
  second.answer = answer;
  expect(second.received).toHaveLength(1);
  expect(eventsOf(text).at(-1)?.json.error).toMatchObject({ code: 'upstream_stream_cut' });
  expect(text).not.toContain('prefill');
});
