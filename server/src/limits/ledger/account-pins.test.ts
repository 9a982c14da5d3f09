import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../../test/support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../../../test/support/upstream.ts';
import { KEEPS_ACCOUNT, PINNED_SETTINGS } from '../../llm/provider-headers.ts';

/** Providers whose accounts hold a setting that says what is billed, read or where. */
const ACCOUNTS: readonly (readonly [id: string, configurations: Record<string, unknown>])[] = [
  ['openai', { openai_organization: 'org-mine', openai_project: 'proj-mine' }],
  ['vertex-ai', { vertex_auth_type: 'basic', vertex_project_id: 'project-mine', vertex_region: 'europe-west1' }],
  ['bedrock', { aws_auth_type: 'apiKey', aws_region: 'eu-central-1' }],
  // The same, held by headers of the account and by a key file alone.
  ['openai', { custom_headers: { 'OpenAI-Organization': 'org-mine', 'openai-project': 'proj-mine' } }],
  [
    'vertex-ai',
    {
      vertex_auth_type: 'serviceAccount',
      vertex_region: 'europe-west1',
      vertex_service_account_json: {
        type: 'service_account',
        project_id: 'project-mine',
        client_email: 'a@b',
        private_key: 'k',
      },
    },
  ],
  ['fireworks-ai', { fireworks_account_id: 'mine' }],
];
const slugOf = (index: number) => `${ACCOUNTS[index]?.[0]}-${index}`;

const SIGNED = slugOf(ACCOUNTS.findIndex(([, held]) => held.vertex_auth_type === 'serviceAccount'));

/** The pins that an account holds, as settings. */
function pinsOf(held: Record<string, unknown>): [string, string][] {
  return Object.entries(held).flatMap(([name, value]): [string, string][] => {
    if (name === 'custom_headers') {
      return Object.entries(value as object).map(([header, said]) => [header.toLowerCase().replace('-', '_'), said]);
    }
    if (name === 'vertex_service_account_json') return [['vertex_project_id', 'project-mine']];
    return name.endsWith('auth_type') ? [] : [[name, String(value)]];
  });
}

const CASES = ACCOUNTS.flatMap(([, held], index) =>
  pinsOf(held).map(([name, value]) => [slugOf(index), name, value] as const),
);
/** Of providers that this version cannot call: there is no account to try them on. */
const NOT_CALLED = ['workers_ai_account_id', 'snowflake_account'];

let upstream: FakeUpstream;
let server: TestServer;

beforeAll(async () => {
  upstream = await startUpstream((_request, response) => sendJson(response, 200, { choices: [] }));
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  for (const [index, [id, configurations]] of ACCOUNTS.entries())
    await server.provider({ id, host: upstream.url, slug: slugOf(index), configurations });
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
const hello = (slug: string) => ({
  model: MODELS[slug.replace(/-\d$/, '')] ?? 'm',
  messages: [{ role: 'user', content: 'Hi' }],
});
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
    // A key file needs a token of Google's first, and this one cannot sign for it.
    if (slug === SIGNED) expect(JSON.parse(text)).toMatchObject({ error: { param: 'vertex_service_account_json' } });
    else expect([sent.length, text]).toEqual([1, text]);
  });

  it.each(['openai-organization', 'openai-project'])(
    'a header %s of the caller changes nothing, named as a header to forward or not',
    async (name) => {
      for (const [index, [id]] of ACCOUNTS.entries()) {
        if (id !== 'openai') continue;
        for (const more of [{}, { 'x-gateway-forward-headers': name }] as Record<string, string>[]) {
          const headers = { 'x-gateway-provider': `@${slugOf(index)}`, [name]: 'other', ...more };
          const { sent } = await ask(slugOf(index), headers);
          expect(sent[0]?.headers[name]).toBe(name === 'openai-project' ? 'proj-mine' : 'org-mine');
        }
      }
    },
  );

  it('no header bills another project of Google than the account is stored with', async () => {
    for (const [index, [id]] of ACCOUNTS.entries()) {
      if (id !== 'vertex-ai') continue;
      const headers = {
        'x-gateway-provider': `@${slugOf(index)}`,
        'x-gateway-forward-headers': 'x-goog-user-project',
      };
      const other = await ask(slugOf(index), { ...headers, 'x-goog-user-project': 'other' });
      expect([other.status, other.sent, JSON.parse(other.text).error.param]).toEqual([400, [], 'vertex_project_id']);
      const same = await ask(slugOf(index), { ...headers, 'x-goog-user-project': 'project-mine' });
      if (slugOf(index) !== SIGNED) expect(same.sent[0]?.headers['x-goog-user-project']).toBe('project-mine');
      else expect(JSON.parse(same.text)).toMatchObject({ error: { param: 'vertex_service_account_json' } });
    }
  });

  it('an account without a project leaves it to the caller', async () => {
    const { status, sent } = await ask('open', { 'x-gateway-provider': '@open', 'x-gateway-openai-project': 'other' });
    expect(status).toBe(200);
    expect(sent[0]?.headers['openai-project']).toBe('other');
  });

  it('covers every setting that a caller may give beside a stored account and that names one', () => {
    const names = [...KEEPS_ACCOUNT].filter((name) => /organi[sz]ation|project|account|region|workspace/.test(name));
    expect(names.filter((name) => !PINNED_SETTINGS.includes(name))).toEqual([]);
    const tried = new Set([...CASES.map(([, name]) => name), ...NOT_CALLED]);
    expect([...tried].sort()).toEqual([...PINNED_SETTINGS].sort());
  });
});
