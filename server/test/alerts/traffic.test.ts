/** Alerts of traffic: budgets that are used too fast, and hours that cost more or less than usual. */
import { randomBytes } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { systemTenant } from '../../src/auth/tenant.ts';
import { type TrafficEvent, trafficMail } from '../../src/jobs/alerts/traffic-event.ts';
import { trafficWatch, type WatchOptions } from '../../src/jobs/alerts/watch-traffic.ts';
import { TestClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { followAlertSettings } from '../../src/resources/settings/alerts.ts';
import { organisationRow, workspaceRow } from '../../src/store/conformance/rows.ts';
import { loadKeyring } from '../../src/store/keyring.ts';
import type { Tables } from '../../src/store/ports.ts';
import type { LogStore } from '../../src/telemetry/log-query.ts';
import { emptyTables, startAdmin } from '../support/admin.ts';
import { booksStore, ORGANISATION, WORKSPACE } from '../support/ledger-node.ts';
import { logRow } from '../support/log-rows.ts';
import { NaiveLogStore } from '../support/naive-log-store.ts';

const macs = await loadKeyring({ masterKey: randomBytes(32).toString('base64'), masterKeyFile: '', create: true });
const HOUR = 3_600_000;
const MINUTE = 60_000;
const DOLLAR = 1_000_000;
/** A Wednesday. */
const START = Date.UTC(2027, 2, 10, 12, 30);

let open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.reverse()) await one.close();
  open = [];
});

interface Sums {
  readonly requests?: number;
  readonly failed?: number;
  readonly dollars?: number;
}

interface World {
  readonly tables: Tables;
  readonly clock: TestClock;
  readonly logs: NaiveLogStore;
  readonly options: WatchOptions;
  look(): Promise<void>;
  /** Settings of the workspace, or of the organisation. */
  set(alerts: object, place?: 'workspace' | 'organisation'): Promise<void>;
  /** Requests of one moment, `ago` milliseconds before now: in the log store and in the sums of their hour. */
  use(ago: number, sums: Sums, workspaceId?: string): Promise<void>;
  /** Sums of hours alone. */
  hour(hoursAgo: number, dollars: number): Promise<void>;
  events(): Promise<TrafficEvent[]>;
  /** Those of the audit log, oldest first. */
  audits(): Promise<string[]>;
}

async function world(engine: 'sqlite' | 'postgres'): Promise<World> {
  const clock = new TestClock(START);
  const tables = await booksStore(engine, clock);
  open.push(tables);
  const logs = new NaiveLogStore();
  const options = { tables, clock, log: silentLog, macs, publicUrl: () => 'https://sluice.example', logs };
  const watch = trafficWatch(options);
  const addHour = async (hour: number, workspace_id: string, { requests = 1, failed = 0, dollars = 0 }: Sums) => {
    const key = { organisation_id: ORGANISATION, workspace_id, hour, source: 'llm' };
    await tables.systemWrite(async (tx) => {
      const was = await tx.find('log_hours', key);
      await tx.remove('log_hours', key);
      const none = { refused: 0, unpriced: 0, saved_micros: 0, tokens_in: 0, tokens_out: 0, latency_sum_us: 0 };
      await tx.insert('log_hours', {
        ...key,
        ...none,
        requests: (was?.requests ?? 0) + requests,
        errors: (was?.errors ?? 0) + failed,
        cost_micros: (was?.cost_micros ?? 0) + Math.round(dollars * DOLLAR),
      });
    });
  };
  return {
    tables,
    clock,
    logs,
    options,
    look: () => watch(),
    async set(alerts, place = 'workspace') {
      await tables.write(systemTenant(ORGANISATION), async (tx) => {
        const id = place === 'workspace' ? WORKSPACE : null;
        if (id === null) await tx.updateOrganisation({ settings: { block_inline_config: false, alerts } });
        else await tx.update('workspaces', { id }, { settings: { alerts } });
        await followAlertSettings(tx, id, { alerts }, clock.now());
      });
    },
    async use(ago, sums, workspaceId = WORKSPACE) {
      const { requests = 1, failed = 0, dollars = 0 } = sums;
      const time = clock.now() - ago;
      const place = { organisation_id: ORGANISATION, workspace_id: workspaceId };
      for (let i = 0; i < requests; i++) {
        const cost_micros = i === 0 ? Math.round(dollars * DOLLAR) : 0;
        logs.rows.push(logRow({ ...place, time, cost_micros, outcome: i < failed ? 'failed' : 'ok' }));
      }
      await addHour(Math.floor(time / HOUR), workspaceId, sums);
    },
    hour: (hoursAgo, dollars) => addHour(Math.floor(clock.now() / HOUR) - hoursAgo, WORKSPACE, { dollars }),
    events: () =>
      tables.systemRead(async (tx) =>
        (await tx.list('alert_deliveries', { orderBy: [['created_at', 'asc']] }))
          .filter(({ recipient }) => recipient !== '')
          .map(({ body }) => body as unknown as TrafficEvent),
      ),
    audits: () =>
      tables.read(systemTenant(ORGANISATION), async (tx) =>
        (await tx.list('audit_log', { orderBy: [['seq', 'asc']] })).map(({ resource_type, after }) => {
          const { alert, burn_rate } = JSON.parse(after ?? '{}');
          return [resource_type, alert, ...(burn_rate === undefined ? [] : [burn_rate.hours])].join(' ');
        }),
      ),
  };
}

/** 720 dollars in 30 days: one an hour. */
const WATCHED = { emails: ['ops@org.example'], spend_budget: 720 };

describe.each(['sqlite', 'postgres'] as const)('on %s', (engine) => {
  it('a budget that is spent 14.4 times as fast in the last hour and the last minutes sends one alert in the hour', async () => {
    const { set, use, look, events, audits, clock } = await world(engine);
    await set(WATCHED);
    await use(50 * MINUTE, { dollars: 13 });
    await use(2 * MINUTE, { dollars: 1.3 });
    await look();
    // 14.3 dollars of one an hour.
    expect(await events()).toEqual([]);
    await use(MINUTE, { dollars: 1.2 });
    await look();
    await look();
    expect(await events()).toEqual([
      {
        type: 'traffic.spend_rate',
        timestamp: new Date(START).toISOString(),
        data: {
          organisation_id: ORGANISATION,
          workspace_id: WORKSPACE,
          workspace_slug: WORKSPACE,
          burn_rate: {
            hours: 1,
            short_minutes: 5,
            rate: 15.5,
            alert_above: 14.4,
            spent: 15.5,
            requests: 3,
            failed: 0,
            budget: 720,
          },
          console_url: 'https://sluice.example/console/',
        },
      },
    ]);
    clock.jump(59 * MINUTE);
    await use(MINUTE, { dollars: 20 });
    await look();
    expect((await audits()).filter((one) => one === 'workspaces spend_rate 1')).toHaveLength(1);
    clock.jump(MINUTE);
    await look();
    expect((await audits()).filter((one) => one === 'workspaces spend_rate 1')).toHaveLength(2);
  });

  it('what was spent an hour ago and is over sends nothing: the last minutes decide', async () => {
    const { set, use, look, audits } = await world(engine);
    await set(WATCHED);
    await use(40 * MINUTE, { dollars: 30 });
    await look();
    expect(await audits()).toEqual([]);
  });

  it('six times as fast in six hours and half an hour, and once in three days, are alerts as well', async () => {
    const { set, use, look, audits, hour } = await world(engine);
    await set(WATCHED);
    await use(5 * HOUR, { dollars: 34 });
    await use(20 * MINUTE, { dollars: 3.5 });
    await look();
    expect(await audits()).toEqual(['workspaces spend_rate 6']);
    await hour(60, 34);
    await look();
    // 71.5 dollars of 72.
    expect(await audits()).toEqual(['workspaces spend_rate 6']);
    const again = await world(engine);
    await again.set(WATCHED);
    await again.hour(71, 73);
    await again.look();
    expect(await again.audits()).toEqual(['workspaces spend_rate 72']);
  });

  it('errors beside an error budget, but not fewer than ten', async () => {
    const { set, use, look, audits, events } = await world(engine);
    await set({ webhook_url: 'https://hook.example/a', error_budget: 1 });
    await use(2 * MINUTE, { requests: 20, failed: 9 });
    await look();
    expect(await audits()).toEqual([]);
    await use(MINUTE, { requests: 1, failed: 1 });
    await look();
    expect(await audits()).toEqual(
      [1, 6].map((hours) => `workspaces error_rate ${hours}`).concat('workspaces error_rate 72'),
    );
    expect((await events())[0]?.data).toMatchObject({ burn_rate: { rate: 47.6, requests: 21, failed: 10, budget: 1 } });
  });

  it('an organisation counts all of its workspaces, and others are nobody’s', async () => {
    const { set, use, look, audits, tables, logs } = await world(engine);
    await tables.systemWrite(async (tx) => {
      await tx.insert('workspaces', workspaceRow(ORGANISATION, 'ws-2'));
      await tx.insert('organisations', organisationRow('org-2'));
    });
    await set(WATCHED, 'organisation');
    await set(WATCHED);
    logs.rows.push(logRow({ organisation_id: 'org-2', workspace_id: WORKSPACE, time: START, cost_micros: 1e9 }));
    await use(2 * MINUTE, { dollars: 8 });
    await use(2 * MINUTE, { dollars: 8 }, 'ws-2');
    await look();
    expect(await audits()).toEqual(['organisation settings spend_rate 1']);
  });

  it('an hour that costs three times what it usually does is an alert before it is over, and once', async () => {
    const { set, hour, look, events, clock } = await world(engine);
    await set({ emails: ['ops@org.example'], spend_anomalies: true });
    for (const week of [1, 2, 3, 4]) await hour(week * 168, 10);
    await hour(0, 29);
    await look();
    expect(await events()).toEqual([]);
    await hour(0, 1);
    clock.jump(MINUTE);
    await look();
    clock.jump(40 * MINUTE);
    await look();
    expect((await events()).map(({ data }) => data)).toMatchObject([
      { anomaly: { hour: '2027-03-10T12:00:00.000Z', direction: 'above', spent: 30, usual: 10 } },
    ]);
  });

  it('an hour without the usual spend is an alert once it is over; nothing is compared before there are four weeks', async () => {
    const { set, hour, look, events, clock } = await world(engine);
    await set({ emails: ['ops@org.example'], spend_anomalies: true });
    for (const week of [1, 2, 3]) await hour(week * 168, 10);
    clock.jump(35 * MINUTE);
    await look();
    expect(await events()).toEqual([]);
    await hour(4 * 168 + 1, 10);
    clock.jump(HOUR);
    await look();
    expect((await events()).map(({ data }) => data)).toMatchObject([]);
    for (const week of [1, 2, 3, 4]) await hour(week * 168, 10);
    clock.jump(HOUR);
    await look();
    expect((await events()).map(({ data }) => data)).toMatchObject([
      { anomaly: { hour: '2027-03-10T14:00:00.000Z', direction: 'below', spent: 0, usual: 10 } },
    ]);
  });

  it('two nodes at the same time send one alert', async () => {
    const { set, use, events, audits, options } = await world(engine);
    await set(WATCHED);
    await use(2 * MINUTE, { dollars: 16 });
    await Promise.all([trafficWatch(options)(), trafficWatch(options)(), trafficWatch(options)()]);
    expect(await audits()).toEqual(['workspaces spend_rate 1']);
    expect(await events()).toHaveLength(1);
  });

  it('other budgets begin anew, and what is watched no more sends nothing', async () => {
    const { set, use, look, audits } = await world(engine);
    await set(WATCHED);
    await use(2 * MINUTE, { dollars: 30 });
    await look();
    await set({ ...WATCHED, emails: ['other@org.example'] });
    await look();
    expect(await audits()).toEqual(['workspaces spend_rate 1']);
    await set({ ...WATCHED, spend_budget: 900 });
    await look();
    expect(await audits()).toHaveLength(2);
    await set({ emails: ['ops@org.example'] });
    await use(MINUTE, { dollars: 300 });
    await look();
    expect(await audits()).toHaveLength(2);
  });

  it('where the log store is away, or others have records that it has not, the hours decide', async () => {
    for (const broken of ['away', 'incomplete'] as const) {
      const { set, use, hour, audits, options, logs } = await world(engine);
      await set(WATCHED);
      await use(40 * MINUTE, { dollars: 30 });
      await hour(1, 1);
      logs.coverage = { completeTo: 0, incomplete: [{ from: 0, to: START }] };
      const away: Pick<LogStore, 'groups'> = { groups: () => Promise.reject(new Error('no keeper')) };
      await trafficWatch(broken === 'away' ? { ...options, logs: away } : options)();
      expect(await audits()).toEqual(['workspaces spend_rate 1']);
    }
  });
});

it('a place that is far from its budget never asks the log store', async () => {
  const { set, use, look, logs } = await world('sqlite');
  let asked = 0;
  const groups = logs.groups.bind(logs);
  logs.groups = (...query) => {
    asked += 1;
    return groups(...query);
  };
  await set({ ...WATCHED, error_budget: 1 });
  await use(2 * MINUTE, { dollars: 5, requests: 100 });
  await look();
  expect(asked).toBe(0);
  await use(MINUTE, { dollars: 20 });
  await look();
  expect(asked).toBe(1);
});

it('settings of a workspace and of the organisation say what is watched, until they say so no more', async () => {
  const admin = await startAdmin(await emptyTables('sqlite'));
  open.push(admin);
  const { organisation_id, workspace_id } = admin.a;
  const watched = () =>
    admin.tables.systemRead(async (tx) =>
      (await tx.list('alert_watches', {})).map(({ id, budgets }) => [id === workspace_id ? 'workspace' : id, budgets]),
    );
  const put = async (path: string, body: object) => {
    const { status, text } = await admin.call('PUT', path, { body });
    expect(status, text).toBe(200);
  };
  const workspace = (alerts: object | null) => put(`/v1/admin/workspaces/${workspace_id}`, { settings: { alerts } });
  await workspace({ emails: ['a@b.example'] });
  expect(await watched()).toEqual([]);
  await workspace({ error_budget: 0.5, spend_budget: 12.345678 });
  await put('/v1/admin/organisation/settings', { alerts: { spend_anomalies: true } });
  const budgets = { spend_budget: 12_345_678, error_budget: 0.5, spend_anomalies: false };
  expect(new Map((await watched()) as [string, unknown][])).toEqual(
    new Map<string, unknown>([
      ['workspace', budgets],
      [organisation_id, { spend_budget: null, error_budget: null, spend_anomalies: true }],
    ]),
  );
  await put('/v1/admin/organisation/settings', { alerts: { spend_anomalies: null } });
  await workspace({ error_budget: null });
  expect(await watched()).toEqual([['workspace', { ...budgets, error_budget: null }]]);
  await workspace(null);
  expect(await watched()).toEqual([]);
});

describe('a mail', () => {
  const event = (type: TrafficEvent['type'], facts: object, slug: string | null = 'team'): TrafficEvent =>
    ({
      type,
      timestamp: '2027-03-10T12:30:00.000Z',
      data: {
        organisation_id: 'o',
        workspace_id: slug === null ? null : 'w',
        workspace_slug: slug,
        ...facts,
        console_url: 'https://sluice.example/console/',
      },
    }) as TrafficEvent;
  const burn = {
    hours: 1,
    short_minutes: 5,
    rate: 20,
    alert_above: 14.4,
    requests: 50,
    failed: 5,
    spent: 20,
    budget: 720,
  };

  it('says what was spent, beside which budget, and where', () => {
    const mail = trafficMail(event('traffic.spend_rate', { burn_rate: burn }), 'id', 'a@b.example');
    expect(mail.subject).toBe('Budget is spent too fast: workspace team');
    expect(mail.text).toContain('The spend of workspace team uses its budget 20 times as fast as it may.');
    expect(mail.text).toMatch(/Last hour: +20 US dollars\nBudget: +720 US dollars in 30 days\n/);
  });

  it('says how many requests failed', () => {
    const facts = { burn_rate: { ...burn, hours: 72, short_minutes: null, budget: 1 } };
    const { subject, text } = trafficMail(event('traffic.error_rate', facts, null), 'id', 'a@b.example');
    expect(subject).toBe('Too many requests fail: the organisation');
    expect(text).toMatch(/Last 3 days: +5 of 50 requests failed\nBudget: +1 % of the requests\n/);
  });

  it('says which hour is unusual', () => {
    const anomaly = { hour: '2027-03-10T12:00:00.000Z', direction: 'below', spent: 1, usual: 10 };
    const { text } = trafficMail(event('traffic.spend_anomaly', { anomaly }), 'id', 'a@b.example');
    expect(text).toMatch(
      /costs much less than usual\.\n\nHour: +2027-03-10 12:00 UTC\nSpent: +1 US dollars\nUsual: +10 US/,
    );
  });
});
