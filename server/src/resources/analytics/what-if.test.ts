import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refused } from '../../../test/support/accounts.ts';
import { type AdminHarness, emptyTables, startAdmin } from '../../../test/support/admin.ts';
import { logRow, naiveLogs } from '../../../test/support/log-rows.ts';
import { NO_TOKENS } from '../../operations/usage.ts';
import { costMicros } from '../../pricing/cost.ts';
import { contextWindowOf } from '../../pricing/library.ts';
import { priceOf } from '../../pricing/price.ts';
import type { LogRow } from '../../telemetry/log-query.ts';

const { store, services } = naiveLogs();
let admin: AdminHarness;
beforeAll(async () => {
  admin = await startAdmin(await emptyTables('sqlite'), { admin: { services } });
});
afterAll(() => admin.close());

const NOON = Date.UTC(2026, 4, 4, 12);
const RANGE = { time_of_generation_min: '2026-05-04T00:00:00Z', time_of_generation_max: '2026-05-05T00:00:00Z' };

/** Requests with what their model really costs. */
function keep(...rows: Partial<Record<string, LogRow[string]>>[]): void {
  const { organisation_id, workspace_id } = admin.a;
  store.rows = rows.map((more) => {
    const row = logRow({ organisation_id, workspace_id, time: NOON, ...more });
    const price = priceOf(String(row.provider), String(row.model), NOON);
    const usage = {
      ...NO_TOKENS,
      input: Number(row.tokens_in),
      output: Number(row.tokens_out),
      cache_read: Number(row.tokens_cache_read ?? 0),
    };
    return { ...row, cost_micros: price === null ? null : costMicros(price, usage).micros };
  });
}

const ask = (body: object) => admin.call('POST', '/v1/analytics/what-if', { body: { ...RANGE, ...body } });

describe('what requests would have cost', () => {
  it('is what they have cost with the same model', async () => {
    keep({ tokens_in: 1_000, tokens_out: 100 }, { tokens_in: 3_000, tokens_out: 700 });
    const { body, text } = await ask({ map: [{ from: 'openai__gpt-4o', to: 'openai__gpt-4o' }] });
    expect(body, text).toMatchObject({
      object: 'analytics-what-if',
      exact: false,
      requests: 2,
      saving: 0,
      saving_micros: 0,
    });
    expect(body.cost_micros).toBeGreaterThan(0);
    expect(body.would_cost_micros).toBe(body.cost_micros);
  });

  it('is what they have cost with another name of the same model, long contexts and cached input included', async () => {
    const google = { provider: 'google', model: 'gemini-2.5-pro' };
    keep(
      { ...google, tokens_in: 150_000, tokens_out: 1_000 },
      { ...google, tokens_in: 450_000, tokens_out: 1_000, tokens_cache_read: 100_000 },
      { ...google, tokens_in: 12, tokens_out: 7 },
    );
    const [low, high] = priceOf('google', 'gemini-2.5-pro', NOON)?.tiers ?? [];
    // The price of a long context begins between the requests: their average is below it.
    expect(high?.above).toBe(200_000);
    expect(high?.units.input).toBeGreaterThan(low?.units.input ?? 0n);
    for (const to of ['google__gemini-2.5-pro', 'google__models/gemini-2.5-pro']) {
      const { body, text } = await ask({ map: [{ from: 'google__gemini-2.5-pro', to }] });
      expect(body.requests, text).toBe(3);
      expect(body.cost_micros).toBeGreaterThan(1_000_000);
      // Each record is rounded to a micro-dollar.
      expect(Math.abs(body.saving_micros)).toBeLessThanOrEqual(3);
    }
  });

  it('is what they have cost with the same model, whatever an integration charges for it', async () => {
    keep({}, { provider: 'nobody', model: 'house-model' });
    store.rows = store.rows.map((row) => ({ ...row, cost_micros: 777 }));
    const map = ['openai__gpt-4o', 'nobody__house-model'].map((name) => ({ from: name, to: name }));
    const { body } = await ask({ map });
    expect(body).toMatchObject({ requests: 2, cost_micros: 1554, would_cost_micros: 1554, saving_micros: 0 });
  });

  it('leaves answers of the cache out, which cost nothing with any model', async () => {
    keep({}, {});
    store.rows = store.rows.map((row, i) => (i === 0 ? row : { ...row, cost_micros: 0, saved_micros: 5 }));
    const { body } = await ask({ map: [{ from: 'openai__gpt-4o', to: 'openai__gpt-4o-2024-11-20' }] });
    expect(body).toMatchObject({ requests: 1, saving_micros: 0 });
  });

  it('names requests that the other model cannot serve beside the sums: too long, or of another operation', async () => {
    const window = contextWindowOf('openai', 'gpt-4o-mini') ?? 0;
    expect(window).toBeGreaterThan(100_000);
    keep(
      { tokens_in: window, tokens_out: 1 },
      { tokens_in: window - 1, tokens_out: 1 },
      { operation: 'embeddings', tokens_in: 10, tokens_out: 0 },
    );
    const long = await ask({ map: [{ from: 'openai__gpt-4o', to: 'openai__gpt-4o-mini' }] });
    expect(long.body).toMatchObject({ requests: 2, unserved_requests: 1, unpriced_requests: 0 });
    const { body } = await ask({ map: [{ from: 'openai__gpt-4o', to: 'anthropic__claude-sonnet-4-5' }] });
    expect(body).toMatchObject({ requests: 2, unserved_requests: 1, models: [{ unserved_requests: 1 }] });
  });

  it('is the price of the other model for the same tokens, in cents and micro-dollars', async () => {
    const each = { tokens_in: 100_000, tokens_out: 0 };
    keep(...Array.from({ length: 10 }, () => each), { ...each, model: 'gpt-4o-mini' });
    // gpt-4o costs 2.50 dollars a million tokens in, gpt-4o-mini 0.15.
    const { body } = await ask({ map: [{ from: 'openai__gpt-4o', to: 'openai__gpt-4o-mini' }] });
    expect(body).toMatchObject({
      requests: 10,
      cost: 250,
      cost_micros: 2_500_000,
      would_cost: 15,
      would_cost_micros: 150_000,
      saving: 235,
      saving_micros: 2_350_000,
      models: [{ from: { provider: 'openai', model: 'gpt-4o' }, to: { provider: 'openai', model: 'gpt-4o-mini' } }],
    });
  });

  it('counts requests without a price beside the sums', async () => {
    keep({ model: 'house-model', provider: 'nobody' }, {});
    const { body } = await ask({
      map: [
        { from: 'nobody__house-model', to: 'openai__gpt-4o' },
        { from: 'openai__gpt-4o', to: 'nobody__house-model' },
      ],
    });
    expect(body).toMatchObject({ requests: 0, unpriced_requests: 2, cost_micros: 0, would_cost_micros: 0 });
    expect(body.models[1]).toMatchObject({ requests: 1, would_cost_micros: null, saving_micros: null });
  });

  it('is of the requests that the filters choose', async () => {
    keep({ metadata: { team: 'red' } }, {}, { status: 500 });
    const map = [{ from: 'openai__gpt-4o', to: 'openai__gpt-4o-mini' }];
    expect((await ask({ map, filters: { metadata: { team: 'red' } } })).body.requests).toBe(1);
    expect((await ask({ map, filters: { status_code: '200', total_units_min: 150 } })).body.requests).toBe(2);
  });

  it('is refused with the field at fault', async () => {
    const twice = { from: 'openai__gpt-4o', to: 'openai__gpt-4o-mini' };
    refused(await ask({ map: [] }), 400, 'AB01', 'map');
    refused(await ask({ map: [{ from: 'gpt-4o', to: 'x' }] }), 400, 'AB01', 'map[0].from');
    refused(await ask({ map: [twice, twice] }), 400, 'AB01', 'map[1].from');
    refused(await ask({ map: [twice], filters: { colour: 1 } }), 400, 'AB01', 'filters.colour');
    refused(await ask({ map: [twice], filters: { cost_min: -1 } }), 400, 'AB01', 'filters.cost_min');
  });
});
