import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { beforeAll, describe, expect, it } from 'vitest';
import { REQUEST_ROWS } from '../../../test/guardrail-sets/requests.ts';
import {
  type Answer,
  common,
  judged,
  judgeOf,
  outsideOf,
  problems,
  type SubjectParts,
  subjectOf,
} from '../../../test/support/guardrails.ts';

describe('checks of requests', () => {
  it.each(REQUEST_ROWS)('%s %j passes and fails as written', async (id, parameters, passes, fails) => {
    for (const [subjects, expected] of [
      [passes, true],
      [fails, false],
    ] as const)
      for (const subject of subjects)
        expect((await judged(id, parameters, { phase: 'input', ...subject })).verdict, JSON.stringify(subject)).toBe(
          expected,
        );
  });

  it('a prefix stands before the last text of the user, wherever system and tool texts are', async () => {
    const texts = [
      { path: 'messages[0].content', role: 'user' as const, text: 'one' },
      { path: 'messages[1].content', role: 'user' as const, text: 'two 🙂' },
      { path: 'messages[1].name', role: 'user' as const, text: 'somebody' },
      { path: 'messages[2].content', role: 'tool' as const, text: 'x' },
    ];
    expect((await judged('default.addPrefix', { prefix: 'P: ' }, { texts })).replacements).toEqual([
      { path: 'messages[1].content', text: 'P: two 🙂' },
    ]);
    expect((await judged('default.addPrefix', { prefix: 'P' }, { texts: [] })).replacements).toBeUndefined();
  });
});

describe('default.webhook and default.log', () => {
  const answering = (answer: Answer) => outsideOf(() => answer);
  const told: SubjectParts = {
    phase: 'input',
    texts: ['a', 'b'],
    request: { model: 'm' },
    metadata: { k: 'v' },
    status: null,
    headers: { 'x-tenant': 't', authorization: 'secret' },
  };

  it('is told what the protocol says, with its own headers over forwarded ones', async () => {
    const outside = answering({ body: { verdict: true } });
    await judgeOf(
      'default.webhook',
      { webhookURL: 'https://hook.example/x', headers: { 'X-Own': '1', 'X-Tenant': 'mine' } },
      common({ forwardHeaders: ['x-tenant'] }),
    ).judge(subjectOf(told), outside);
    const [call] = outside.calls;
    expect(call?.headers).toEqual({ 'content-type': 'application/json', 'x-own': '1', 'x-tenant': 'mine' });
    expect(JSON.parse(String(call?.body))).toEqual({
      request: { json: { model: 'm' }, text: 'a\nb', isStreamingRequest: false, isTransformed: false },
      response: { json: null, text: '', statusCode: null, isTransformed: false },
      provider: 'openai',
      requestType: 'chatComplete',
      metadata: { k: 'v' },
      eventType: 'beforeRequestHook',
    });
  });

  it('replaces the request before and the answer after the call', async () => {
    const transformedData = { request: { json: { a: 1 } }, response: { json: { b: 2 } } };
    const params = { webhookURL: 'https://hook.example' };
    expect(
      (await judged('default.webhook', params, { ...told }, answering({ body: { verdict: true, transformedData } })))
        .replaced,
    ).toEqual({ a: 1 });
    expect(
      (
        await judged(
          'default.webhook',
          params,
          { ...told, phase: 'output' },
          answering({ body: { verdict: false, data: 'no', transformedData } }),
        )
      ).replaced,
    ).toEqual({ b: 2 });
  });

  it.each([
    [{ status: 500, body: { verdict: true } }],
    [{ status: 404, body: { verdict: true } }],
    [{ status: 302, body: { verdict: true } }],
    [{ body: 'no json' }],
    [{ body: {} }],
    [{ body: { verdict: 'true' } }],
    [{ body: [] }],
    [{ body: { verdict: true, transformedData: { request: { json: [] } } } }],
    [new Error('down')],
  ] as const)('an answer of %j is an error, not a verdict', async (answer) => {
    await expect(
      judged('default.webhook', { webhookURL: 'https://hook.example' }, told, answering(answer as Answer)),
    ).rejects.toThrow();
    expect(
      (await judged('default.log', { logURL: 'https://log.example' }, told, answering(answer as Answer))).verdict,
    ).toBe(true);
  });

  it.each([
    'ftp://a.example',
    'a.example',
    '',
    'https://u:p@a.example',
    'javascript:1',
    'https://',
    '//a',
    'file:///etc/passwd',
  ])('the URL %j is refused', (webhookURL) => {
    expect(problems('default.webhook', { webhookURL })[0]).toMatch(/^\[0\]\.parameters\.webhookURL/);
  });
  it.each([
    { host: 'x' },
    { 'a b': 'x' },
    { x: 'a\r\nb: c' },
    { 'Content-Length': '1' },
    { x: 1 },
    { Cookie: 'a=b' },
    { 'Metadata-Flavor': 'Google' },
    { x: 'a\u0085b' },
    { x: '\u00e9' },
  ])('the headers %j are refused', (headers) => {
    expect(problems('default.log', { logURL: 'https://a.example', headers })[0]).toMatch(/^\[0\]\.parameters\.headers/);
  });
});

describe('default.validUrls', () => {
  const outside = () =>
    outsideOf(
      ({ url, method }) =>
        url.includes('down')
          ? new Error('x')
          : url.includes('head') && method === 'HEAD'
            ? { status: 405 }
            : { status: url.includes('404') ? 404 : 200 },
      { resolves: async (host) => !host.includes('nowhere') },
    );
  it.each([
    '',
    'no url',
    'see https://a.example.',
    '(https://a.example/x_(y))',
    'https://head.example',
    'https://ä.example/ü?q=漢',
    '[a](https://a.example/b)',
    'http://a.example, http://b.example!',
    '"https://a.example"',
    'ftp://404.example',
  ])('%j passes', async (text) => {
    expect((await judged('default.validUrls', {}, text, outside())).verdict).toBe(true);
  });
  it.each(
    [
      'https://a.example/404',
      'https://a.example https://down.example',
      'http://',
      'x https://[bad',
      'https://404.example.',
      '(https://down.example)',
    ].filter((text) => /\/\/\w/.test(text)),
  )('%j fails', async (text) => {
    expect((await judged('default.validUrls', {}, text, outside())).verdict).toBe(false);
  });
  it('asks only for addresses with onlyDNS, and each URL once', async () => {
    const asked = outside();
    expect((await judged('default.validUrls', { onlyDNS: true }, 'https://a.example/404', asked)).verdict).toBe(true);
    expect((await judged('default.validUrls', { onlyDNS: true }, 'https://nowhere.example', asked)).verdict).toBe(
      false,
    );
    expect(asked.calls).toEqual([]);
    await judged('default.validUrls', {}, 'https://a.example https://a.example', asked);
    expect(asked.calls.map(({ url, method }) => [url, method])).toEqual([['https://a.example/', 'HEAD']]);
    await expect(
      judged('default.validUrls', {}, Array.from({ length: 51 }, (_, i) => `https://a.example/${i}`).join(' '), asked),
    ).rejects.toThrow('more than 50');
  });
});

describe('default.inlineImageUrls', () => {
  const png = Buffer.from('89504e470d0a1a0a00', 'hex');
  const request = {
    messages: [
      {
        role: 'user',
        content: [
          { type: 'image_url', image_url: { url: 'https://i.example/a.png', detail: 'low' } },
          { type: 'image', source: { type: 'url', url: 'https://i.example/b' } },
          { type: 'text', text: 'https://i.example/c' },
        ],
      },
    ],
  };
  it('puts images into the forms of each API, by their bytes, and leaves the shared request alone', async () => {
    const before = structuredClone(request);
    const outside = outsideOf(() => ({ headers: { 'content-type': 'text/html' }, body: png }));
    const { replaced } = await judged('default.inlineImageUrls', {}, { phase: 'input', request }, outside);
    const data = png.toString('base64');
    expect(replaced).toEqual({
      messages: [
        {
          role: 'user',
          content: [
            { type: 'image_url', image_url: { url: `data:image/png;base64,${data}`, detail: 'low' } },
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data } },
            request.messages[0]?.content[2],
          ],
        },
      ],
    });
    expect(request).toEqual(before);
    expect(outside.calls.map(({ url, maxBytes, timeoutMs }) => [url, maxBytes, timeoutMs])).toEqual([
      ['https://i.example/a.png', 20_971_520, 30_000],
      ['https://i.example/b', 20_971_520, 30_000],
    ]);
    const input = [{ role: 'user', content: [{ type: 'input_image', image_url: 'https://i.example/a' }] }];
    expect(
      JSON.stringify((await judged('default.inlineImageUrls', {}, { request: { input } }, outside)).replaced),
    ).toContain(`"data:image/png;base64,${data}"`);
  });
  it.each([[{ status: 404 }], [{ body: '<html>' }], [new Error('down')], [{ body: '<svg/>' }]] as const)(
    '%j leaves the URL, or is an error with failOnError',
    async (answer) => {
      const outside = outsideOf(() => answer as Answer);
      const kept = await judged('default.inlineImageUrls', {}, { request }, outside);
      expect([kept.verdict, kept.replaced]).toEqual([true, undefined]);
      await expect(async () =>
        judgeOf('default.inlineImageUrls', {}, common({ failOnError: true })).judge(subjectOf({ request }), outside),
      ).rejects.toThrow('messages[0].content[0].image_url.url');
    },
  );
  it('leaves other providers alone', async () => {
    const outside = outsideOf();
    await judged('default.inlineImageUrls', { providers: ['bedrock'] }, { request, provider: 'openai' }, outside);
    expect(outside.calls).toEqual([]);
  });
});

describe('default.jwt', () => {
  let key: Awaited<ReturnType<typeof generateKeyPair>>['privateKey'];
  let keys: unknown;
  const NOW = Date.UTC(2026, 0, 1) / 1000;
  beforeAll(async () => {
    const pair = await generateKeyPair('RS256', { extractable: true });
    key = pair.privateKey;
    keys = { keys: [{ ...(await exportJWK(pair.publicKey)), kid: 'k1', alg: 'RS256' }] };
  });
  const token = (claims: Record<string, unknown> = {}, kid = 'k1') =>
    new SignJWT({ iat: NOW - 10, exp: NOW + 600, team: 'red', ...claims })
      .setProtectedHeader({ alg: 'RS256', kid })
      .sign(key);
  const params = { jwksUri: 'https://id.example/jwks', headerKey: 'X-Token' };
  const verdictOf = async (
    sent: string | undefined,
    given: Record<string, unknown> = params,
    outside = outsideOf(() => ({ body: keys as object })),
  ) =>
    (
      await judged(
        'default.jwt',
        given,
        { phase: 'input', headers: { ...(sent === undefined ? {} : { 'x-token': sent }), team: 'red', other: 'x' } },
        outside,
      )
    ).verdict;

  it('lets in what is signed, fresh and claims what is asked', async () => {
    for (const sent of [
      await token(),
      `Bearer ${await token()}`,
      `bearer  ${await token()}`,
      await token({ exp: NOW - 4 }),
      await token({ sub: '漢' }),
    ])
      expect(await verdictOf(sent)).toBe(true);
    const good = await token({ roles: ['a', 'b'], scope: 'x y' });
    for (const more of [
      { requiredClaims: ['team'] },
      { claimValues: { team: { values: ['red'] } } },
      { claimValues: { roles: { values: ['b'] } } },
      { claimValues: { roles: { values: ['a', 'b'], matchType: 'containsAll' } } },
      { claimValues: { scope: { values: ['y'], matchType: 'contains' } } },
      { claimValues: { team: { values: ['^r.d$'], matchType: 'regex' } } },
      { headerPayloadMatch: ['team'] },
      { maxTokenAge: '1m' },
    ])
      expect(await verdictOf(good, { ...params, ...more }), JSON.stringify(more)).toBe(true);
    expect(await verdictOf(good, { jwks: keys, headerKey: 'x-token' })).toBe(true);
  });

  it('keeps out everything else', async () => {
    const good = await token();
    const [head = '', claims = '', signature = ''] = good.split('.');
    const none = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${claims}.`;
    const stranger = await new SignJWT({ iat: NOW, exp: NOW + 60 })
      .setProtectedHeader({ alg: 'RS256', kid: 'k1' })
      .sign((await generateKeyPair('RS256')).privateKey);
    const hmac = await new SignJWT({ iat: NOW, exp: NOW + 60 })
      .setProtectedHeader({ alg: 'HS256', kid: 'k1' })
      .sign(Buffer.alloc(32, 1));
    const refused = [
      undefined,
      '',
      'Bearer ',
      'x',
      'a.b.c',
      none,
      stranger,
      hmac,
      `${head}.${claims}`,
      `${head}.${claims}.${signature.slice(1)}`,
      `${head}.${claims}.`,
      `${head}.${Buffer.from('{}').toString('base64url')}.${signature}`,
      await token({ exp: NOW - 6 }),
      await token({ nbf: NOW + 60 }),
      await token({ iat: NOW - 86_500, exp: NOW + 1 }),
      await token({}, 'k2'),
      '漢'.repeat(10),
      'x'.repeat(20_000),
      `${good}.x`,
      '..',
      'Basic abc',
    ];
    for (const sent of refused) expect(await verdictOf(sent), String(sent).slice(0, 40)).toBe(false);
    for (const more of [
      { requiredClaims: ['nope'] },
      { requiredClaims: ['toString'] },
      { claimValues: { team: { values: ['blue'] } } },
      { headerPayloadMatch: ['other'] },
      { algorithms: ['ES256'] },
      { maxTokenAge: '4s' },
    ])
      expect(await verdictOf(good, { ...params, ...more }), JSON.stringify(more)).toBe(false);
  });

  it('loads the key set once, again when it is old, and at most every half minute for unknown keys', async () => {
    let now = NOW * 1000;
    const outside = outsideOf(() => ({ body: keys as object }), { now: () => now });
    const judge = judgeOf('default.jwt', { ...params, cacheMaxAge: 100 });
    const ask = async (sent: string) =>
      (await judge.judge(subjectOf({ headers: { 'x-token': sent } }), outside)).verdict;
    const [good, unknown] = [await token(), await token({}, 'k9')];
    expect(await Promise.all([ask(good), ask(good), ask(good)])).toEqual([true, true, true]);
    expect(outside.calls).toHaveLength(1);
    expect([await ask(unknown), await ask(unknown)]).toEqual([false, false]);
    expect(outside.calls).toHaveLength(1);
    now += 31_000;
    expect(await ask(unknown)).toBe(false);
    expect(outside.calls).toHaveLength(2);
    now += 101_000;
    await ask(good);
    expect(outside.calls).toHaveLength(3);
  });

  it('a key server that is away is an error, not a verdict, and is asked again', async () => {
    const judge = judgeOf('default.jwt', params);
    const subject = subjectOf({ headers: { 'x-token': await token() } });
    await expect(judge.judge(subject, outsideOf())).rejects.toThrow();
    await expect(
      judge.judge(
        subject,
        outsideOf(() => ({ status: 500 })),
      ),
    ).rejects.toThrow('500');
    expect(
      (
        await judge.judge(
          subject,
          outsideOf(() => ({ body: keys as object })),
        )
      ).verdict,
    ).toBe(true);
  });

  it('asks an introspection server, and keeps what it said only as long as it may', async () => {
    let now = NOW * 1000;
    let claims: Record<string, unknown> = { active: true, team: 'red', exp: NOW + 30 };
    const outside = outsideOf(() => ({ body: claims }), { now: () => now });
    const judge = judgeOf('default.jwt', {
      introspectEndpoint: 'https://id.example/i',
      headerKey: 'x-token',
      introspectCacheMaxAge: 60,
      claimValues: { team: { values: ['red'] } },
    });
    const ask = async () => (await judge.judge(subjectOf({ headers: { 'x-token': 'opaque' } }), outside)).verdict;
    expect([await ask(), await ask()]).toEqual([true, true]);
    expect(outside.calls.map(({ body: sent }) => sent)).toEqual(['token=opaque']);
    now += 31_000;
    claims = { active: false };
    expect([await ask(), await ask()]).toEqual([false, false]);
    expect(outside.calls).toHaveLength(3);
  });

  it.each([
    [{}],
    [{ headerKey: 'a' }],
    [{ headerKey: 'a', jwksUri: 'x' }],
    [{ headerKey: 'a', jwksUri: 'https://a.example', jwks: { keys: [{ kty: 'RSA' }] } }],
    [{ headerKey: 'a', jwks: { keys: [{ kty: 'oct', k: 'x' }] } }],
    [{ ...params, algorithms: ['HS256'] }],
    [{ ...params, algorithms: ['none'] }],
    [{ ...params, maxTokenAge: 'soon' }],
    [{ ...params, claimValues: { a: { values: ['('], matchType: 'regex' } } }],
  ])('the parameters %j are refused', (given) => {
    expect(problems('default.jwt', given)[0]).toMatch(/^\[0\]\.parameters/);
  });
});
