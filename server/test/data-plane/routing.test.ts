import { describe, expect, it } from 'vitest';
import { ask, bodyOf, conditional, counts, dice, of, saved, server, useRouting } from '../support/routed.ts';
import { answerOf, balanced, chat, fails, fallback, ok, target } from '../support/routing.ts';
import type { Received } from '../support/upstream.ts';

useRouting();

describe('fallback', () => {
  it('the next target answers when the one before refuses, and headers and record say which', async () => {
    of('a').answer = fails(500);
    const told = await ask(fallback([target('a'), target('b')]));
    expect(told).toMatchObject({ status: 200, path: 'config.targets[1]', retries: '0' });
    expect(JSON.parse(told.text)).toEqual(answerOf('b'));
    expect(counts()).toEqual([1, 1, 0]);
    const [record] = await server.records();
    expect(record).toMatchObject({
      status: 200,
      outcome: 'ok',
      error_code: null,
      provider_slug: 'b',
      model_answered: 'model-b',
      attempts: [
        { target: 'config.targets[0]', provider: 'openai', status: 500 },
        { target: 'config.targets[1]', provider: 'openai', status: 200 },
      ],
    });
  });

  it('the first target alone is called while it answers', async () => {
    expect(await ask(fallback([target('a'), target('b')]))).toMatchObject({ status: 200, path: 'config.targets[0]' });
    expect(counts()).toEqual([1, 0, 0]);
  });

  it('the last answer is given when all fail', async () => {
    of('a').answer = fails(500);
    of('b').answer = fails(404);
    const told = await ask(fallback([target('a'), target('b')]));
    expect(told).toMatchObject({ status: 404, path: 'config.targets[1]' });
    expect(told.text).toContain('status 404');
    expect((await server.records())[0]).toMatchObject({ status: 404, outcome: 'failed', provider_slug: 'b' });
  });

  it.each([
    ['listed', [429], 429, 'config.targets[1]', 200],
    ['not listed', [429], 500, 'config.targets[0]', 500],
    ['a list that is empty', [], 500, 'config.targets[0]', 500],
    ['a success that is listed', [200], 200, 'config.targets[1]', 200],
  ])('on_status_codes: %s', async (_title, codes, status, path, given) => {
    if (status !== 200) of('a').answer = fails(status);
    const told = await ask(fallback([target('a'), target('b')], { on_status_codes: codes }));
    expect(told).toMatchObject({ status: given, path });
  });

  it('on_status_codes of a target comes before those of the strategy, those beside the strategy count without any', async () => {
    of('a').answer = fails(500);
    const own = fallback([target('a', { on_status_codes: [500] }), target('b')], { on_status_codes: [429] });
    expect(await ask(own)).toMatchObject({ status: 200, path: 'config.targets[1]' });
    const beside = { ...fallback([target('a'), target('b')]), on_status_codes: [429] };
    expect(await ask(beside)).toMatchObject({ status: 500, path: 'config.targets[0]' });
  });

  it('a connection that is refused, a cut before the head and a timeout move on', async () => {
    of('a').answer = (_request, response) => void response.destroy();
    expect(await ask(fallback([target('a'), target('b')]))).toMatchObject({ status: 200, path: 'config.targets[1]' });
    of('a').answer = () => {};
    const told = await ask(fallback([target('a', { request_timeout: 30 }), target('b')]));
    expect(told).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect((await server.records())[0]?.attempts).toMatchObject([
      { target: 'config.targets[0]', status: null, error: 'timeout' },
      { target: 'config.targets[1]', status: 200, error: null },
    ]);
  });

  it('what concerns one target only makes that target fail', async () => {
    const unknown = { provider: '@nobody' };
    const model = { provider: '@a', override_params: { prompt_id: 1 }, prompt_id: 'pp-x' };
    const told = await ask(fallback([unknown, model, target('b')]));
    expect(told).toMatchObject({ status: 200, path: 'config.targets[2]' });
    expect((await server.records())[0]?.attempts).toMatchObject([
      { target: 'config.targets[0]', status: null, error: 'bad_call' },
      { target: 'config.targets[1]', status: null, error: 'unsupported_operation' },
      { target: 'config.targets[2]', status: 200, error: null },
    ]);
  });

  it('when no target can be called, the last reason is told with its place', async () => {
    const told = await ask(fallback([{ provider: '@nobody' }, { provider: '@noone' }]));
    expect(told).toMatchObject({ status: 400, path: 'config.targets[1]' });
    expect(told.text).toContain('noone');
    expect((await server.records())[0]).toMatchObject({ outcome: 'refused', provider: null, cost_micros: null });
  });

  it('each target gets the body as it came, with its own parameters', async () => {
    for (const name of ['a', 'b']) of(name).answer = fails(503);
    const config = fallback([
      target('a', { override_params: { model: 'first', temperature: 0.1 }, drop_params: ['user'] }),
      target('b', { default_params: { top_p: 0.5 } }),
      target('c', { override_params: { model: '@c/third' } }),
    ]);
    expect(await ask(config, { user: 'me', temperature: 1 })).toMatchObject({ status: 200, path: 'config.targets[2]' });
    const sent = ['a', 'b', 'c'].map((name) => bodyOf(of(name).received[0] as Received));
    const { messages } = chat();
    expect(sent).toEqual([
      { model: 'first', messages, temperature: 0.1 },
      { model: 'gpt-4o', messages, user: 'me', temperature: 1, top_p: 0.5 },
      { model: 'third', messages, user: 'me', temperature: 1 },
    ]);
  });

  it('a target that takes the body as it is gets it byte for byte, also after one that did not', async () => {
    of('a').answer = fails(500);
    const body =
      '{ "z":1e400, "model" : "gpt-4o","messages":[{"role":"user","content":"\\u0041\\/"}], "n":12345678901234567890}';
    const config = JSON.stringify(fallback([target('a', { override_params: { temperature: 0 } }), target('b')]));
    const answer = await server.call('/chat/completions', body, { 'x-gateway-config': config });
    expect(answer.status).toBe(200);
    await answer.text();
    expect(of('b').received[0]?.body.toString('utf8')).toBe(body);
  });

  it('credentials stay with their target: each upstream gets its own key', async () => {
    of('a').answer = fails(500);
    await ask(fallback([target('a'), target('b')]));
    expect(of('a').received[0]?.headers.authorization).toBe('Bearer sk-a-credential');
    expect(of('b').received[0]?.headers.authorization).toBe('Bearer sk-b-credential');
  });

  it('retries of a target come before the next target, and the count is of the target that answered', async () => {
    const retry = { attempts: 2, use_retry_after_headers: true };
    of('a').answer = fails(429, { 'retry-after-ms': '1' });
    expect(await ask({ ...fallback([target('a'), target('b')]), retry })).toMatchObject({ status: 200, retries: '0' });
    expect(counts()).toEqual([3, 1, 0]);
    of('b').answer = fails(429, { 'retry-after-ms': '1' });
    expect(await ask({ ...fallback([target('a'), target('b')]), retry })).toMatchObject({ status: 429, retries: '-1' });
  });

  it('nested groups are walked in order, with the path of the target that answered', async () => {
    of('a').answer = fails(500);
    of('b').answer = fails(500);
    const inner = fallback([target('a'), target('b')]);
    expect(await ask(fallback([inner, target('c')]))).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(await ask(fallback([target('a'), fallback([target('b'), target('c')])]))).toMatchObject({
      status: 200,
      path: 'config.targets[1].targets[1]',
    });
  });

  it('a stream goes to the next target before its first event', async () => {
    of('a').answer = fails(500);
    of('b').answer = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(
        'data: {"id":"s","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
      );
    };
    const told = await ask(fallback([target('a'), target('b')]), { stream: true });
    expect(told).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(told.text).toContain('"content":"hi"');
  });

  it('a saved config does the same, request after request', async () => {
    const slug = await saved(fallback([target('a'), target('b')]));
    for (let i = 0; i < 3; i++) {
      of('a').answer = i === 1 ? ok('a') : fails(500);
      const told = await ask(slug);
      expect(told).toMatchObject({ status: 200, path: `config.targets[${i === 1 ? 0 : 1}]` });
    }
    expect((await server.records())[0]).toMatchObject({ config_slug: slug });
  });
});

describe('load balancing', () => {
  it.each([
    [0, 0],
    [0.249, 0],
    [0.25, 1],
    [0.999, 1],
  ])('a draw of %f of weights 1, 3 and 0 takes target %i', async (drawn, index) => {
    dice.random = drawn;
    const config = balanced([target('a'), target('b', { weight: 3 }), target('c', { weight: 0 })]);
    expect(await ask(config)).toMatchObject({ status: 200, path: `config.targets[${index}]` });
  });

  it('weights are shares: of draws spread evenly each target gets its part', async () => {
    const got = new Map<string | null, number>();
    for (let i = 0; i < 40; i++) {
      dice.random = (i + 0.5) / 40;
      const config = balanced([
        target('a', { weight: 0.5 }),
        target('b', { weight: 0.3 }),
        target('c', { weight: 0.2 }),
      ]);
      const { path } = await ask(config);
      got.set(path, (got.get(path) ?? 0) + 1);
    }
    expect([...got.values()]).toEqual([20, 12, 8]);
  });

  it('the drawn target fails for the request, and a fallback around it goes on', async () => {
    of('a').answer = fails(500);
    const pair = balanced([target('a'), target('b')]);
    expect(await ask(pair)).toMatchObject({ status: 500, path: 'config.targets[0]' });
    expect(await ask(fallback([pair, target('c')]))).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(counts()).toEqual([2, 0, 1]);
  });

  it('sticky: the same values go to the same target, whatever is drawn; values spread over all', async () => {
    const slug = await saved(
      balanced([target('a'), target('b'), target('c')], {
        sticky: { enabled: true, hash_fields: ['metadata.user_id', 'headers.x-team'], ttl: 600 },
      }),
    );
    const of = (user: string) => ask(slug, {}, { 'x-gateway-metadata': JSON.stringify({ user_id: user }) });
    const paths = new Set<string | null>();
    for (let user = 0; user < 20; user++) {
      const { path } = await of(`user-${user}`);
      paths.add(path);
      for (const drawn of [0, 0.5, 0.99]) {
        dice.random = drawn;
        expect((await of(`user-${user}`)).path).toBe(path);
      }
    }
    expect(paths.size).toBe(3);
  });

  it('sticky: without any of the values each request is drawn', async () => {
    const config = balanced([target('a'), target('b')], {
      sticky: { enabled: true, hash_fields: ['metadata.user_id'] },
    });
    const paths: (string | null)[] = [];
    for (const drawn of [0.1, 0.9, 0.1]) {
      dice.random = drawn;
      paths.push((await ask(config)).path);
    }
    expect(paths).toEqual(['config.targets[0]', 'config.targets[1]', 'config.targets[0]']);
  });
});

describe('circuit breakers', () => {
  const cb_config = { failure_threshold: 2, cooldown_interval: 30_000 };

  it('a target that keeps failing is left out, for this config alone', async () => {
    of('a').answer = fails(503);
    const slug = await saved({ ...fallback([target('a'), target('b')]), cb_config });
    const other = await saved({ ...fallback([target('a'), target('b')]), cb_config });
    for (let i = 0; i < 5; i++) expect(await ask(slug)).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(counts()).toEqual([2, 5, 0]);
    await ask(other);
    expect(counts()).toEqual([3, 6, 0]);
  });

  it('who brings a time limit along that is too short keeps nobody else from a target that answers', async () => {
    of('a').answer = (request, response) => void setTimeout(() => ok('a')(request, response), 600);
    const slug = await saved({ ...fallback([target('a'), target('b')]), cb_config });
    const short = () => ask(slug, {}, { 'x-gateway-request-timeout': '200' });
    for (let i = 0; i < 4; i++) await short();
    expect(await ask(slug)).toMatchObject({ status: 200, path: 'config.targets[0]' });
  });

  it('who brings a token along that is refused keeps nobody else from a target that takes theirs', async () => {
    of('a').answer = (request, response) =>
      (request.headers.authorization === 'Bearer good' ? ok('a') : fails(401))(request, response);
    const slug = await saved({
      ...fallback([{ provider: 'openai', custom_host: `${of('a').url}/v1` }, target('b')]),
      cb_config: { ...cb_config, failure_status_codes: [401] },
    });
    const as = (token: string) => ask(slug, {}, { authorization: `Bearer ${token}` });
    for (let i = 0; i < 4; i++) expect(await as('bad')).toMatchObject({ path: 'config.targets[1]' });
    expect(counts()).toEqual([2, 4, 0]);
    expect(await as('good')).toMatchObject({ status: 200, path: 'config.targets[0]' });
  });

  it('a new version of a config begins anew', async () => {
    of('a').answer = fails(503);
    const config = { ...fallback([target('a'), target('b')]), cb_config };
    const slug = await saved(config);
    for (let i = 0; i < 3; i++) await ask(slug);
    expect(counts()).toEqual([2, 3, 0]);
    expect((await server.admin('PUT', `/configs/${slug}`, { config })).status).toBe(200);
    await ask(slug);
    expect(counts()).toEqual([3, 4, 0]);
  });

  it('a load balancer draws among those that are left; when all are open, none is left out', async () => {
    of('a').answer = fails(503);
    const slug = await saved({ ...balanced([target('a'), target('b')]), cb_config });
    for (let i = 0; i < 2; i++) expect(await ask(slug)).toMatchObject({ status: 503 });
    expect(await ask(slug)).toMatchObject({ status: 200, path: 'config.targets[1]' });
    of('b').answer = fails(503);
    for (let i = 0; i < 2; i++) expect(await ask(slug)).toMatchObject({ status: 503, path: 'config.targets[1]' });
    expect(await ask(slug)).toMatchObject({ status: 503, path: 'config.targets[0]' });
  });

  it('conditions choose without asking it, and refusals by Sluice are no failures of a target', async () => {
    of('a').answer = fails(503);
    const slug = await saved({
      ...conditional([[{}, 'x']], [target('a', { name: 'x' }), target('b', { name: 'y' })], 'y'),
      cb_config,
    });
    for (let i = 0; i < 4; i++) expect(await ask(slug)).toMatchObject({ status: 503, path: 'config.targets[0]' });
    const unknown = await saved({ ...fallback([{ provider: '@nobody' }, target('b')]), cb_config });
    for (let i = 0; i < 4; i++) await ask(unknown);
    expect((await server.records())[0]?.attempts).toHaveLength(2);
  });
});

describe('how much one request may become', () => {
  const searching = (patterns: string[], key = 'metadata.text') =>
    conditional(
      patterns.map((pattern) => [{ [key]: { $regex: pattern } }, 'a']),
      [target('a', { name: 'a' }), target('b', { name: 'b' })],
      'b',
    );

  it('conditions that search for too much in a request refuse it, and a thousand short ones are no such', async () => {
    const metadata = { 'x-gateway-metadata': JSON.stringify({ text: 'x'.repeat(120) }) };
    const many = await saved(searching(Array.from({ length: 1000 }, (_, i) => `^gpt-${i}$`)));
    const short = await ask(many, {}, metadata);
    expect(short.status, short.text).toBe(200);
    const costly = Array.from({ length: 20 }, (_, i) => `([a-y]|x){${140 + i}}z`);
    const fine = await ask(searching(costly), {}, metadata);
    expect(fine.status, fine.text).toBe(200);
    const told = await ask(searching(costly, 'params.user'), { user: 'x'.repeat(700) });
    expect(told).toMatchObject({ status: 400 });
    expect(told.text).toContain('search too long');
  });

  it('a config whose patterns take long to compile is refused, saved or not', async () => {
    const config = searching(Array.from({ length: 60 }, (_, i) => `([a-y]|x){300}${i}`));
    const refused = await server.admin('POST', '/configs', {
      name: 'slow',
      config,
      workspace_id: server.first.workspace_id,
    });
    expect(refused.status).toBe(400);
    expect(JSON.stringify(refused.body)).toMatch(/strategy\.conditions\[\d+\]\.query.*too large together/);
    expect(await ask(config)).toMatchObject({ status: 400 });
  });

  it('at most 200 calls, however many targets and retries a config has, and then the last answer', async () => {
    of('a').answer = fails(503);
    const targets = Array.from({ length: 100 }, () => fallback([target('a'), target('a'), target('a')]));
    const slug = await saved({ ...fallback(targets), retry: { attempts: 5 } });
    const told = await ask(slug);
    expect(told).toMatchObject({ status: 503 });
    expect(told.text).toContain('status 503');
    expect(counts()).toEqual([200, 0, 0]);
    of('a').received.length = 0;
    of('b').answer = fails(503);
    await ask(await saved(fallback([...Array.from({ length: 99 }, () => target('a')), target('c')])));
    expect(counts()).toEqual([99, 0, 1]);
  });
});
