/** Fields of limits that are accepted or refused, and a server to send them to. */
import { afterAll, beforeAll, expect } from 'vitest';
import { TestClock } from '../../src/kernel/clock.ts';
import { type AdminHarness, type Answer, type Call, emptyTables, startAdmin } from './admin.ts';

const NOON = Date.UTC(2026, 10, 22, 12);
const TODAY = '2026-11-22';
export const TOMORROW = '2026-11-23T00:00:00.000Z';
/** In US dollars: 2^52 micro-dollars. */
export const LARGEST_COST = 4_503_599_627;
export const group = (...keys: string[]) => ({ group_by: keys.map((key) => ({ key })) });

/** A number that `JSON.stringify` does not write like this. */
export const raw = (text: string) => `\u2063raw:${text}`;
const written = (body: unknown): string => JSON.stringify(body).replace(/"\u2063raw:([^"]*)"/g, '$1');

export type Taken = [title: string, fields: object, answered?: object];
export type Refused = [title: string, fields: object, param: string | null];

export const RESETS_TAKEN: readonly Taken[] = [
  ['monthly', { periodic_reset: 'monthly' }],
  ['weekly', { periodic_reset: 'weekly' }],
  ['null for both periods', { periodic_reset: null, periodic_reset_days: null }],
  ['a period and null for the other', { periodic_reset: 'weekly', periodic_reset_days: null }],
  ['1 day', { periodic_reset_days: 1 }],
  ['365 days', { periodic_reset_days: 365, periodic_reset: null }],
  ['tomorrow at midnight', { next_usage_reset_at: TOMORROW }],
  ['tomorrow, normalised', { next_usage_reset_at: '2026-11-23T23:59:59.999Z' }, { next_usage_reset_at: TOMORROW }],
  ['tomorrow, where it is', { next_usage_reset_at: '2026-11-24T01:00:00+09:00' }, { next_usage_reset_at: TOMORROW }],
  ['a leap day', { next_usage_reset_at: '2028-02-29T00:00:00.000Z', periodic_reset_days: 30 }],
  ['the last day', { next_usage_reset_at: '9999-12-31T00:00:00.000Z' }],
  ['no day', { next_usage_reset_at: null }],
];

export const RESETS_REFUSED: readonly Refused[] = [
  ['daily', { periodic_reset: 'daily' }, 'periodic_reset'],
  ['an empty period', { periodic_reset: '' }, 'periodic_reset'],
  ['0 days', { periodic_reset_days: 0 }, 'periodic_reset_days'],
  ['366 days', { periodic_reset_days: 366 }, 'periodic_reset_days'],
  ['1.5 days', { periodic_reset_days: 1.5 }, 'periodic_reset_days'],
  ['-1 day', { periodic_reset_days: -1 }, 'periodic_reset_days'],
  ['a text of days', { periodic_reset_days: '7' }, 'periodic_reset_days'],
  ['both periods', { periodic_reset: 'weekly', periodic_reset_days: 7 }, 'periodic_reset_days'],
  ['yesterday', { next_usage_reset_at: '2026-11-21T23:59:59Z' }, 'next_usage_reset_at'],
  ['later today, whose midnight is past', { next_usage_reset_at: `${TODAY}T23:00:00Z` }, 'next_usage_reset_at'],
  ['a day without zone', { next_usage_reset_at: '2027-01-01T00:00:00' }, 'next_usage_reset_at'],
  ['a day without time', { next_usage_reset_at: '2027-01-01' }, 'next_usage_reset_at'],
  ['30 February', { next_usage_reset_at: '2027-02-30T00:00:00Z' }, 'next_usage_reset_at'],
  ['29 February of another year', { next_usage_reset_at: '2027-02-29T00:00:00Z' }, 'next_usage_reset_at'],
  ['a time stamp', { next_usage_reset_at: 1_800_000_000_000 }, 'next_usage_reset_at'],
  ['the year 10000', { next_usage_reset_at: '+010000-01-01T00:00:00Z' }, 'next_usage_reset_at'],
  ['an empty day', { next_usage_reset_at: '' }, 'next_usage_reset_at'],
];

export const AMOUNTS_REFUSED: readonly Refused[] = [
  ['a limit below 0', { credit_limit: -0.01 }, 'credit_limit'],
  ['a limit above the largest', { credit_limit: 1e12 + 1 }, 'credit_limit'],
  ['a threshold above the largest', { credit_limit: 5, alert_threshold: 1e12 + 1 }, 'alert_threshold'],
  ['a limit of 2^53', { credit_limit: 2 ** 53 }, 'credit_limit'],
  ['a limit of 1e21', { credit_limit: 1e21 }, 'credit_limit'],
  ['an endless limit', { credit_limit: raw('1e999') }, 'credit_limit'],
  ['an endless limit below 0', { credit_limit: raw('-1e999') }, 'credit_limit'],
  ['a text as limit', { credit_limit: '10' }, 'credit_limit'],
  ['NaN as text', { credit_limit: 'NaN' }, 'credit_limit'],
  ['null as limit', { credit_limit: null }, 'credit_limit'],
  ['a list as limit', { credit_limit: [10] }, 'credit_limit'],
  ['a threshold below 0', { alert_threshold: -1 }, 'alert_threshold'],
  ['a threshold as text', { alert_threshold: '1' }, 'alert_threshold'],
  ['a threshold at the limit', { credit_limit: 10, alert_threshold: 10 }, 'alert_threshold'],
  ['a threshold above the limit', { credit_limit: 10, alert_threshold: 11 }, 'alert_threshold'],
];

export const NEW_COST_REFUSED: readonly Refused[] = [
  ['more cost than counters hold', { credit_limit: LARGEST_COST + 1, type: 'cost' }, 'credit_limit'],
];
/** Bodies are judged before a store is asked, so the second one is given some of them only. */
export const some = <T extends unknown[]>(engine: 'sqlite' | 'postgres', rows: readonly T[], share = 1): T[] =>
  rows.filter((_, index) => index % (engine === 'sqlite' ? share : 8) === 0);
export let admin: AdminHarness;

export const send = (method: string, path: string, body?: unknown, more: Call = {}) =>
  admin.call(method, `/v1${path}`, { ...(body === undefined ? {} : { raw: written(body) }), ...more });
export const done = async (method: string, path: string, body?: unknown) => {
  const answer = await send(method, path, body);
  expect(answer.status, answer.text).toBe(200);
  return answer.body;
};

/** Every write is in the change feed; what a refused one leaves is its audit row. */
export const stored = async () => ({
  changes: await admin.tables.lastChange(),
  audit: await admin.tables.systemRead((tx) => tx.count('audit_log')),
});

/** The call is refused with the path of the field; what is left of it is the audit row of the refusal. */
export async function refuses(call: () => Promise<Answer>, param: string | null): Promise<void> {
  const before = await stored();
  const answer = await call();
  const { code, param: named } = answer.body.error ?? {};
  expect([answer.status, code, named], answer.text).toEqual([400, 'AB01', param]);
  expect(await stored()).toEqual({ changes: before.changes, audit: before.audit + 1 });
}

export const workspace = () => ({ workspace_id: admin.a.workspace_id });

/** Starts the administration over the engine. */
export function useAdmin(engine: 'sqlite' | 'postgres'): void {
  beforeAll(async () => {
    const clock = new TestClock(NOON);
    admin = await startAdmin(await emptyTables(engine, clock), { clock });
  });

  afterAll(async () => {
    await admin?.close();
    await admin?.tables.close();
  });
}
