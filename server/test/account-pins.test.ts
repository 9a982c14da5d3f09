import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { KEEPS_ACCOUNT, PINNED_SETTINGS } from '../src/llm/provider-headers.ts';
import { startServer, type TestServer } from './support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from './support/upstream.ts';

/** Providers whose accounts hold a setting that says what is billed, read or where. */
const ACCOUNTS: readonly (readonly [id: string, configurations: Record<string, unknown>])[] = [
  ['openai', { openai_organization: 'org-mine', openai_project: 'proj-mine' }],
  ['vertex-ai', { vertex_auth_type: 'basic', vertex_project_id: 'project-mine', vertex_region: 'europe-west1' }],
  ['bedrock', { aws_auth_type: 'apiKey', aws_region: 'eu-central-1' }],
  ['fireworks-ai', { fireworks_account_id: 'mine' }],
];
const CASES = ACCOUNTS.flatMap(([id, held]) =>
  Object.entries(held)
    .filter(([name]) => !name.endsWith('auth_type'))
    .map(([name, value]) => [id, name, String(value)] as const),
);
/** Of providers that this version cannot call: there is no account to try them on. */
const NOT_CALLED = ['workers_ai_account_id', 'snowflake_account'];

let upstream: FakeUpstream;
let server: TestServer;

beforeAll(async () => {
  upstream = await startUpstream((_request, response) => sendJson(response, 200, { choices: [] }));
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  for (const [id, configurations] of ACCOUNTS)
    await server.provider({ id, host: upstream.url, slug: id, configurations });
  await server.provider({ id: 'openai', host: upstream.url, slug: 'open' });
});

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const MODELS: Readonly<Record<string, string>> = {
  'vertex-ai': 'gemini-2.5-flash',
  bedrock: 'meta.llama3-70b-instruct-v1:0',
};
const hello = (slug: string) => ({ model: MODELS[slug] ?? 'm', messages: [{ role: 'user', content: 'Hi' }] });
const header = (name: string) => `x-gateway-${name.replaceAll('_', '-')}`;

async function ask(slug: string, headers: Record<string, string>) {
  const before = upstream.received.length;
  const answer = await server.call('/chat/completions', hello(slug), headers);
  return { status: answer.status, text: await answer.text(), sent: upstream.received.slice(before) };
}

describe('what a stored account is billed on', () => {
  it.each(CASES)('%s: a header cannot change its %s', async (slug, name) => {
    const { status, text, sent } = await ask(slug, { 'x-gateway-provider': `@${slug}`, [header(name)]: 'other' });
    expect(sent).toEqual([]);
    expect(status).toBe(400);
    expect(JSON.parse(text)).toMatchObject({ error: { param: name } });
    expect(text).toContain(header(name));
  });

  it.each(CASES.filter(([, name]) => name !== 'fireworks_account_id'))(
    '%s: a config cannot change its %s, be it sent or saved',
    async (slug, name) => {
      const config = { provider: `@${slug}`, [name]: 'other' };
      const saved = await server.admin('POST', '/configs', {
        name: `${slug} ${name}`,
        workspace_id: server.first.workspace_id,
        config,
      });
      expect(saved.status).toBe(200);
      const stored = String(saved.body.slug);
      for (const value of [JSON.stringify(config), stored]) {
        const { status, text, sent } = await ask(slug, { 'x-gateway-config': value });
        expect(sent).toEqual([]);
        expect(status).toBe(400);
        expect(JSON.parse(text)).toMatchObject({ error: { param: name } });
      }
    },
  );

  it.each(CASES)('%s: its own %s may be named', async (slug, name, value) => {
    const { text, sent } = await ask(slug, { 'x-gateway-provider': `@${slug}`, [header(name)]: value });
    expect([sent.length, text]).toEqual([1, text]);
  });

  it('an account without a project leaves it to the caller', async () => {
    const { status, sent } = await ask('open', { 'x-gateway-provider': '@open', 'x-gateway-openai-project': 'other' });
    expect(status).toBe(200);
    expect(sent[0]?.headers['openai-project']).toBe('other');
  });

  it('covers every setting that a caller may give beside a stored account and that names one', () => {
    const names = [...KEEPS_ACCOUNT].filter((name) => /organi[sz]ation|project|account|region|workspace/.test(name));
    expect(names.filter((name) => !PINNED_SETTINGS.includes(name))).toEqual([]);
    expect([...CASES.map(([, name]) => name), ...NOT_CALLED].sort()).toEqual([...PINNED_SETTINGS].sort());
  });
});
