/** Conditions, inheritance and rights of configs with several targets. */
import { describe, expect, it } from 'vitest';
import { ask, bodyOf, conditional, counts, of, saved, server, useRouting } from '../support/routed.ts';
import { balanced, chat, fails, fallback, target } from '../support/routing.ts';
import type { Received } from '../support/upstream.ts';

useRouting();

describe('conditions', () => {
  const targets = [target('a', { name: 'fast' }), target('b', { name: 'good' }), target('c', { name: 'rest' })];
  const config = conditional(
    [
      [{ 'metadata.tier': 'gold', 'params.temperature': { $lt: 0.5 } }, 'good'],
      [{ $or: [{ 'params.model': { $regex: 'mini$' } }, { 'headers.x-hurry': 'yes' }] }, 'fast'],
      [{ 'url.pathname': '/v1/completions' }, 'fast'],
    ],
    targets,
    'rest',
  );
  const gold = { 'x-gateway-metadata': '{"tier":"gold"}' };

  it.each<[string, object, Record<string, string>, number]>([
    ['all of the first', { temperature: 0.1 }, gold, 1],
    ['half of the first', { temperature: 0.9 }, gold, 2],
    ['a member that is no number', { temperature: 'cold' }, gold, 2],
    ['the model as it was asked for', { model: 'gpt-4o-mini' }, {}, 0],
    ['a header', {}, { 'X-Hurry': 'yes' }, 0],
    ['the first of two that match', { model: 'gpt-4o-mini', temperature: 0 }, gold, 1],
    ['none', {}, {}, 2],
  ])('%s', async (_title, extra, headers, index) => {
    expect(await ask(config, extra, headers)).toMatchObject({ status: 200, path: `config.targets[${index}]` });
  });

  it('forms have no members to ask for, and go where nothing matches', async () => {
    const form = new FormData();
    form.set('model', 'whisper-mini');
    form.set('file', new Blob(['sound']), 'a.mp3');
    const answer = await fetch(`${server.url}/v1/audio/transcriptions`, {
      method: 'POST',
      headers: {
        'x-gateway-api-key': server.first.workspace_api_key,
        'x-gateway-config': JSON.stringify(config),
      },
      body: form,
    });
    await answer.text();
    expect(answer.headers.get('x-gateway-last-used-option-index')).toBe('config.targets[2]');
  });

  it('a target may be a group of its own', async () => {
    of('a').answer = fails(500);
    const nested = conditional(
      [[{ 'metadata.tier': 'gold' }, 'group']],
      [{ name: 'group', ...fallback([target('a'), target('b')]) }, target('c', { name: 'rest' })],
      'rest',
    );
    expect(await ask(nested, {}, gold)).toMatchObject({ status: 200, path: 'config.targets[0].targets[1]' });
    expect(await ask(nested)).toMatchObject({ status: 200, path: 'config.targets[1]' });
  });
});

describe('passthrough', () => {
  it('a target takes the provider of the header, then that of the model; without any it fails and the next is tried', async () => {
    of('a').answer = fails(500);
    const config = fallback([target('a'), { passthrough: true, override_params: { temperature: 0 } }]);
    const header = { 'x-gateway-provider': '@c' };
    expect(await ask(config, {}, header)).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(bodyOf(of('c').received[0] as Received)).toMatchObject({ model: 'gpt-4o', temperature: 0 });
    expect(await ask(config, { model: '@b/other' }, header)).toMatchObject({ status: 200 });
    expect(counts()).toEqual([2, 0, 2]);
    expect(await ask(config, { model: '@b/other' })).toMatchObject({ status: 200 });
    expect(bodyOf(of('b').received[0] as Received)).toMatchObject({ model: 'other' });
    expect(await ask(fallback([{ passthrough: true }, target('c')]))).toMatchObject({
      status: 200,
      path: 'config.targets[1]',
    });
    expect(await ask(fallback([target('a'), { passthrough: true }]))).toMatchObject({ status: 400 });
  });

  it('a whole config may pass through, with what else it says', async () => {
    const slug = await saved({ passthrough: true, default_params: { top_p: 0.25 } });
    expect(await ask(slug, { model: '@b/m' })).toMatchObject({ status: 200, path: 'config' });
    expect(bodyOf(of('b').received[0] as Received)).toMatchObject({ model: 'm', top_p: 0.25 });
    expect(await ask(slug)).toMatchObject({ status: 400 });
  });
});

describe('what flows down', () => {
  it('parameters, retries, time-outs, hosts and headers of the root are those of a target that has none of its own', async () => {
    of('a').answer = fails(429, { 'retry-after-ms': '1' });
    const config = {
      ...fallback([
        target('a', { retry: { attempts: 0 }, override_params: { top_p: 1 } }),
        { ...balanced([target('b')]), default_params: { stop: 'x' } },
      ]),
      retry: { attempts: 2, use_retry_after_headers: true },
      override_params: { temperature: 0.3, top_p: 0.1 },
      forward_headers: ['x-own'],
    };
    of('b').answer = fails(429, { 'retry-after-ms': '1' });
    expect(await ask(config, {}, { 'x-own': 'mine' })).toMatchObject({ path: 'config.targets[1].targets[0]' });
    expect(counts()).toEqual([1, 3, 0]);
    expect(bodyOf(of('a').received[0] as Received)).toMatchObject({ temperature: 0.3, top_p: 1 });
    expect(bodyOf(of('b').received[0] as Received)).toMatchObject({ temperature: 0.3, top_p: 0.1, stop: 'x' });
    for (const name of ['a', 'b']) expect(of(name).received[0]?.headers['x-own']).toBe('mine');
  });

  it('a key of the root is never sent to the provider that a target names itself', async () => {
    const config = {
      provider: 'openai',
      api_key: 'sk-of-the-root',
      custom_host: `${of('c').url}/v1`,
      ...fallback([
        { provider: 'openai', api_key: 'sk-own', custom_host: `${of('a').url}/v1` },
        { retry: { attempts: 0 } },
      ]),
    };
    of('a').answer = fails(500);
    expect(await ask(config)).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(of('a').received[0]?.headers.authorization).toBe('Bearer sk-own');
    expect(of('c').received[0]?.headers.authorization).toBe('Bearer sk-of-the-root');
    const stored = { provider: 'openai', api_key: 'sk-of-the-root', ...fallback([target('b'), target('a')]) };
    await ask(stored);
    expect(of('b').received[0]?.headers.authorization).toBe('Bearer sk-b-credential');
  });
});

describe('dry runs', () => {
  it('show the target that would be called first and the others in order, and call none', async () => {
    const config = fallback([
      { provider: '@nobody' },
      target('b', { override_params: { model: 'm1' } }),
      balanced([target('c'), target('a')]),
    ]);
    const told = await ask(config, {}, { 'x-gateway-dry-run': 'true' });
    expect(told.status).toBe(200);
    expect(JSON.parse(told.text)).toMatchObject({
      object: 'decision',
      dry_run: true,
      target: { path: 'config.targets[1]', provider: 'openai', provider_slug: 'b', model: 'm1' },
      targets: [
        {
          path: 'config.targets[0]',
          provider: null,
          provider_slug: 'nobody',
          order: 1,
          problem: expect.stringContaining('nobody'),
        },
        { path: 'config.targets[1]', provider: 'openai', provider_slug: 'b', model: 'm1', order: 2, problem: null },
        { path: 'config.targets[2].targets[0]', provider: 'openai', provider_slug: 'c', model: 'gpt-4o', order: 3 },
        { path: 'config.targets[2].targets[1]', provider_slug: 'a', order: null, why: 'not_drawn' },
      ],
    });
    expect(counts()).toEqual([0, 0, 0]);
  });
});

describe('who may say where a request goes', () => {
  it('what a name contains never makes it another one that was asked for before', async () => {
    const named = (provider: string, model: string) =>
      server.call('/chat/completions', chat({ model }), { 'x-gateway-provider': provider });
    for (const model of ['a|gpt-4o', 'a\ngpt-4o', '1:agpt-4o']) expect((await named('@a', model)).status).toBe(200);
    expect((await named('@a|', '@a/gpt-4o')).status).toBe(400);
  });

  const inline = fallback([
    target('a'),
    { provider: 'openai', api_key: 'sk-mine-alone', custom_host: 'http://127.0.0.1:1/v1' },
  ]);

  it('hosts of nested targets are judged like any other, in saved configs and in those of a request', async () => {
    const hosts = fallback([
      target('a'),
      fallback([target('b'), target('c', { custom_host: 'http://169.254.169.254/' })]),
    ]);
    const refused = await ask(hosts);
    expect(refused.status).toBe(400);
    expect(refused.text).toContain('targets[1].targets[1].custom_host');
    const made = await server.admin('POST', '/configs', {
      name: 'hosts',
      config: hosts,
      workspace_id: server.first.workspace_id,
    });
    expect(made).toMatchObject({
      status: 400,
      body: { error: { param: 'config.targets[1].targets[1].custom_host' } },
    });
    expect(counts()).toEqual([0, 0, 0]);
  });

  it('a stored credential never leaves for a host that a target of a config names', async () => {
    const elsewhere = fallback([target('a', { custom_host: 'https://example.org/v1' }), target('c')]);
    expect(await ask(elsewhere)).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(counts()).toEqual([0, 0, 1]);
  });

  it('in saved-only mode only saved configs have targets, whatever those of a request name', async () => {
    const slug = await saved(fallback([{ provider: '@nobody' }, target('b')]));
    const block = (block_inline_config: boolean) =>
      server.admin('PUT', '/admin/organisation/settings', { data_plane_security_settings: { block_inline_config } });
    expect((await block(true)).status).toBe(200);
    expect(await ask(slug)).toMatchObject({ status: 200, path: 'config.targets[1]' });
    for (const config of [inline, fallback([target('a'), target('b')])]) {
      const refused = await ask(config);
      expect(refused.status).toBe(400);
      expect(refused.text).toContain('inline_config_blocked');
    }
    const host = await ask(slug, {}, { 'x-gateway-custom-host': `${of('c').url}/v1` });
    expect(host.text).toContain('inline_custom_host_blocked');
    expect((await block(false)).status).toBe(200);
    expect(counts()).toEqual([0, 1, 0]);
  });

  it('a key that pins its config runs all targets of that one and no other', async () => {
    const slug = await saved(fallback([{ provider: '@nobody' }, target('b')]));
    const made = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'pinned',
      workspace_id: server.first.workspace_id,
      scopes: ['completions.write'],
      defaults: { config_id: slug, allow_config_override: false },
    });
    const key = { 'x-gateway-api-key': String(made.body.key) };
    const answer = await server.call('/chat/completions', chat(), key);
    expect(answer.headers.get('x-gateway-last-used-option-index')).toBe('config.targets[1]');
    await answer.text();
    expect(await ask(fallback([target('a'), target('b')]), {}, key)).toMatchObject({ status: 400 });
  });
});
