import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { budgetKey, type Caller, settledBooks } from '../../../test/support/budgets.ts';
import {
  answerOf,
  fails,
  fallback,
  ok,
  type RoutingServer,
  startRouting,
  target,
} from '../../../test/support/routing.ts';
import { sendJson } from '../../../test/support/upstream.ts';

let routing: RoutingServer;

beforeAll(async () => {
  routing = await startRouting();
});
afterAll(() => routing?.stop());
beforeEach(() => routing.reset());
// Whatever a test leaves behind is not the next one's.
afterEach(async () => {
  for (const name of ['a', 'b']) await provider(name, { rate_limits: null, usage_limits: null });
});

const both = fallback([target('a'), target('b')]);
const as = ({ key }: Caller) => ({ 'x-gateway-api-key': key });
const admin = async (method: string, path: string, body: object) => {
  const answer = await routing.server.admin(method, path, body);
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return answer.body;
};
const provider = (name: string, body: object) => admin('PUT', `/providers/${name}`, body);
const providerId = async (name: string) => String((await routing.server.admin('GET', `/providers/${name}`)).body.id);
const workspace = () => ({ workspace_id: routing.server.first.workspace_id });

describe('rate limits', () => {
  it('of one target make that target fail, and what was not called is not counted', async () => {
    await provider('a', { rate_limits: [{ type: 'requests', unit: 'rpw', value: 1 }] });
    expect(await routing.ask(both)).toMatchObject({ status: 200, path: 'config.targets[0]' });
    expect(await routing.ask(both)).toMatchObject({ status: 200, path: 'config.targets[1]' });
    const [record] = await routing.server.records();
    expect(record?.attempts).toMatchObject([
      { target: 'config.targets[0]', status: null, error: '429' },
      { target: 'config.targets[1]', status: 200 },
    ]);
    const only = fallback([target('a'), target('b')], { on_status_codes: [503] });
    const refused = await routing.ask(only);
    expect(refused).toMatchObject({ status: 429, path: 'config.targets[0]' });
    expect(refused.headers.get('retry-after')).toMatch(/^\d+$/);
  });

  it('of the key stop the request, and count it once however many targets are tried', async () => {
    const caller = await budgetKey(routing.server, { rate_limits: [{ type: 'requests', unit: 'rpw', value: 3 }] });
    routing.of('a').answer = fails(500);
    for (let left = 2; left >= 0; left--) {
      const told = await routing.ask(both, {}, as(caller));
      expect(told).toMatchObject({ status: 200, path: 'config.targets[1]' });
      expect(told.headers.get('x-gateway-limit-requests-remaining')).toBe(String(left));
    }
    expect(await routing.ask(both, {}, as(caller))).toMatchObject({ status: 429 });
    expect(routing.counts()).toEqual([3, 3, 0]);
  });

  it('of a provider count for each target that is tried', async () => {
    await provider('a', { rate_limits: [{ type: 'requests', unit: 'rpd', value: 3 }] });
    routing.of('a').answer = fails(500);
    const twice = fallback([target('a'), target('a', { override_params: { temperature: 0 } }), target('b')]);
    expect(await routing.ask(twice)).toMatchObject({ status: 200, path: 'config.targets[2]' });
    expect(await routing.ask(twice)).toMatchObject({ status: 200, path: 'config.targets[2]' });
    expect(routing.counts()).toEqual([3, 2, 0]);
  });

  it('of a provider count an answer from its cache as a request, and none that guardrails refused before its call', async () => {
    await provider('a', { rate_limits: [{ type: 'requests', unit: 'rph', value: 2 }] });
    const cached = { ...both, cache: { mode: 'simple' } };
    const asked = async () => {
      const { path, headers } = await routing.ask(cached, { user: 'cached' });
      return [path, headers.get('x-gateway-cache-status')];
    };
    expect(await asked()).toEqual(['config.targets[0]', 'MISS']);
    expect(await asked()).toEqual(['config.targets[0]', 'HIT']);
    expect(await asked()).toEqual(['config.targets[1]', 'MISS']);
    await provider('b', { rate_limits: [{ type: 'requests', unit: 'rpw', value: 1 }] });
    const forbidden = { 'default.contains': { words: ['secret'], operator: 'none' }, deny: true };
    const guarded = fallback([target('b', { input_guardrails: [forbidden] }), target('c')]);
    const said = (content: string) => routing.ask(guarded, { messages: [{ role: 'user', content }] });
    expect(await said('a secret')).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(await said('hello')).toMatchObject({ status: 200, path: 'config.targets[0]' });
    expect(await said('hello')).toMatchObject({ status: 200, path: 'config.targets[1]' });
  });

  it('of a policy that asks for a model hold for the target that sends it, count once, and stop the request', async () => {
    const policy = await admin('POST', '/policies/rate-limits', {
      name: 'mini',
      conditions: [{ key: 'model', value: 'gpt-4o-mini' }],
      group_by: [{ key: 'api_key' }],
      type: 'requests',
      unit: 'rpw',
      value: 2,
      ...workspace(),
    });
    const caller = await budgetKey(routing.server);
    const mini = { override_params: { model: 'gpt-4o-mini' } };
    routing.of('a').answer = fails(500);
    // The second and the third target are one request to the policy.
    routing.of('b').answer = fails(500);
    const config = fallback([target('a'), target('b', mini), target('c', mini)]);
    for (let i = 0; i < 2; i++) expect(await routing.ask(config, {}, as(caller))).toMatchObject({ status: 200 });
    const refused = await routing.ask(config, {}, as(caller));
    expect(refused).toMatchObject({ status: 429, path: 'config.targets[1]' });
    expect(refused.text).toContain('mini');
    expect(routing.counts()).toEqual([3, 2, 2]);
    expect(await routing.ask(fallback([target('c'), target('b', mini)]), {}, as(caller))).toMatchObject({
      status: 200,
    });
    await routing.server.admin('DELETE', `/policies/rate-limits/${policy.id}`);
  });
});

describe('usage limits', () => {
  it('of a provider that is used up makes its targets fail; each provider books what its own targets used', async () => {
    const [a, b] = [await providerId('a'), await providerId('b')];
    await provider('a', { usage_limits: { type: 'tokens', credit_limit: 15 } });
    await provider('b', { usage_limits: { type: 'tokens', credit_limit: 100_000 } });
    const short = { max_tokens: 5 };
    // An answer that is listed is nobody's: what it used is booked all the same.
    const config = fallback([target('a'), target('b')], { on_status_codes: [200, 412] });
    expect(await routing.ask(config, short)).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(await settledBooks(routing.server, a)).toMatchObject({ used: 15, reserved: 0 });
    expect(await settledBooks(routing.server, b)).toMatchObject({ used: 15, reserved: 0 });
    expect((await routing.server.records())[0]).toMatchObject({ usage: { input: 20, output: 10 } });
    expect(await routing.ask(config, short)).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(routing.counts()).toEqual([1, 2, 0]);
    expect((await routing.server.records())[0]?.attempts).toMatchObject([{ error: '412' }, { status: 200 }]);
    expect(await settledBooks(routing.server, a)).toMatchObject({ used: 15, reserved: 0 });
  });

  it('of the key book every attempt at the price of the target that made it, once, and leave nothing reserved', async () => {
    const caller = await budgetKey(routing.server, { usage_limits: { type: 'cost', credit_limit: 10 } });
    routing.of('a').answer = ok('a', 'gpt-4o');
    const usage = { prompt_tokens: 20, completion_tokens: 10 };
    routing.of('b').answer = (_request, response) =>
      sendJson(response, 200, { ...answerOf('b', 'gpt-4o-mini'), usage });
    const config = fallback([target('a'), target('b', { override_params: { model: 'gpt-4o-mini' } })], {
      on_status_codes: [200],
    });
    expect(await routing.ask(config, {}, as(caller))).toMatchObject({ status: 200, path: 'config.targets[1]' });
    // 10 and 5 tokens at 2.50 and 10 dollars a million, then 20 and 10 at 0.15 and 0.60.
    const cost = 25 + 50 + 3 + 6;
    expect(await settledBooks(routing.server, caller.id)).toEqual({ used: cost, reserved: 0, unpriced: 0 });
    const [record] = await routing.server.records();
    expect(record).toMatchObject({ cost_micros: cost, usage: { input: 30, output: 15 } });
    expect(record?.price).toMatchObject({ source: expect.stringContaining('gpt-4o-mini') });
  });

  it('of the key that is used up stop the request before any target', async () => {
    const caller = await budgetKey(routing.server, { usage_limits: { type: 'tokens', credit_limit: 10 } });
    expect(await routing.ask(both, { max_tokens: 1 }, as(caller))).toMatchObject({ status: 200 });
    await settledBooks(routing.server, caller.id);
    expect(await routing.ask(both, { max_tokens: 1 }, as(caller))).toMatchObject({ status: 412 });
    expect(routing.counts()).toEqual([1, 0, 0]);
  });

  it('that refuse models without a price make the target with such a model fail', async () => {
    const caller = await budgetKey(routing.server, {
      usage_limits: { type: 'cost', credit_limit: 10, unpriced: 'deny' },
    });
    const config = fallback([target('a', { override_params: { model: 'of-nobody' } }), target('b')]);
    routing.of('b').answer = ok('b', 'gpt-4o');
    expect(await routing.ask(config, {}, as(caller))).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(routing.counts()).toEqual([0, 1, 0]);
  });

  it('nothing stays reserved when every target fails, and nothing is booked that nobody used', async () => {
    const caller = await budgetKey(routing.server, { usage_limits: { type: 'cost', credit_limit: 10 } });
    for (const name of ['a', 'b']) routing.of(name).answer = fails(500);
    await provider('a', { usage_limits: { type: 'cost', credit_limit: 10 } });
    expect(await routing.ask(both, {}, as(caller))).toMatchObject({ status: 500 });
    expect(await settledBooks(routing.server, caller.id)).toEqual({ used: 0, reserved: 0, unpriced: 0 });
    expect(await settledBooks(routing.server, await providerId('a'))).toEqual({ used: 0, reserved: 0, unpriced: 0 });
  });
});

describe('guardrails', () => {
  const forbids = (word: string, more: object = {}) => ({
    'default.contains': { words: [word], operator: 'none' },
    deny: true,
    ...more,
  });
  const saying = (text: string) => ({ messages: [{ role: 'user', content: text }] });

  it('of a target refuse that target only', async () => {
    const config = fallback([target('a', { input_guardrails: [forbids('secret')] }), target('b')]);
    expect(await routing.ask(config, saying('a secret'))).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(await routing.ask(config, saying('hello'))).toMatchObject({ status: 200, path: 'config.targets[0]' });
    expect(routing.counts()).toEqual([1, 1, 0]);
    expect((await routing.server.records())[1]).toMatchObject({
      attempts: [{ target: 'config.targets[0]', error: 'hooks_failed' }, { target: 'config.targets[1]' }],
      guardrails: [{ verdict: false }],
    });
  });

  it('446 moves on where it is listed or nothing is, 246 only where it is listed', async () => {
    const denies = target('a', { input_guardrails: [forbids('secret')] });
    const marks = target('a', { input_guardrails: [forbids('secret', { deny: false })] });
    const of = (first: object, codes?: number[]) =>
      routing.ask(
        fallback([first, target('b')], codes === undefined ? {} : { on_status_codes: codes }),
        saying('secret'),
      );
    expect(await of(denies)).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(await of(denies, [446])).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(await of(denies, [429])).toMatchObject({ status: 446, path: 'config.targets[0]' });
    expect(await of(marks)).toMatchObject({ status: 246, path: 'config.targets[0]' });
    expect(await of(marks, [246])).toMatchObject({ status: 200, path: 'config.targets[1]' });
  });

  it('of the answer are those of the target that gave it', async () => {
    const config = fallback([target('a', { output_guardrails: [forbids('from a')] }), target('b')]);
    expect(await routing.ask(config)).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(routing.counts()).toEqual([1, 1, 0]);
    const root = { ...fallback([target('a'), target('b')]), output_guardrails: [forbids('from')] };
    expect(await routing.ask(root)).toMatchObject({ status: 446, path: 'config.targets[1]' });
  });

  it('that flow from the root judge once what is sent to several targets, and again what is not the same', async () => {
    const asked = () => routing.of('c').received.filter(({ path }) => path === '/hook').length;
    routing.of('c').answer = (request, response) =>
      sendJson(response, 200, request.path === '/hook' ? { verdict: true } : answerOf('c'));
    const webhookURL = `${routing.of('c').url}/hook`;
    const root = { input_guardrails: [{ 'default.webhook': { webhookURL }, deny: true }] };
    for (const name of ['a', 'b']) routing.of(name).answer = fails(500);
    const same = fallback([target('a'), target('b'), target('c', { override_params: { model: 'gpt-4o-mini' } })]);
    expect(await routing.ask({ ...same, ...root })).toMatchObject({ status: 200, path: 'config.targets[2]' });
    expect(asked()).toBe(1);
    const other = fallback([
      target('a'),
      target('c', { override_params: { messages: [{ role: 'user', content: 'other' }] } }),
    ]);
    expect(await routing.ask({ ...other, ...root })).toMatchObject({ status: 200, path: 'config.targets[1]' });
    expect(asked()).toBe(3);
  });

  it('see what a later target makes of the request: a config is no way around them', async () => {
    const config = {
      ...fallback([
        { provider: '@nobody' },
        target('b', { override_params: { messages: [{ role: 'user', content: 'the secret' }] } }),
      ]),
      input_guardrails: [forbids('secret')],
    };
    expect(await routing.ask(config, saying('hello'))).toMatchObject({ status: 446, path: 'config.targets[1]' });
    const models = {
      ...fallback([target('a'), target('b', { override_params: { model: 'forbidden' } })]),
      input_guardrails: [{ 'default.modelWhitelist': { models: ['gpt-4o'] }, deny: true }],
    };
    routing.of('a').answer = fails(500);
    expect(await routing.ask(models)).toMatchObject({ status: 446, path: 'config.targets[1]' });
    expect(routing.counts()).toEqual([1, 0, 0]);
  });

  it('what they change for one target is not what the next one gets', async () => {
    const redacts = { 'gateway.pii': { categories: ['EMAIL_ADDRESS'], redact: true }, deny: false };
    routing.of('a').answer = fails(500);
    const config = fallback([target('a', { input_guardrails: [redacts] }), target('b')]);
    const told = await routing.ask(config, saying('I am ada@example.org'));
    expect(told).toMatchObject({ status: 200, path: 'config.targets[1]' });
    const sent = (name: string) => routing.of(name).received[0]?.body.toString('utf8');
    expect(sent('a')).not.toContain('ada@');
    expect(sent('b')).toContain('I am ada@example.org');
  });
});

describe('records', () => {
  it('the answer of the last target is the record, with what all used', async () => {
    routing.of('a').answer = (_request, response) => sendJson(response, 200, answerOf('a', 'gpt-4o'));
    const config = fallback([target('a'), target('b')], { on_status_codes: [200] });
    await routing.ask(config);
    expect((await routing.server.records())[0]).toMatchObject({
      provider_slug: 'b',
      model_answered: 'model-b',
      outcome: 'ok',
      attempts: [
        { target: 'config.targets[0]', status: 200 },
        { target: 'config.targets[1]', status: 200 },
      ],
    });
  });
});
