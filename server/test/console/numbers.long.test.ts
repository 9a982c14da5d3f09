/** Numbers of the console are those of the API: Spend and Budgets & limits over random requests and random limits. */
import fc from 'fast-check';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { isCurrent } from '../../../console/ensure-built.mjs';
import { launchBrowser } from '../support/browser.ts';
import { complaintsOf, signedIn } from '../support/console-page.ts';
import { startServer, type TestServer } from '../support/server.ts';

const browser = await launchBrowser();
const TITLE = `numbers of the console${browser.context ? '' : ` (skipped: ${browser.reason})`}`;

const GROUPS = ['workspace', 'model', 'ai_service', 'api_key', 'user', 'operation', 'config', 'outcome'] as const;

/** A request by what decides its numbers. Two keys, one of another workspace. */
const call = fc.record({
  /** The last one is of a provider that does not exist: refused, without a provider and a price. */
  model: fc.constantFrom('echo', 'lorem?tokens=3', 'lorem?tokens=40', 'error?status=503', 'missing'),
  words: fc.integer({ min: 1, max: 400 }),
  elsewhere: fc.boolean(),
});
const limit = fc.record({
  type: fc.constantFrom('cost' as const, 'tokens' as const, 'requests' as const),
  /** Micro-dollars, tokens or requests. */
  amount: fc.integer({ min: 1_000, max: 2_000_000_000 }),
  warn: fc.boolean(),
});

/** Of the analytics: the last 24 hours. */
const DAY = () => {
  const iso = (ms: number) => new Date(ms).toISOString();
  return `time_of_generation_min=${iso(Date.now() - 86_400_000)}&time_of_generation_max=${iso(Date.now() + 1000)}`;
};

interface Logged {
  id: string;
  cost_micros: number | null;
  usage: { total?: number; input?: number; output?: number } | null;
}
interface Limit {
  name: string;
  type: 'cost' | 'tokens' | 'requests';
  limit: number;
  used: number | null;
  remaining: number | null;
}

describe.skipIf(browser.context === null)(TITLE, () => {
  let server: TestServer;
  let page: Page;
  let complaints: string[] = [];
  let otherKey = '';
  let otherSlug = '';
  let made = 0;

  beforeAll(async () => {
    expect(isCurrent(), 'console/dist is not built from these sources: npm run console').toBe(true);
    server = await startServer();
    const other = await server.admin('POST', '/admin/workspaces', { name: 'Elsewhere' });
    const id = String(other.body.id);
    const shared = await server.admin('PUT', '/integrations/sandbox/workspaces', {
      workspaces: [{ id, enabled: true, create_default_provider: true }],
    });
    const key = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'elsewhere',
      workspace_id: id,
      scopes: ['completions.write'],
    });
    expect([other.status, shared.status, key.status]).toEqual([200, 200, 200]);
    otherKey = String(key.body.key);
    const providers = await server.admin('GET', `/providers?workspace_id=${id}`);
    otherSlug = (providers.body.data as { slug: string }[])[0]?.slug ?? '';
  });
  afterAll(async () => {
    if (browser.context) await browser.close();
    await server?.stop();
  });
  beforeEach(async () => {
    page = await signedIn(browser.context, server);
    complaints = complaintsOf(page, server);
    await page.setViewportSize({ width: 1440, height: 900 });
  });
  afterEach(async () => {
    await page.close();
    expect(complaints).toEqual([]);
  });

  const workspaces = async () => (await server.admin('GET', '/admin/workspaces')).body.data as { id: string }[];
  /** All records of all workspaces. */
  const records = async () => {
    const found: Logged[] = [];
    for (const { id } of await workspaces()) {
      for (let cursor = ''; ; ) {
        const { body } = await server.admin(
          'GET',
          `/logs?limit=100&workspace_id=${id}${cursor && `&cursor=${cursor}`}`,
        );
        found.push(...(body.data as Logged[]));
        if (body.next_cursor === null) break;
        cursor = encodeURIComponent(String(body.next_cursor));
      }
    }
    return found;
  };
  const number = (text: string): number => {
    const [figure = '0'] = text.replaceAll(',', '').match(/\$?[\d.]+/) ?? [];
    return figure.startsWith('$') ? Math.round(Number(figure.slice(1)) * 1e6) : Number(figure);
  };
  const sum = (numbers: readonly number[]) => numbers.reduce((all, one) => all + one, 0);

  test.each([1, 2, 3])(
    'Spend: rows add up to the total, and both to the records, split by anything (seed %i)',
    async (seed) => {
      const calls = fc.sample(fc.array(call, { minLength: 8, maxLength: 20 }), { seed, numRuns: 1 })[0] ?? [];
      for (const { model, words, elsewhere } of calls) {
        const headers: Record<string, string> = elsewhere ? { 'x-gateway-api-key': otherKey } : {};
        const messages = [{ role: 'user', content: 'word '.repeat(words) }];
        const slug = model === 'missing' ? 'missing' : elsewhere ? otherSlug : 'sandbox';
        await server.call('/chat/completions', { model: `@${slug}/${model}`, messages }, headers);
      }
      made += calls.length;
      await vi.waitFor(async () => expect(await records()).toHaveLength(made), { timeout: 30_000 });
      const all = await records();
      const expected = { cost: sum(all.map(({ cost_micros }) => cost_micros ?? 0)), requests: all.length };
      const pairs = GROUPS.map(
        (group, at) => [group, at % 2 === 0 ? GROUPS[(at + seed) % GROUPS.length] : ''] as const,
      );
      for (const [group, and] of pairs) {
        const split = group === and || !and ? `group=${group}` : `group=${group}&and=${and}`;
        await page.goto(`${server.url}/console/spend?${split}&range=24h`);
        const table = page.locator('table[aria-label^="Spend by"]');
        await table.waitFor();
        await expect
          .poll(async () => number((await page.locator('.tile .figure').nth(1).textContent()) ?? ''), {
            timeout: 20_000,
          })
          .toBe(made);
        const heads = await table.locator('th').allTextContents();
        const column = async (name: string) =>
          (await table.locator(`tbody td:nth-child(${heads.indexOf(name) + 1})`).allTextContents()).map(number);
        const [cost, requests, tokens, unpriced] = await Promise.all(
          ['Cost ($)', 'Requests', 'Tokens', 'Unpriced'].map(column),
        );
        const tiles = (await page.locator('.tile .figure').allTextContents()).map(number);
        const and2 = and && and !== group ? `&and=${and}` : '';
        const { body } = await server.admin(
          'GET',
          `/analytics/groups/${group}?all_workspaces=true&columns=cost,total_tokens&page_size=200${and2}&${DAY()}`,
        );
        const summary = body.summary as { cost_micros: number; total_tokens: number; unpriced_requests: number };
        expect([split, sum(cost ?? []), sum(requests ?? []), sum(tokens ?? []), sum(unpriced ?? [])]).toEqual([
          split,
          expected.cost,
          expected.requests,
          summary.total_tokens,
          summary.unpriced_requests,
        ]);
        expect([split, tiles[0], tiles[1], tiles[2]]).toEqual([
          split,
          expected.cost,
          expected.requests,
          summary.total_tokens,
        ]);
      }
    },
    180_000,
  );

  test.each([1, 2, 3])(
    'Budgets & limits: each amount, use and rest is the API’s, and none is lost (seed %i)',
    async (seed) => {
      const here = { workspace_id: server.first.workspace_id };
      const limits = fc.sample(fc.array(limit, { minLength: 3, maxLength: 8 }), { seed, numRuns: 1 })[0] ?? [];
      for (const [at, { type, amount, warn }] of limits.entries()) {
        const credit_limit = type === 'cost' ? amount / 1e6 : amount;
        const policy = {
          ...here,
          name: `Limit ${seed}.${at}`,
          type,
          credit_limit,
          ...(warn && { alert_threshold: credit_limit / 2 }),
          conditions: [{ key: 'workspace_id', value: server.first.workspace_id }],
          group_by: [{ key: 'workspace_id' }],
        };
        const answer = await server.admin('POST', '/policies/usage-limits', policy);
        expect([answer.status, answer.body]).toMatchObject([200, {}]);
      }
      const messages = [{ role: 'user', content: 'word '.repeat(seed * 37) }];
      for (let n = 0; n < seed; n += 1) await server.call('/chat/completions', { model: '@sandbox/echo', messages });
      made += seed;
      const asked = async () =>
        (await server.admin('GET', `/limits?all=true&workspace_id=${server.first.workspace_id}`)).body.data as Limit[];
      await vi.waitFor(
        async () => expect((await asked()).filter(({ used }) => used === null || used === 0)).toEqual([]),
        { timeout: 30_000 },
      );
      const micros = (one: Limit, value: number | null) =>
        value === null ? null : one.type === 'cost' ? Math.round(value * 1e6) : value;
      const api = async () =>
        (await asked()).map((one) => [
          one.name,
          micros(one, one.limit),
          micros(one, one.used),
          micros(one, one.remaining),
        ]);
      // Requests settle for a moment after their answers: again, until the API says the same before and after the page.
      await vi.waitFor(
        async () => {
          const before = await api();
          await page.goto(`${server.url}/console/limits`);
          const table = page.getByRole('table', { name: 'Limits' });
          await table.waitFor();
          const shown: unknown[] = [];
          for (const row of await table.locator('tbody tr').all()) {
            const cells = await row.locator('td').allTextContents();
            const name = await row.locator('.limit-name').textContent();
            shown.push([name, number(cells[2] ?? ''), number(cells[3] ?? ''), number(cells[4] ?? '')]);
          }
          expect(await api()).toEqual(before);
          expect(shown).toEqual(before);
        },
        { timeout: 60_000, interval: 200 },
      );
    },
    120_000,
  );
});
