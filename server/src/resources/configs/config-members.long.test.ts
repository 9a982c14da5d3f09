/**
 * Every member of a config, by the schema itself: each is carried out, or refused with its path or name. What takes more than
 * a request or two to show names the test that shows it.
 */
import { readFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { balanced, fails, fallback, type RoutingServer, startRouting, target } from '../../../test/support/routing.ts';
import { describeConfig } from './structure.ts';

type Json = Record<string, unknown>;

let routing: RoutingServer;
let random = 0;

/** Takes connections and says nothing, so that none is ever ready for TLS. */
const mute = createServer(() => {});

beforeAll(async () => {
  mute.listen(0, '127.0.0.1');
  routing = await startRouting({ SLUICE_TRUSTED_HOSTS: '127.0.0.1' }, { random: () => random });
}, 60_000);
afterAll(async () => {
  await routing?.stop();
  mute.close();
});
beforeEach(() => {
  random = 0;
  routing.reset();
});

/** What stands in lists of guardrails is a language of its own, with its own tables of tests. */
const GUARDRAILS = /(?:guardrails|hooks|mutators)$/;

/** Members that hold no members themselves: `retry.attempts`, `deployments[].alias`. */
function membersOf(schema: Json, path = ''): string[] {
  const { properties, items } = schema as { properties?: Record<string, Json>; items?: Json };
  if (items?.properties !== undefined && path !== 'targets' && !GUARDRAILS.test(path))
    return membersOf(items, `${path}[]`);
  if (properties === undefined) return [path];
  return Object.entries(properties).flatMap(([name, inner]) =>
    membersOf(inner, path === '' ? name : `${path}.${name}`),
  );
}

const ask = (...args: Parameters<RoutingServer['ask']>) => routing.ask(...args);
const pathOf = async (config: object, extra: object = {}, headers: Record<string, string> = {}) =>
  (await ask(config, extra, headers)).path;

/** What provider a was sent by a request under a config with its host. */
async function sent(config: Json, extra: object = {}, headers: Record<string, string> = {}) {
  const { received, url } = routing.of('a');
  received.length = 0;
  await ask({ custom_host: `${url}/v1`, api_key: 'sk-own', provider: 'openai', ...config }, extra, headers);
  const [request] = received;
  if (request === undefined) throw new Error('nothing was sent');
  return request;
}
const sentBody = async (config: Json, extra: object = {}) =>
  JSON.parse((await sent(config, extra)).body.toString('utf8')) as Json;

/** What would be sent, or why not. */
async function dry(config: Json, extra: object = {}): Promise<Json & { request: { url: string; headers: Json } }> {
  const told = await ask(config, extra, { 'x-gateway-dry-run': 'true' });
  return JSON.parse(told.text);
}
const urlOf = async (config: Json, extra: object = {}) => (await dry(config, extra)).request.url;
/** The refusal names the member: what cannot be used is not passed over. */
const refusal = async (config: Json) => (await ask(config)).text;

/** A test elsewhere, which must be there under this title. */
const shownBy = (file: string, title: string) => () =>
  expect(readFileSync(new URL(`../../../${file}`, import.meta.url), 'utf8')).toContain(title);

const AZURE = {
  provider: 'azure-openai',
  api_key: 'k',
  resource_name: 'res',
  deployment_id: 'dep',
  api_version: '2024-10-21',
};
const ENDPOINT = { provider: 'azure-ai', api_key: 'k', azure_endpoint_name: 'end', azure_region: 'eastus2' };
const AWS = {
  provider: 'bedrock',
  aws_access_key_id: 'AKIDEXAMPLE',
  aws_secret_access_key: 's3cret',
  aws_region: 'eu-west-1',
};
const VERTEX = {
  provider: 'vertex-ai',
  api_key: 'ya29.token',
  vertex_project_id: 'proj',
  vertex_region: 'europe-west4',
};
const claude = { model: 'anthropic.claude-3-haiku-20240307-v1:0' };
const gemini = { model: 'gemini-2.5-flash' };

/** How many of four requests left out a target that always fails. */
const leftOut = async (cb: object, inStrategy: boolean, status = 503) => {
  routing.reset();
  routing.of('a').answer = fails(status);
  const cb_config = { cooldown_interval: 30_000, ...cb };
  const group = fallback([target('a'), target('b')], inStrategy ? { cb_config } : {});
  const slug = await routing.saved(inStrategy ? group : { ...group, cb_config });
  for (let i = 0; i < 4; i++) await ask(slug);
  return 4 - routing.of('a').received.length;
};
const breakers = (at: string, inStrategy: boolean): Record<string, () => unknown> => ({
  [`${at}.failure_threshold`]: async () => expect(await leftOut({ failure_threshold: 3 }, inStrategy)).toBe(1),
  [`${at}.failure_threshold_percentage`]: async () =>
    expect(await leftOut({ failure_threshold_percentage: 100 }, inStrategy)).toBe(3),
  [`${at}.minimum_requests`]: async () =>
    expect(await leftOut({ failure_threshold_percentage: 1, minimum_requests: 2 }, inStrategy)).toBe(2),
  [`${at}.failure_status_codes`]: async () =>
    expect(await leftOut({ failure_threshold: 1, failure_status_codes: [429] }, inStrategy, 429)).toBe(3),
  [`${at}.cooldown_interval`]: shownBy('src/llm/routing/breaker.test.ts', 'is closed to all for the cool-down'),
  [`${at}.window_interval`]: shownBy('src/llm/routing/breaker.test.ts', 'a failure counts until its window is over'),
});

const PROOFS: Readonly<Record<string, () => unknown>> = {
  'strategy.mode': async () => {
    routing.of('a').answer = fails(503);
    random = 0.9;
    const two = [target('a', { name: 'x' }), target('b', { name: 'y' })];
    expect(await pathOf({ strategy: { mode: 'single' }, targets: two })).toBe('config.targets[0]');
    expect(await pathOf(fallback(two))).toBe('config.targets[1]');
    expect(await pathOf(balanced(two))).toBe('config.targets[1]');
    random = 0;
    expect(await pathOf(balanced(two))).toBe('config.targets[0]');
  },
  'strategy.on_status_codes': async () => {
    routing.of('a').answer = fails(500);
    const two = [target('a'), target('b')];
    expect(await pathOf(fallback(two, { on_status_codes: [429] }))).toBe('config.targets[0]');
    expect(await pathOf(fallback(two, { on_status_codes: [500] }))).toBe('config.targets[1]');
  },
  ...Object.fromEntries(
    ['strategy.conditions[].query', 'strategy.conditions[].then', 'strategy.default', 'name'].map((member) => [
      member,
      async () => {
        const targets = [target('a', { name: 'x' }), target('b', { name: 'y' })];
        // biome-ignore lint/suspicious/noThenProperty: the name is the contract's
        const conditions = [{ query: { 'params.user': 'me' }, then: 'y' }];
        const config = { strategy: { mode: 'conditional', conditions, default: 'x' }, targets };
        expect(await pathOf(config, { user: 'me' })).toBe('config.targets[1]');
        expect(await pathOf(config)).toBe('config.targets[0]');
      },
    ]),
  ),
  ...Object.fromEntries(
    ['strategy.sticky.enabled', 'strategy.sticky.hash_fields'].map((member) => [
      member,
      async () => {
        const drawn = async (sticky: object) => {
          const paths = new Set<string | null>();
          for (const one of [0, 0.5, 0.99]) {
            random = one;
            paths.add(await pathOf(balanced([target('a'), target('b'), target('c')], { sticky }), { user: 'me' }));
          }
          return paths.size;
        };
        expect(await drawn({ enabled: true, hash_fields: ['params.user'] })).toBe(1);
        expect(await drawn({ enabled: false, hash_fields: ['params.user'] })).toBe(3);
        expect(await drawn({ enabled: true, hash_fields: ['params.nobody'] })).toBe(3);
      },
    ]),
  ),
  'strategy.sticky.ttl': shownBy('src/llm/routing/balance.test.ts', 'last for their time from the first request on'),
  ...breakers('strategy.cb_config', true),
  ...breakers('cb_config', false),
  targets: async () => expect(await pathOf(fallback([target('b')]))).toBe('config.targets[0]'),
  weight: async () =>
    expect(await pathOf(balanced([target('a', { weight: 0 }), target('b')]))).toBe('config.targets[1]'),
  provider: async () => expect((await ask(target('b'))).text).toContain('from b'),
  virtual_key: async () => {
    expect((await ask({ virtual_key: 'b' })).text).toContain('from b');
    expect(await refusal({ virtual_key: 'nobody' })).toContain('nobody');
  },
  api_key: async () => expect((await sent({ api_key: 'sk-mine' })).headers.authorization).toBe('Bearer sk-mine'),
  prompt_id: async () => {
    const told = await ask({ ...target('a'), prompt_id: 'pp-x' });
    expect([told.status, told.text]).toEqual([501, expect.stringContaining('prompt_id')]);
  },
  custom_host: async () => {
    const { url } = routing.of('c');
    expect((await ask({ provider: 'openai', api_key: 'k', custom_host: `${url}/v1` })).text).toContain('from c');
  },
  passthrough: async () => {
    expect((await ask({ passthrough: true }, { model: '@b/m' })).text).toContain('from b');
    expect((await ask({ passthrough: true })).status).toBe(400);
  },
  fetch_integrated_models: async () => {
    const list = async (config: object) => {
      const answer = await fetch(`${routing.server.url}/v1/models`, {
        headers: {
          'x-gateway-api-key': routing.server.first.workspace_api_key,
          'x-gateway-config': JSON.stringify(config),
        },
      });
      return (await answer.text()).includes('total_count');
    };
    expect(await list({ fetch_integrated_models: true })).toBe(true);
    expect(await list(fallback([target('a', { fetch_integrated_models: true }), target('b')]))).toBe(true);
    expect(await list(target('a'))).toBe(false);
  },
  override_params: async () => expect(await sentBody({ override_params: { n: 2 } }, { n: 1 })).toMatchObject({ n: 2 }),
  default_params: async () => {
    expect(await sentBody({ default_params: { n: 2 } })).toMatchObject({ n: 2 });
    expect(await sentBody({ default_params: { n: 2 } }, { n: 1 })).toMatchObject({ n: 1 });
  },
  drop_params: async () => expect(await sentBody({ drop_params: ['n'] }, { n: 1 })).not.toHaveProperty('n'),
  forward_headers: async () =>
    expect((await sent({ forward_headers: ['x-mine'] }, {}, { 'x-mine': 'yes' })).headers['x-mine']).toBe('yes'),
  request_timeout: async () => {
    routing.of('a').answer = () => {};
    expect((await ask(target('a', { request_timeout: 30 }))).status).toBe(408);
  },
  'timeouts.connect': async () => {
    const { port } = mute.address() as AddressInfo;
    const config = { provider: 'openai', api_key: 'k', custom_host: `https://127.0.0.1:${port}/v1` };
    const told = await ask({ ...config, timeouts: { connect: 50 } });
    expect([told.status, told.text]).toEqual([408, expect.stringContaining('connect_timeout')]);
  },
  'timeouts.first_token': async () => {
    routing.of('a').answer = () => {};
    const told = await ask(target('a', { timeouts: { first_token: 500 } }), { stream: true });
    expect([told.status, told.text]).toEqual([408, expect.stringContaining('first_token_timeout')]);
  },
  'timeouts.stream_idle': async () => {
    routing.of('a').answer = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('data: {"id":"s","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n');
    };
    const told = await ask(target('a', { timeouts: { stream_idle: 50 } }), { stream: true });
    expect(told.text).toContain('upstream_idle_timeout');
  },
  'stream.on_break': shownBy(
    'src/llm/relay/stream-breaks.long.test.ts',
    'starts anew before it, and only the second answer is seen',
  ),
  'stream.restart_within.bytes': shownBy(
    'src/llm/relay/stream-breaks.long.test.ts',
    'is shown from the first of its bounds on',
  ),
  'stream.restart_within.tokens': shownBy(
    'src/llm/relay/stream-breaks.long.test.ts',
    'is shown from the first of its bounds on',
  ),
  'stream.restart_within.ms': shownBy(
    'src/llm/relay/stream-breaks.long.test.ts',
    'is shown from the first of its bounds on',
  ),
  'hedge.delay': shownBy('src/llm/routing/hedge.test.ts', 'is made once more, and what answers first is taken'),
  'hedge.max': shownBy('src/llm/routing/hedge.test.ts', 'is made as often as the config allows, and no more'),
  ...Object.fromEntries(
    ['retry.attempts', 'retry.on_status_codes', 'retry.use_retry_after_headers'].map((member) => [
      member,
      async () => {
        const tries = async (retry: object) => {
          routing.reset();
          routing.of('a').answer = fails(429, { 'retry-after-ms': '61000' });
          await ask(target('a', { retry }));
          return routing.of('a').received.length;
        };
        expect(await tries({ attempts: 2 })).toBe(3);
        expect(await tries({ attempts: 2, on_status_codes: [500] })).toBe(1);
        // A hint above a minute ends it.
        expect(await tries({ attempts: 2, use_retry_after_headers: true })).toBe(1);
      },
    ]),
  ),
  'cache.mode': async () => {
    const cached = target('a', { cache: { mode: 'simple' } });
    for (let i = 0; i < 2; i++) await ask(cached, { user: 'cached' });
    expect(routing.of('a').received).toHaveLength(1);
  },
  'cache.max_age': shownBy('test/data-plane/cache.test.ts', 'is bounded by the organisation'),
  'cache.embedding.provider': shownBy(
    'test/data-plane/cache.test.ts',
    'is compared by the provider and model that the config names',
  ),
  'cache.embedding.model': shownBy(
    'test/data-plane/cache.test.ts',
    'is compared by the provider and model that the config names',
  ),
  'cache.threshold': shownBy(
    'src/llm/cache/semantic-cache.test.ts',
    'the nearest first, and only from the threshold on',
  ),
  'cache.system': shownBy(
    'test/data-plane/cache.test.ts',
    'is compared without the system prompt, unless the config says so',
  ),
  on_status_codes: async () => {
    routing.of('a').answer = fails(500);
    const own = fallback([target('a', { on_status_codes: [500] }), target('b')], { on_status_codes: [429] });
    expect(await pathOf(own)).toBe('config.targets[1]');
  },
  ...Object.fromEntries(
    [
      ['input_guardrails', { deny: true, 'default.regexMatch': { rule: 'never' } }],
      ['output_guardrails', { deny: true, 'default.regexMatch': { rule: 'never' } }],
      ['input_mutators', { deny: true, 'default.regexMatch': { rule: 'never' } }],
      ['output_mutators', { deny: true, 'default.regexMatch': { rule: 'never' } }],
      ...['before_request_hooks', 'after_request_hooks'].map((list) => [
        list,
        {
          type: 'guardrail',
          id: 'h',
          deny: true,
          checks: [{ id: 'default.regexMatch', parameters: { rule: 'never' } }],
        },
      ]),
    ].map(([list, item]) => [
      list as string,
      async () => expect((await ask(target('a', { [list as string]: [item] }))).status).toBe(446),
    ]),
  ),
  strict_open_ai_compliance: async () => {
    const config = { ...target('a'), input_guardrails: [{ 'default.regexMatch': { rule: 'Hello' } }] };
    expect((await ask(config)).text).not.toContain('hook_results');
    expect((await ask({ ...config, strict_open_ai_compliance: false })).text).toContain('hook_results');
  },
  metadata: async () => {
    const targets = [target('a', { name: 'x' }), target('b', { name: 'y' })];
    // biome-ignore lint/suspicious/noThenProperty: the name is the contract's
    const conditions = [{ query: { 'metadata.team': 'search' }, then: 'y' }];
    const config = {
      strategy: { mode: 'conditional', conditions, default: 'x' },
      targets,
      metadata: { team: 'search', kept: 'k' },
    };
    for (const one of [config, await routing.saved(config)]) {
      // The second time by the plan that was made for the first.
      for (let i = 0; i < 2; i++) {
        expect((await ask(one)).path).toBe('config.targets[1]');
        expect((await routing.server.records())[0]?.metadata).toEqual({ team: 'search', kept: 'k' });
      }
      expect((await ask(one, {}, { 'x-gateway-metadata': '{"team":"other"}' })).path).toBe('config.targets[0]');
      expect((await routing.server.records())[0]?.metadata).toEqual({ team: 'other', kept: 'k' });
    }
    expect(await refusal(fallback([target('a', { metadata: { team: 'x' } }), target('b')]))).toContain(
      'targets[0].metadata',
    );
  },
  resource_name: async () => expect(await urlOf(AZURE)).toContain('https://res.openai.azure.com/'),
  deployment_id: async () => expect(await urlOf(AZURE)).toContain('/deployments/dep/'),
  api_version: async () => expect(await urlOf(AZURE)).toContain('api-version=2024-10-21'),
  ...Object.fromEntries(
    ['deployment_id', 'alias', 'api_version', 'is_default'].map((name) => [
      `deployments[].${name}`,
      async () => {
        const deployments = [
          { deployment_id: 'first', alias: 'gpt-x', api_version: '2024-10-21' },
          { deployment_id: 'second', alias: 'gpt-y', api_version: '2024-06-01', is_default: true },
        ];
        const config = { provider: 'azure-openai', api_key: 'k', resource_name: 'res', deployments };
        expect(await urlOf(config, { model: 'gpt-x' })).toMatch(/\/deployments\/first\/.*api-version=2024-10-21/);
        expect(await urlOf(config, { model: 'any' })).toMatch(/\/deployments\/second\/.*api-version=2024-06-01/);
      },
    ]),
  ),
  openai_organization: async () =>
    expect((await sent({ openai_organization: 'org-1' })).headers['openai-organization']).toBe('org-1'),
  openai_project: async () =>
    expect((await sent({ openai_project: 'proj-1' })).headers['openai-project']).toBe('proj-1'),
  aws_access_key_id: async () =>
    expect((await sent({ ...AWS, api_key: undefined }, claude)).headers.authorization).toContain(
      'Credential=AKIDEXAMPLE/',
    ),
  aws_secret_access_key: async () => {
    expect((await sent({ ...AWS, api_key: undefined }, claude)).headers.authorization).toContain('Signature=');
    expect(await refusal({ ...AWS, aws_secret_access_key: undefined })).toContain('aws_secret_access_key');
  },
  aws_region: async () => expect(await urlOf(AWS, claude)).toContain('.eu-west-1.'),
  aws_session_token: async () =>
    expect(
      (await sent({ ...AWS, api_key: undefined, aws_session_token: 'tok' }, claude)).headers['x-amz-security-token'],
    ).toBe('tok'),
  vertex_project_id: async () => expect(await urlOf(VERTEX, gemini)).toContain('/projects/proj/'),
  vertex_region: async () => expect(await urlOf(VERTEX, gemini)).toContain('europe-west4'),
  vertex_service_account_json: async () =>
    expect(
      await refusal({ ...VERTEX, api_key: undefined, vertex_service_account_json: { type: 'service_account' } }),
    ).toMatch(/service_account|private_key|client_email/),
  azure_region: async () => expect(await urlOf(ENDPOINT)).toContain('.eastus2.'),
  azure_endpoint_name: async () => expect(await urlOf(ENDPOINT)).toContain('https://end.'),
  azure_deployment_type: async () => {
    const types = ['serverless', 'managed'].map((azure_deployment_type) =>
      urlOf({ ...ENDPOINT, azure_deployment_type }),
    );
    expect(new Set(await Promise.all(types)).size).toBe(2);
  },
  azure_deployment_name: async () =>
    expect(await urlOf({ ...AZURE, deployment_id: undefined, azure_deployment_name: 'named' })).toContain(
      '/deployments/named/',
    ),
  azure_api_version: async () =>
    expect(await urlOf({ ...AZURE, api_version: undefined, azure_api_version: '2024-06-01' })).toContain(
      'api-version=2024-06-01',
    ),
  azure_auth_mode: async () =>
    expect(await refusal({ ...AZURE, azure_auth_mode: 'sesame' })).toContain('azure_auth_mode'),
  azure_entra_scope: async () => {
    const config = { ...AZURE, azure_auth_mode: 'entra', azure_entra_scope: 'no scope' };
    const told = await ask(config, {}, { 'x-gateway-azure-entra-client-secret': 's' });
    expect(told.text).toContain('azure_entra_scope must be');
  },
  azure_model_name: async () => {
    const { estimate } = (await dry({ ...AZURE, azure_model_name: 'gpt-4o' })) as { estimate?: { price: Json } };
    expect(JSON.stringify(estimate?.price)).toContain('gpt-4o');
  },
  anthropic_beta: async () => {
    const { headers } = await sent(
      { provider: 'anthropic', anthropic_beta: 'files-api-2025-04-14' },
      { max_tokens: 5 },
    );
    expect(headers['anthropic-beta']).toBe('files-api-2025-04-14');
  },
  anthropic_version: async () => {
    const { headers } = await sent({ provider: 'anthropic', anthropic_version: '2023-01-01' }, { max_tokens: 5 });
    expect(headers['anthropic-version']).toBe('2023-01-01');
  },
};

describe('every member of a config', () => {
  const members = membersOf(describeConfig());

  it('has its proof, and there is none for what is no member', () => {
    expect(Object.keys(PROOFS).filter((member) => !members.includes(member))).toEqual([]);
    expect(members.length).toBeGreaterThan(80);
  });

  it.each(members)('%s is carried out, or refused', async (member) => {
    const proof = PROOFS[member];
    if (proof === undefined) throw new Error(`nothing shows that ${member} is carried out`);
    await proof();
  });
});
