/** A line of a batch is a request like any other: rights, limits, rules and one record, without a socket. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createAuthenticator } from '../../src/auth/authenticator.ts';
import { InFlight } from '../../src/gateway/in-flight.ts';
import { BodyBudget } from '../../src/http/body-budget.ts';
import { TestClock } from '../../src/kernel/clock.ts';
import { FairShares } from '../../src/kernel/fair-shares.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { silentNotes } from '../../src/kernel/notes.ts';
import { createLedger } from '../../src/limits/ledger/ledger.ts';
import { createOutputEstimator } from '../../src/limits/ledger/output-estimator.ts';
import { createAdmission } from '../../src/limits/rate-limits.ts';
import type { Services } from '../../src/llm/exchange.ts';
import { createInternalCalls } from '../../src/llm/internal-calls.ts';
import { run } from '../../src/llm/pipeline.ts';
import { createPricer } from '../../src/pricing/pricer.ts';
import { sandbox } from '../../src/providers/sandbox/sandbox.ts';
import type { InternalCall, InternalCallAnswer } from '../../src/runtime/internal-call.ts';
import type { WorkspaceSnapshot } from '../../src/runtime/snapshot.ts';
import { apiKeyRow, userRow } from '../../src/store/conformance/rows.ts';
import { memoryCounters } from '../../src/store/memory/counters.ts';
import type { Row } from '../../src/store/schema.ts';
import type { LogRecord } from '../../src/telemetry/record.ts';
import { silentBodyLog } from '../support/body-log.ts';
import { ENGINES, type JobStore, jobStore } from '../support/job-store.ts';
import { alreadyOpen, fixedRuntime } from '../support/runtime.ts';

const messages = [{ role: 'user', content: 'Hello, batch' }];

describe.each(ENGINES)('inner requests on %s', (engine) => {
  const clock = new TestClock();
  const records: LogRecord[] = [];
  const settled: string[] = [];
  let store: JobStore;
  let snapshot: WorkspaceSnapshot;
  let inner: (request: InternalCall) => Promise<InternalCallAnswer>;
  let keys = 0;

  beforeAll(async () => {
    store = await jobStore(engine, clock);
    const { tables } = store;
    const provider = {
      slug: 'sb',
      entityId: 'sb',
      accountId: 'sb',
      kind: 'provider',
      shared: false,
      passthrough: false,
      provider: sandbox,
      account: alreadyOpen({ key: null, settings: {}, customHost: null, customHeaders: {} }),
      models: new Map(),
      allowAllModels: true,
      pricingAdjustments: null,
      expiresAt: null,
      rateLimits: [],
      usageLimits: [],
      broken: null,
    } as const;
    snapshot = {
      organisationId: 'o1',
      workspaceId: 'w1',
      workspaceSlug: 'w1',
      generation: 1,
      blockInlineConfig: false,
      metadata: null,
      rateLimits: null,
      ratePolicies: { llm: null, mcpTools: null },
      usageLimits: [],
      usagePolicies: null,
      providers: new Map([['sb', provider]]),
      configs: new Map([
        [
          'pc-guard',
          {
            slug: 'pc-guard',
            versionId: '1',
            config: {
              provider: '@sb',
              input_guardrails: [{ id: 'models', deny: true, 'default.modelWhitelist': { models: ['none'] } } as never],
            },
            broken: null,
          },
        ],
      ]),
      guardrails: { byName: new Map(), input: [], output: [] },
      cacheMaxAge: null,
      bodies: { debugLog: 0, sample: 1, days: null },
      plans: new Map(),
    };
    const counters = memoryCounters({ clock });
    const services: Services = {
      authenticator: createAuthenticator({ tables, clock, log: silentLog }),
      accessTokens: null as never,
      signIns: null as never,
      runtime: fixedRuntime(() => snapshot),
      inFlight: new InFlight(),
      guardedFetch: null as never,
      guardrailFeedback: { note() {} },
      egress: null as never,
      paths: null as never,
      upstream: null as never,
      fetcher: null as never,
      tokens: null as never,
      ambient: null,
      owners: null as never,
      recorder: {
        recorded: 0,
        failing: false,
        givenUp: 0,
        once: (_key, _draft, done) => done(),
        record(draft, done) {
          records.push(JSON.parse(JSON.stringify({ ...draft, node: 'n', seq: records.length })) as LogRecord);
          done();
        },
      },
      pricer: createPricer(),
      admission: createAdmission({ counters, share: null, clock, log: silentLog }),
      responseCache: { look: async () => false, keep() {} },
      runInternal: async () => undefined,
      ledger: createLedger({
        tables,
        journal: async () => ({
          failing: false,
          append(line, done) {
            settled.push(line);
            done();
          },
          ship: async () => undefined,
        }),
        clock,
        log: silentLog,
        node: 'n',
      }),
      headersToMetadata: [],
      unpriced: 'serve',
      unrecorded: 'refuse',
      random: () => 0,
      cache: null as never,
      breakers: null as never,
      outputEstimator: createOutputEstimator(),
      objects: { handle: () => Promise.reject(new Error('no object is asked for')) },
      outside: undefined as never,
      clock,
      storeClock: clock,
      notes: silentNotes,
      accessLog: null,
      bodyLog: silentBodyLog(),
      log: silentLog,
      maxBodyBytes: 10_000,
      bodies: new BodyBudget(1_000_000),
      large: null as never,
      guardrails: null as never,
      concurrency: new FairShares('requests under way', 64),
      blockInlineConfig: false,
      timeouts: { headersMs: 1000, idleMs: 1000, firstTokenMs: 1000, quietMs: 1000 },
    };
    inner = createInternalCalls({ services, tables, clock: services.clock, run });
  });
  afterAll(() => store?.close());
  beforeEach(() => {
    records.length = 0;
  });

  async function key(more: Partial<Row<'api_keys'>> = {}): Promise<string> {
    const id = `k${++keys}`;
    const row = apiKeyRow('o1', id, { workspace_id: 'w1', type: 'workspace-service', ...more });
    await store.tables.systemWrite((tx) => tx.insert('api_keys', row));
    return id;
  }

  const ask = async (more: Partial<InternalCall> = {}, keyId?: string) =>
    inner({
      keyId: keyId ?? (await key()),
      organisationId: 'o1',
      workspaceId: 'w1',
      endpoint: '/v1/chat/completions',
      headers: { 'x-gateway-provider': '@sb' },
      body: { model: 'echo', messages },
      signal: new AbortController().signal,
      ...more,
    });

  it('is answered, metered and recorded once as its key, with trace and metadata of the batch', async () => {
    const keyId = await key({ defaults: { metadata: { team: 'search' } } });
    const headers = {
      'x-gateway-provider': '@sb',
      'x-gateway-trace-id': 'gw_batch_1',
      'x-gateway-metadata': '{"_batch_id":"gw_batch_1","_batch_line":"3"}',
    };
    const answer = await ask({ headers }, keyId);
    expect(answer).toMatchObject({ status: 200, limited: false, keyRefused: null, retryAfterMs: null });
    expect(answer.body).toMatchObject({ choices: [{ message: { content: 'Hello, batch' } }] });
    expect(records.length).toBe(1);
    expect(records[0]).toMatchObject({
      id: answer.requestId,
      organisation_id: 'o1',
      workspace_id: 'w1',
      api_key_id: keyId,
      trace_id: 'gw_batch_1',
      operation: 'chat',
      path: '/v1/chat/completions',
      provider: 'sandbox',
      provider_slug: 'sb',
      model_requested: 'echo',
      status: 200,
      outcome: 'ok',
      metadata: { team: 'search', _batch_id: 'gw_batch_1', _batch_line: '3' },
    });
    expect(records[0]?.usage?.input).toBeGreaterThan(0);
    expect(records[0]?.cost_micros).toBeGreaterThan(0);
  });

  it.each([
    ['/v1/completions', { prompt: 'Hello' }],
    ['/v1/embeddings', { input: 'Hello' }],
    ['/v1/responses', { input: 'Hello' }],
  ])('%s is answered as well', async (endpoint, body) => {
    expect(await ask({ endpoint, body: { model: 'echo', ...body } })).toMatchObject({ status: 200 });
  });

  it("a rate limit of the key refuses what is too much, is told apart from a provider's, and ends with its window", async () => {
    const keyId = await key({ rate_limits: [{ type: 'requests', unit: 'rpm', value: 2 }] });
    const statuses = [];
    for (let i = 0; i < 3; i++) statuses.push((await ask({}, keyId)).status);
    expect(statuses).toEqual([200, 200, 429]);
    const refused = await ask({}, keyId);
    expect(refused).toMatchObject({ status: 429, limited: true, keyRefused: null });
    expect(refused.retryAfterMs).toBeGreaterThan(0);
    expect(records.at(-1)).toMatchObject({ status: 429, outcome: 'refused', api_key_id: keyId, attempts: [] });
    clock.jump(refused.retryAfterMs ?? 0);
    expect((await ask({}, keyId)).status).toBe(200);
    const theirs = await ask({ body: { model: 'error?status=429&retry_after=7', messages } });
    expect(theirs).toMatchObject({ status: 429, limited: false, retryAfterMs: 7000 });
  });

  it.each([
    ['revoked', { status: 'archived' }, 'revoked'],
    ['expired', { expires_at: 1 }, 'expired'],
    ['of a user who left', { user_id: 'gone', type: 'workspace-user' }, 'owner'],
    ['of another workspace', { workspace_id: 'w2' }, 'workspace'],
  ] as const)('a key that is %s is refused with 401, told so and recorded', async (_title, more, word) => {
    if ('user_id' in more) {
      const user = userRow('o1', 'gone', { status: 'archived' });
      await store.tables.systemWrite((tx) => tx.insert('users', user));
    }
    const keyId = await key(more);
    const answer = await ask({}, keyId);
    expect(answer).toMatchObject({ status: 401, keyRefused: expect.stringContaining(word), limited: false });
    expect(answer.body).toMatchObject({ error: { code: 'AB05' } });
    expect(records).toMatchObject([
      { api_key_id: keyId, status: 401, outcome: 'refused', workspace_id: 'w1', attempts: [] },
    ]);
  });

  it('rights are read anew: a key revoked between two lines stops the second', async () => {
    const keyId = await key();
    expect((await ask({}, keyId)).status).toBe(200);
    await store.tables.systemWrite((tx) => tx.update('api_keys', { id: keyId }, { status: 'archived' }));
    expect((await ask({}, keyId)).status).toBe(401);
    expect(await ask({}, 'no-such-key')).toMatchObject({ status: 401, keyRefused: expect.any(String) });
  });

  it('a key without the scope, a body that is too large and a guardrail that denies are refused like any request', async () => {
    expect(await ask({}, await key({ scopes: ['models.list'] }))).toMatchObject({ status: 403, keyRefused: null });
    const large = { model: 'echo', messages: [{ role: 'user', content: 'x'.repeat(20_000) }] };
    expect((await ask({ body: large })).status).toBe(413);
    const guarded = await ask({ headers: { 'x-gateway-config': 'pc-guard' } });
    expect(guarded.status).toBe(446);
    expect(guarded.body).toMatchObject({ hook_results: { before_request_hooks: [{ id: 'models', verdict: false }] } });
    expect(records.map((record) => [record.status, record.attempts.length])).toEqual([
      [403, 0],
      [413, 0],
      [446, 0],
    ]);
  });

  it('saved-only mode holds for lines, too', async () => {
    const before = snapshot;
    snapshot = { ...snapshot, blockInlineConfig: true, plans: new Map() };
    try {
      const answer = await ask({ headers: { 'x-gateway-provider': 'sandbox' } });
      expect(answer).toMatchObject({ status: 400, body: { error: { code: 'inline_provider_blocked' } } });
    } finally {
      snapshot = before;
    }
  });

  it('a line that is let go of ends with 499 and its record', async () => {
    const stop = new AbortController();
    const asked = ask({ body: { model: 'slow?ttft_ms=60000', messages }, signal: stop.signal });
    await new Promise((resolve) => setImmediate(resolve));
    stop.abort();
    expect((await asked).status).toBe(499);
    expect(records).toMatchObject([{ status: 499, outcome: 'aborted' }]);
    const late = await ask({ signal: stop.signal });
    expect(late.status).toBe(499);
  });

  it('an answer that breaks off is an error with its status', async () => {
    const answer = await ask({ body: { model: 'cut', messages } });
    expect(answer.status).toBe(502);
    expect(answer.body).toMatchObject({ error: { code: 'upstream_stream_cut' } });
  });
});
