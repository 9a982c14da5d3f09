// biome-ignore-all lint/suspicious/noThenProperty: "then" is the contract's name in a condition
/** Any config that is valid: saved as it is, used without a fault of Sluice's own, and never by two rules at once. */
import fc from 'fast-check';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { answerOf, fails, type RoutingServer, startRouting } from '../../../test/support/routing.ts';
import { sendJson } from '../../../test/support/upstream.ts';
import { parseConfig } from './schema.ts';

let routing: RoutingServer;

beforeAll(async () => {
  routing = await startRouting({}, { random: () => 0 });
});
afterAll(() => routing?.stop());

const optional = <T extends Record<string, fc.Arbitrary<unknown>>>(members: T) =>
  fc.record(members, { requiredKeys: [] });
const codes = fc.uniqueArray(fc.constantFrom(200, 400, 401, 429, 500, 502, 503), { maxLength: 4 });
const params = fc.dictionary(
  fc.constantFrom('temperature', 'top_p', 'user', 'seed', 'stop'),
  fc.constantFrom(0, 0.5, 'x', null),
);

const settings = optional({
  retry: fc.record({
    attempts: fc.constantFrom(0, 1, 2),
    on_status_codes: codes,
    use_retry_after_headers: fc.constant(true),
  }),
  cache: fc.record({ mode: fc.constant('simple'), max_age: fc.integer({ min: 60, max: 7_776_000 }) }),
  request_timeout: fc.integer({ min: 20_000, max: 60_000 }),
  timeouts: optional({
    connect: fc.constant(20_000),
    first_token: fc.constant(20_000),
    stream_idle: fc.constant(20_000),
  }),
  stream: fc.record({ on_break: fc.constantFrom('error', 'restart', 'continue') }),
  hedge: fc.record({ delay: fc.constant(60_000), max: fc.integer({ min: 1, max: 3 }) }),
  cb_config: fc.record({
    failure_threshold: fc.integer({ min: 1, max: 3 }),
    failure_threshold_percentage: fc.double({ min: 1, max: 100, noNaN: true }),
    cooldown_interval: fc.integer({ min: 30_000, max: 60_000 }),
    failure_status_codes: codes,
  }),
  override_params: params,
  default_params: params,
  drop_params: fc.array(fc.constantFrom('user', 'stop', 'messages[*].name', 'seed.x'), { maxLength: 3 }),
  forward_headers: fc.constant(['x-own']),
  on_status_codes: codes,
  weight: fc.constantFrom(0.5, 1, 3),
  strict_open_ai_compliance: fc.boolean(),
});

const value = fc.constantFrom('gold', 'x', 0, 0.5, true, null);
const operators = optional({
  $eq: value,
  $ne: value,
  $in: fc.array(value, { maxLength: 3 }),
  $nin: fc.array(value, { maxLength: 3 }),
  $gt: fc.constantFrom(0, '0.1', 1e9),
  $lte: fc.constantFrom(0, '0.5', -1),
  $regex: fc.constantFrom('^g', '(a+)+$', '(', ''),
}).filter((one) => Object.keys(one).length > 0);
const { query } = fc.letrec<{ query: Record<string, unknown> }>((tie) => ({
  query: fc.oneof(
    { maxDepth: 3, depthIdentifier: 'query' },
    fc.dictionary(
      fc.constantFrom('metadata.tier', 'params.temperature', 'params.user', 'headers.x-own', 'url.pathname'),
      fc.oneof(value, operators),
      { maxKeys: 2 },
    ),
    fc.record({ $and: fc.array(tie('query'), { minLength: 1, maxLength: 3 }) }),
    fc.record({ $or: fc.array(tie('query'), { minLength: 1, maxLength: 3 }) }),
  ),
}));

const { node } = fc.letrec<{ node: Record<string, unknown> }>((tie) => ({
  node: fc.oneof(
    { maxDepth: 3, withCrossShrink: true, depthIdentifier: 'node' },
    fc.tuple(settings, fc.constantFrom('@a', '@b', '@c', '@nobody')).map(([more, provider]) => ({ ...more, provider })),
    fc
      .tuple(
        settings,
        fc.constantFrom('single', 'fallback', 'loadbalance', 'conditional'),
        fc.array(tie('node'), { minLength: 1, maxLength: 4 }),
        fc.array(query, { minLength: 1, maxLength: 3 }),
        fc.nat(),
        fc.boolean(),
      )
      .map(([more, mode, targets, queries, at, sticky]) => {
        const names = targets.map((_, i) => `t${i}`);
        const strategy =
          mode === 'conditional'
            ? {
                mode,
                conditions: queries.map((one, i) => ({ query: one, then: names[(at + i) % names.length] })),
                default: names[at % names.length],
              }
            : mode === 'loadbalance' && sticky
              ? { mode, sticky: { enabled: true, hash_fields: ['metadata.tier', 'params.user'], ttl: 60 } }
              : { mode };
        return { ...more, strategy, targets: targets.map((target, i) => ({ ...target, name: names[i] })) };
      }),
  ),
}));

const script = fc.array(fc.constantFrom('ok', 'ok', 429, 500, 503, 400, 'reset', 'half'), {
  minLength: 1,
  maxLength: 6,
});
const request = fc.record({
  more: optional({
    user: fc.constantFrom('gold', 'x'),
    temperature: fc.constantFrom(0, 0.5, 'hot'),
    n: fc.constant([1]),
  }),
  tier: fc.constantFrom(null, 'gold', 'x'),
});

it('a valid config is saved as it is, and every request under it gets an answer that its targets gave or a clear refusal', async () => {
  let at = 0;
  let plan: readonly (string | number)[] = ['ok'];
  for (const name of ['a', 'b', 'c'])
    routing.of(name).answer = (received, response) => {
      const step = plan[at++ % plan.length];
      if (typeof step === 'number') fails(step, step === 429 ? { 'retry-after-ms': '1' } : {})(received, response);
      else if (step === 'reset') response.destroy();
      else if (step === 'half') {
        response.writeHead(200, { 'content-type': 'application/json', 'content-length': 100 });
        response.write('{"id":');
        setImmediate(() => response.destroy());
      } else sendJson(response, 200, answerOf(name));
    };
  await fc.assert(
    fc.asyncProperty(
      node,
      script,
      fc.array(request, { minLength: 1, maxLength: 3 }),
      async (config, steps, requests) => {
        plan = steps;
        expect(parseConfig(config, { checkHost: () => null })).toEqual({ ok: true, config });
        const slug = await routing.saved(config);
        const shown = await routing.server.admin('GET', `/configs/${slug}`);
        expect(shown.body.config).toEqual(JSON.parse(JSON.stringify(config)));
        for (const { more, tier } of requests) {
          const headers: Record<string, string> =
            tier === null ? {} : { 'x-gateway-metadata': JSON.stringify({ tier }) };
          const dry = await routing.ask(slug, more, { ...headers, 'x-gateway-dry-run': 'true' });
          expect([200, 400], dry.text).toContain(dry.status);
          for (const told of [await routing.ask(slug, more, headers), await routing.ask(config, more, headers)]) {
            const about = `${told.status} ${told.text}`;
            // Refusals by Sluice itself stand under `message`.
            const body = JSON.parse(told.text) as { id?: string; message?: string; error?: { message: string } };
            if (told.status === 200) expect(body.id, about).toMatch(/^answer-[abc]$/);
            else {
              expect([400, 429, 500, 502, 503], about).toContain(told.status);
              expect(body.error?.message ?? body.message, about).toMatch(/^status \d|provider|nobody/i);
            }
            expect(told.path ?? 'config', about).toMatch(/^config(\.targets\[\d\])*$/);
          }
        }
      },
    ),
    { numRuns: Number(process.env.FUZZ_CONFIGS ?? 40) },
  );
  // Whatever was tried, what is left of the process answers.
  plan = ['ok'];
  expect(await routing.ask({ provider: '@a' })).toMatchObject({ status: 200 });
  const records = await routing.server.records();
  expect(
    records.filter(({ status }) => status === 500).every((record) => (record.attempts as unknown[]).length > 0),
  ).toBe(true);
}, 120_000);
