/** A fallback whose list of statuses keeps it from falling back: told when it is saved, and by the decision of a request. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../../test/support/server.ts';

let server: TestServer;

beforeAll(async () => {
  server = await startServer();
});

afterAll(() => server?.stop());

const targets = (model: string) => [
  { provider: '@sandbox', override_params: { model } },
  { provider: '@sandbox', override_params: { model: 'echo' } },
];
const fallback = (on_status_codes: number[] | undefined, model = 'error?status=502') => ({
  strategy: { mode: 'fallback', ...(on_status_codes === undefined ? {} : { on_status_codes }) },
  targets: targets(model),
});
const save = (config: object) =>
  server.admin('POST', '/configs', { name: 'Fallback', workspace_id: server.first.workspace_id, config });

async function routeOf(config: object): Promise<[number, Record<string, unknown>[]]> {
  const body = { model: 'echo', messages: [{ role: 'user', content: 'Hello' }] };
  const answer = await server.call('/chat/completions', body, { 'x-gateway-config': JSON.stringify(config) });
  await answer.text();
  const id = answer.headers.get('x-gateway-request-id');
  const told = await server.admin('GET', `/logs/${id}/decision`, undefined, server.first.workspace_api_key);
  return [answer.status, told.body.route as Record<string, unknown>[]];
}

describe('the decision of a request', () => {
  it('says which status is not in the list, where no further target was tried', async () => {
    expect(await routeOf(fallback([429, 503]))).toEqual([
      502,
      [
        {
          path: 'config',
          mode: 'fallback',
          chosen: 'config.targets[0]',
          why: 'its answer is final',
          stopped: '502 is not in on_status_codes [429, 503]',
          left_out: [],
        },
      ],
    ]);
  });

  it('says so of a network failure, too', async () => {
    const [status, route] = await routeOf(fallback([429, 503], 'cut?after_tokens=0&mode=error'));
    expect(status).toBe(502);
    expect(route.at(-1)?.stopped).toBe('502 is not in on_status_codes [429, 503]');
  });

  it('says nothing of the kind of a target that took over, or of an answer that went well', async () => {
    const [status, route] = await routeOf(fallback([502]));
    expect([status, route.map(({ chosen, stopped }) => [chosen, stopped])]).toEqual([
      200,
      [['config.targets[1]', null]],
    ]);
    expect(await routeOf(fallback([502], 'echo'))).toEqual([200, []]);
  });
});

describe('a target that does not exist', () => {
  const config = {
    strategy: { mode: 'fallback' },
    targets: [{ provider: '@sandbox', override_params: { model: 'error?status=502' } }, { provider: '@nope' }],
  };

  it('is named in the error, with what failed before it', async () => {
    const body = { model: 'echo', messages: [{ role: 'user', content: 'Hello' }] };
    const answer = await server.call('/chat/completions', body, { 'x-gateway-config': JSON.stringify(config) });
    expect(answer.status).toBe(400);
    expect(((await answer.json()) as { message: string }).message).toMatch(
      /^config\.targets\[1\]: No provider or virtual key with the slug "nope" exists .* Before it, config\.targets\[0\] failed with status 502\.$/,
    );
  });

  it('is a warning when the config is saved, updated and restored, until the provider is there', async () => {
    const made = await save(config);
    const warnings = [{ param: 'config.targets[1].provider', message: expect.stringContaining('"@nope"') }];
    expect([made.status, made.body.warnings]).toEqual([200, warnings]);
    const path = `/configs/${made.body.slug}`;
    expect((await server.admin('PUT', path, { config })).body.warnings).toEqual(warnings);
    const restored = () => server.admin('POST', `${path}/versions/${made.body.version_id}/restore`);
    expect((await restored()).body.warnings).toEqual(warnings);
    await server.admin('POST', '/integrations', {
      name: 'nope',
      slug: 'nope',
      ai_provider_id: 'sandbox',
      workspace_id: server.first.workspace_id,
    });
    expect((await restored()).body.warnings).toBeUndefined();
  });

  it.each([
    ['provider', { provider: '@nope2' }],
    ['virtual_key', { virtual_key: 'nope2' }],
    ['override_params.model', { override_params: { model: '@nope2/m' } }],
  ])('is a warning as %s of a config with one target', async (field, one) => {
    const { status, body } = await save(one);
    expect([status, body.warnings]).toEqual([
      200,
      [{ param: `config.${field}`, message: expect.stringContaining('names "@nope2"') }],
    ]);
  });
});

describe('saving a config', () => {
  it('is answered with a warning where a provider that is away would stop it', async () => {
    const { status, body } = await save(fallback([429, 503]));
    expect([status, body.warnings]).toEqual([
      200,
      [
        {
          param: 'config.strategy.on_status_codes',
          message: expect.stringContaining('config.strategy.on_status_codes lacks 408, 502, 504.'),
        },
      ],
    ]);
    const again = await server.admin('PUT', `/configs/${body.slug}`, { config: fallback([408, 429, 502]) });
    expect(again).toMatchObject({
      status: 200,
      body: { warnings: [{ message: expect.stringContaining('lacks 504.') }] },
    });
  });

  it('warns of the lists of targets below, but for the last, which nothing follows', async () => {
    const group = {
      ...fallback([408, 502, 504]),
      targets: [{ ...targets('echo')[0], on_status_codes: [500] }, targets('echo')[1]],
    };
    const { body } = await save({ strategy: { mode: 'loadbalance' }, targets: [group, { provider: '@sandbox' }] });
    expect((body.warnings as { param: string }[]).map(({ param }) => param)).toEqual([
      'config.targets[0].targets[0].on_status_codes',
    ]);
  });

  it.each([
    ['without a list', fallback(undefined)],
    ['with the list of the guide', fallback([408, 429, 500, 502, 503, 504, 529])],
    ['with one target', { provider: '@sandbox' }],
  ])('is not, %s', async (_title, config) => {
    const { status, body } = await save(config);
    expect([status, body.warnings]).toEqual([200, undefined]);
  });
});
