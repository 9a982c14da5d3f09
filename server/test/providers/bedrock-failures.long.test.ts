/** What fails at Bedrock, and what a Bedrock account needs. */
import { describe, expect, it } from 'vitest';
import { awsException } from '../support/aws-frames.ts';
import {
  anthropic,
  CLAUDE,
  chat,
  errorOf,
  last,
  NOVA,
  server,
  upstream,
  useBedrock,
  user,
} from '../support/bedrock-runtime.ts';
import { AWS_KEYS, BEDROCK_KEY, BEDROCK_REGION } from '../support/upstreams/bedrock.ts';
import {
  claudeFrames,
  converseAnswer,
  streamStart,
  textDelta,
  textFrames,
} from '../support/upstreams/bedrock-runtime.ts';

useBedrock();

describe('failures', () => {
  it.each([
    ['ThrottlingException', 429, 429, 'rate_limit_error', 'rate_limit_exceeded'],
    ['ModelNotReadyException', 429, 429, 'rate_limit_error', 'rate_limit_exceeded'],
    ['ServiceQuotaExceededException', 400, 429, 'rate_limit_error', 'insufficient_quota'],
    ['ValidationException', 400, 400, 'invalid_request_error', 'validation_exception'],
    ['AccessDeniedException', 403, 403, 'permission_error', null],
    ['ExpiredTokenException', 403, 403, 'authentication_error', 'invalid_api_key'],
    ['UnrecognizedClientException', 403, 403, 'authentication_error', 'invalid_api_key'],
    ['ResourceNotFoundException', 404, 404, 'not_found_error', 'model_not_found'],
    ['ModelTimeoutException', 408, 408, 'timeout_error', 'model_timeout_exception'],
    ['ModelErrorException', 424, 502, 'api_error', 'model_error'],
    ['InternalServerException', 500, 500, 'api_error', null],
    ['ServiceUnavailableException', 503, 503, 'api_error', null],
  ])('%s is told in the dialect of each caller', async (name, status, seen, type, code) => {
    upstream.failure = { status, name, message: 'The model cannot.' };
    const answer = await chat({ stream: true });
    expect(answer.status).toBe(seen);
    expect(await errorOf(answer)).toEqual({ message: 'The model cannot.', type, param: null, code });
    const create = { model: CLAUDE, max_tokens: 1, messages: [user('hi')] };
    await expect(anthropic.messages.create(create)).rejects.toMatchObject({
      status: seen,
      error: { type: 'error', error: { message: 'The model cannot.' } },
    });
  });

  it('an exception before any content is a failed attempt with its status, which a retry repairs', async () => {
    upstream.reply = () => [awsException('throttlingException', { message: 'Slow down' })];
    const refused = await chat({ stream: true });
    expect(refused.status).toBe(429);
    expect(await errorOf(refused)).toMatchObject({ message: 'Slow down', code: 'rate_limit_exceeded' });
    let tries = 0;
    upstream.reply = () => {
      tries += 1;
      return tries === 1 ? [awsException('serviceUnavailableException', { message: 'Later' })] : textFrames(['ok']);
    };
    const repaired = await chat({ stream: true }, { 'x-gateway-retry-count': '1' });
    expect(repaired.status).toBe(200);
    expect(await repaired.text()).toContain('"content":"ok"');
    expect(tries).toBe(2);
  });

  it('an exception after content ends the stream with an error in the dialect of the caller, and no end', async () => {
    const failing = [streamStart(), textDelta('a'), awsException('modelStreamErrorException', { message: 'It broke' })];
    upstream.reply = () => failing;
    const text = await (await chat({ stream: true })).text();
    expect(text).toContain('"content":"a"');
    expect(text).toContain('It broke');
    expect(text).not.toContain('[DONE]');
    expect(text).not.toContain('"finish_reason":"stop"');
    upstream.reply = () => [
      ...claudeFrames(['a']).slice(0, 3),
      awsException('internalServerException', { message: 'It broke' }),
    ];
    const stream = anthropic.messages.stream({ model: CLAUDE, max_tokens: 9, messages: [user('hi')] });
    await expect(stream.finalMessage()).rejects.toThrow(/It broke/);
    expect((await server.records())[0]).toMatchObject({ outcome: 'failed' });
  });

  it('a stream of a Claude model that breaks is gone on with where the config wants it, in chat and messages', async () => {
    const target = { provider: '@aws', override_params: { model: CLAUDE } };
    const config = { strategy: { mode: 'fallback' }, stream: { on_break: 'continue' }, targets: [target, target] };
    const headers = { 'x-gateway-config': JSON.stringify(config) };
    const broken = awsException('modelStreamErrorException', { message: 'It broke' });
    const body = { model: 'any', max_tokens: 50, stream: true, messages: [user('hi')] };
    upstream.reply = () =>
      upstream.calls.length === 1 ? [streamStart(), textDelta('Grü'), broken] : textFrames(['ße', ' 😀']);
    const chunks = (await (await server.call('/chat/completions', body, headers)).text())
      .split('\n\n')
      .filter((event) => event.startsWith('data: {'))
      .map((event) => JSON.parse(event.slice(6)));
    expect(chunks.map(({ choices }) => choices[0]?.delta?.content ?? '').join('')).toBe('Grüße 😀');
    expect(last().body.messages).toEqual([
      { role: 'user', content: [{ text: 'hi' }] },
      { role: 'assistant', content: [{ text: 'Grü' }] },
    ]);
    upstream.calls.length = 0;
    upstream.reply = () =>
      upstream.calls.length === 1 ? [...claudeFrames(['Grü']).slice(0, 3), broken] : claudeFrames(['ße', ' 😀']);
    const text = await (await server.call('/messages', body, headers)).text();
    const pieces = [...text.matchAll(/"text_delta","text":"([^"]*)"/g)].map(([, piece]) => piece);
    expect(pieces.join('')).toBe('Grüße 😀');
    expect(text.match(/event: message_stop/g)).toHaveLength(1);
    expect(text).not.toContain('It broke');
  });

  it.each([
    [NOVA, true],
    [`arn:aws:bedrock:eu-central-1:123456789012:inference-profile/${NOVA}`, true],
    ['eu.anthropic.claude-sonnet-4-5-20250929-v1:0', true],
    ['eu.anthropic.claude-opus-4-6-v1', false],
    ['eu.amazon.nova-2-lite-v1:0', false],
    ['mistral.mistral-large-2407-v1:0', false],
    [`arn:aws:bedrock:${BEDROCK_REGION}:123456789012:application-inference-profile/a1b2c3d4e5f6`, true],
  ])('a stream of another model is gone on with as the model takes it: %s', async (model, takes) => {
    const target = { provider: '@aws', override_params: { model } };
    const config = { strategy: { mode: 'fallback' }, stream: { on_break: 'continue' }, targets: [target, target] };
    const broken = awsException('modelStreamErrorException', { message: 'It broke' });
    upstream.reply = () =>
      upstream.calls.length === 1 ? [streamStart(), textDelta('Grü'), broken] : textFrames(['ße', ' 😀']);
    const body = { model: 'any', max_tokens: 50, stream: true, messages: [user('hi')] };
    const headers = { 'x-gateway-config': JSON.stringify(config), 'x-gateway-aws-bedrock-model': CLAUDE };
    const answer = await server.call('/chat/completions', body, headers);
    const text = await answer.text();
    expect(upstream.calls).toHaveLength(takes ? 2 : 1);
    if (takes)
      expect(last().body.messages).toMatchObject([{ role: 'user' }, { role: 'assistant', content: [{ text: 'Grü' }] }]);
    expect(text.includes('[DONE]')).toBe(takes);
    expect(text.includes('It broke')).toBe(!takes);
  });

  it.each([
    ['in the middle of a message', (frames: Buffer[]) => [Buffer.concat(frames).subarray(0, -30)]],
    ['between messages', (frames: Buffer[]) => frames.slice(0, 3)],
    ['before its usage', (frames: Buffer[]) => frames.slice(0, -1)],
  ])('a stream that ends %s never looks complete', async (_where, cut) => {
    upstream.reply = () => cut(textFrames(['a', 'b', 'c']));
    for (const broken of [false, true]) {
      upstream.cut = broken;
      const answer = await chat({ stream: true });
      const text = await answer.text();
      expect(text).not.toContain('[DONE]');
      expect(text).toContain('error');
    }
    upstream.cut = false;
    upstream.reply = () => cut(claudeFrames(['a', 'b', 'c']));
    const stream = anthropic.messages.stream({ model: CLAUDE, max_tokens: 9, messages: [user('hi')] });
    await expect(stream.finalMessage()).rejects.toThrow();
  });

  it('bytes that are no event stream are a failed attempt', async () => {
    upstream.reply = () => [Buffer.from('<html>Bad gateway, and more text</html>')];
    const answer = await chat({ stream: true });
    expect(answer.status).toBe(502);
    expect(await errorOf(answer)).toMatchObject({ code: 'upstream_invalid_response' });
  });
});

describe('accounts', () => {
  it('a Bedrock API key goes as a bearer token, from the caller or from a config', async () => {
    upstream.reply = () => converseAnswer([{ text: 'ok' }], 'end_turn');
    const own = {
      'x-gateway-provider': 'bedrock',
      'x-gateway-custom-host': upstream.url,
      'x-gateway-aws-region': BEDROCK_REGION,
      authorization: `Bearer ${BEDROCK_KEY}`,
    };
    const body = { model: NOVA, messages: [user('hi')] };
    expect((await server.call('/chat/completions', body, own)).status).toBe(200);
    expect(last().request.headers.authorization).toBe(`Bearer ${BEDROCK_KEY}`);
    const { accessKeyId, secretAccessKey } = AWS_KEYS;
    const config = JSON.stringify({
      provider: 'bedrock',
      custom_host: upstream.url,
      aws_region: BEDROCK_REGION,
      aws_access_key_id: accessKeyId,
      aws_secret_access_key: secretAccessKey,
    });
    expect((await server.call('/chat/completions', body, { 'x-gateway-config': config })).status).toBe(200);
    expect(last().request.headers.authorization).toMatch(/^AWS4-HMAC-SHA256 /);
    const { authorization: _key, ...headers } = own;
    const signed = await server.call('/chat/completions', body, {
      ...headers,
      'x-gateway-aws-access-key-id': accessKeyId,
      'x-gateway-aws-secret-access-key': secretAccessKey,
    });
    expect(signed.status).toBe(200);
  });

  it('a dry run shows the host of the runtime and of the control plane, and no credential', async () => {
    const own = {
      'x-gateway-provider': 'bedrock',
      'x-gateway-aws-region': BEDROCK_REGION,
      'x-gateway-aws-access-key-id': AWS_KEYS.accessKeyId,
      'x-gateway-aws-secret-access-key': AWS_KEYS.secretAccessKey,
      'x-gateway-dry-run': 'true',
    };
    const answer = await server.call('/chat/completions', { model: NOVA, messages: [user('hi')] }, own);
    const text = await answer.text();
    expect(JSON.parse(text).request).toMatchObject({
      url: `https://bedrock-runtime.${BEDROCK_REGION}.amazonaws.com/model/eu.amazon.nova-pro-v1%3A0/converse`,
      headers: { authorization: '***' },
    });
    expect(text).not.toContain(AWS_KEYS.secretAccessKey);
    const models = await fetch(`${server.url}/v1/models`, {
      headers: { 'x-gateway-api-key': server.first.workspace_api_key, ...own },
    });
    expect(await models.json()).toMatchObject({
      request: { url: `https://bedrock.${BEDROCK_REGION}.amazonaws.com/foundation-models` },
    });
  });

  it('an account without credential or region is told what is missing', async () => {
    const body = { model: NOVA, messages: [user('hi')] };
    const region = { 'x-gateway-provider': 'bedrock', 'x-gateway-aws-region': BEDROCK_REGION };
    const bare = await server.call('/chat/completions', body, region);
    expect(bare.status).toBe(400);
    expect(await bare.text()).toContain('no credential');
    const nowhere = await server.call('/chat/completions', body, { 'x-gateway-provider': 'bedrock' });
    expect(nowhere.status).toBe(400);
    expect(await nowhere.text()).toContain('aws_region');
  });
});
