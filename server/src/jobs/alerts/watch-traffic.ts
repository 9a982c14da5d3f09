/**
 * Watches what requests of a workspace or an organisation cost, and how many fail, and raises an alert where its settings ask
 * for one. Each minute one node looks at the sums of the hours. Only where they are close to an alert does it ask the log store
 * for the last minutes.
 */
import { systemTenant } from '../../auth/tenant.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { appendAudit, systemEntry } from '../../resources/audit-logs/chain.ts';
import { alertRecipients } from '../../resources/settings/alerts.ts';
import type { Tables } from '../../store/ports.ts';
import type { Row, TrafficAlertKind } from '../../store/schema.ts';
import type { Macs } from '../../store/vault.ts';
import type { LogFilter, LogMeasure, LogStore } from '../../telemetry/log-query.ts';
import { queueDeliveries } from './queue-deliveries.ts';
import type { TrafficEvent, TrafficFacts } from './traffic-event.ts';
import { TrafficHours } from './traffic-hours.ts';
import {
  anomalyOf,
  BURN_RULES,
  type BurnRule,
  errorRate,
  LEAST_FAILED,
  NO_TRAFFIC,
  spendRate,
  type TrafficSums,
} from './traffic-rules.ts';

export interface WatchOptions {
  readonly tables: Tables;
  readonly clock: Clock;
  readonly log: Log;
  /** Signs the audit log. */
  readonly macs: Macs;
  /** Where links in alerts lead, without a trailing slash. */
  readonly publicUrl: () => string;
  readonly logs: Pick<LogStore, 'groups'>;
}

type Watch = Row<'alert_watches'>;
type Hours = ReadonlyMap<number, TrafficSums>;

const PAGE = 100;
const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
/** Records are in the sums a minute after their request, as a rule. */
const SETTLED_MS = 5 * MINUTE_MS;
const MICROS_PER_DOLLAR = 1_000_000;

/** What is worth an alert. */
interface Finding {
  readonly kind: TrafficAlertKind;
  /** What is raised once in a while: its name in `raised`. */
  readonly name: string;
  /** Stored under the name. */
  readonly mark: number;
  /** It may be raised again once the stored mark is at most this. */
  readonly again: number;
  readonly facts: TrafficFacts;
}

/** One look at every watched place; hours that are over are kept from one look to the next. */
export function trafficWatch(options: WatchOptions): (signal?: AbortSignal) => Promise<void> {
  const hours = new TrafficHours(options.tables);
  return (signal) => lookAtAll(options, hours, signal);
}

/** A place that fails holds up no other. */
async function lookAtAll(options: WatchOptions, hours: TrafficHours, signal?: AbortSignal): Promise<void> {
  const { tables, log } = options;
  const seen = new Set<string>();
  for (let after = ''; signal?.aborted !== true; ) {
    const page = await tables.systemRead((tx) =>
      tx.list('alert_watches', { where: { id: { gt: after } }, orderBy: [['id', 'asc']], limit: PAGE }),
    );
    for (const watch of page) {
      seen.add(watch.id);
      try {
        await look(options, hours, watch);
      } catch (error) {
        const { organisation_id, workspace_id } = watch;
        log.error('traffic could not be watched; it is looked at again in a minute', {
          organisation_id,
          workspace_id,
          error: String(error),
        });
      }
    }
    if (page.length < PAGE) {
      hours.keep(seen);
      return;
    }
    after = page.at(-1)?.id ?? after;
  }
}

async function look(options: WatchOptions, hours: TrafficHours, watch: Watch): Promise<void> {
  const now = await options.tables.now();
  const hour = Math.floor(now / HOUR_MS);
  const sums = await hours.sums(watch, hour);
  const found: Finding[] = [];
  for (const rule of BURN_RULES) found.push(...(await burning(options, watch, rule, sums, now)));
  if (watch.budgets.spend_anomalies) {
    // The hour before first: what was raised of this one hides it.
    for (const each of [hour - 1, hour]) {
      const finding = unusual(each, now, sums, await hours.usual(watch, each, hour));
      if (finding !== null) found.push(finding);
    }
  }
  for (const finding of found) if (isNew(watch, finding)) await raise(options, watch, finding);
}

const isNew = ({ raised }: Watch, { name, again }: Pick<Finding, 'name' | 'again'>) =>
  (raised[name] ?? Number.NEGATIVE_INFINITY) <= again;

interface Budget {
  readonly kind: 'spend_rate' | 'error_rate';
  /** As it is shown: US dollars, or percent. */
  readonly shown: number;
  readonly rate: (sums: TrafficSums, ms: number) => number;
  /** The highest rate there can be, by sums of hours of which the first is only partly in the range. */
  readonly most: (all: TrafficSums, whole: TrafficSums, ms: number) => number;
}

function budgetsOf({ budgets }: Watch): Budget[] {
  const { spend_budget: micros, error_budget: percent } = budgets;
  const out: Budget[] = [];
  if (micros !== null) {
    const rate = (sums: TrafficSums, ms: number) => spendRate(sums, ms, micros);
    out.push({ kind: 'spend_rate', shown: micros / MICROS_PER_DOLLAR, rate, most: (all, _whole, ms) => rate(all, ms) });
  }
  if (percent !== null) {
    const enough = (sums: TrafficSums) => (sums.failed < LEAST_FAILED ? 0 : errorRate(sums, percent));
    const most = (all: TrafficSums, { requests }: TrafficSums) =>
      enough({ ...all, requests: Math.max(1, requests, all.failed) });
    out.push({ kind: 'error_rate', shown: percent, rate: enough, most });
  }
  return out;
}

async function burning(
  options: WatchOptions,
  watch: Watch,
  rule: BurnRule,
  sums: Hours,
  now: number,
): Promise<Finding[]> {
  const { hours, times, shortMs } = rule;
  const ms = hours * HOUR_MS;
  const hour = Math.floor(now / HOUR_MS);
  const whole = between(sums, hour - hours + 1, hour);
  const first = sums.get(hour - hours) ?? NO_TRAFFIC;
  const waiting = budgetsOf(watch).filter(({ kind, most }) => {
    const name = `${kind} ${hours}`;
    // The longest range needs no minutes: the hours of which all is in it are enough.
    const all = shortMs === null ? whole : added(whole, first);
    return isNew(watch, { name, again: now - ms }) && most(all, whole, ms) > times;
  });
  if (waiting.length === 0) return [];
  const exact = shortMs === null ? null : await lastMinutes(options, watch, ms, shortMs, now);
  const part = shortMs === null ? 0 : 1 - (now % HOUR_MS) / HOUR_MS;
  const long = exact?.long ?? added(whole, scaled(first, part));
  return waiting.flatMap(({ kind, shown, rate }): Finding[] => {
    const high = rate(long, ms);
    if (high <= times) return [];
    if (exact !== null && shortMs !== null && shortRate(kind, exact.short, watch, shortMs) <= times) return [];
    const burn_rate = {
      hours,
      short_minutes: shortMs === null ? null : shortMs / MINUTE_MS,
      rate: Math.round(high * 10) / 10,
      alert_above: times,
      spent: long.micros / MICROS_PER_DOLLAR,
      requests: long.requests,
      failed: long.failed,
      budget: shown,
    };
    return [{ kind, name: `${kind} ${hours}`, mark: now, again: now - ms, facts: { burn_rate } }];
  });
}

/** Of the short range: few failed requests are enough there, as the long one has many. */
function shortRate(kind: Budget['kind'], sums: TrafficSums, { budgets }: Watch, ms: number): number {
  if (kind === 'spend_rate') return spendRate(sums, ms, budgets.spend_budget ?? Number.POSITIVE_INFINITY);
  return errorRate(sums, budgets.error_budget ?? Number.POSITIVE_INFINITY);
}

function measuresOf(suffix: string, where: readonly LogFilter[]): LogMeasure[] {
  return [
    { as: `requests${suffix}`, of: 'count', where },
    { as: `failed${suffix}`, of: 'count', where: [...where, { column: 'outcome', in: ['failed'] }] },
    { as: `micros${suffix}`, of: 'sum', column: 'cost_micros', where },
  ];
}

/**
 * The exact sums of both ranges. Null where the log store cannot say them, because it is away or other nodes have records that it
 * has not: then the hours decide alone, and an alert may last a little longer than its cause.
 */
async function lastMinutes(
  { logs, log }: WatchOptions,
  { organisation_id, workspace_id }: Watch,
  longMs: number,
  shortMs: number,
  now: number,
): Promise<{ readonly long: TrafficSums; readonly short: TrafficSums } | null> {
  const workspaceIds = workspace_id === '' ? null : [workspace_id];
  // Sums hold no personal data, and the hourly ones still count erased requests.
  const scope = { organisationId: organisation_id, workspaceIds, userId: null, keptSince: 0, erased: [] };
  const where: LogFilter[] = [{ column: 'dry_run', is: false }];
  try {
    const { summary, incomplete } = await logs.groups(
      { scope, from: now - longMs, to: now + MINUTE_MS, where },
      { by: [], measures: [...measuresOf('', []), ...measuresOf('_short', [{ column: 'time', min: now - shortMs }])] },
    );
    if (incomplete.length > 0) return null;
    const of = (suffix: string): TrafficSums => ({
      requests: summary[`requests${suffix}`] ?? 0,
      failed: summary[`failed${suffix}`] ?? 0,
      micros: summary[`micros${suffix}`] ?? 0,
    });
    return { long: of(''), short: of('_short') };
  } catch (error) {
    log.warn('the log store could not say what the last minutes cost; alerts go by the hours', {
      organisation_id,
      workspace_id,
      error: String(error),
    });
    return null;
  }
}

function unusual(of: number, now: number, sums: Hours, usual: readonly number[] | null): Finding | null {
  if (usual === null) return null;
  const { micros } = sums.get(of) ?? NO_TRAFFIC;
  const found = anomalyOf(micros, usual, now >= (of + 1) * HOUR_MS + SETTLED_MS);
  if (found === null) return null;
  const anomaly = {
    hour: new Date(of * HOUR_MS).toISOString(),
    direction: found.direction,
    spent: micros / MICROS_PER_DOLLAR,
    usual: found.usual / MICROS_PER_DOLLAR,
  };
  return { kind: 'spend_anomaly', name: 'spend_anomaly', mark: of, again: of - 1, facts: { anomaly } };
}

/** The mark that it was raised, its row in the audit log and its deliveries: all of them, or none, and once for all nodes. */
async function raise(
  { tables, clock, macs, publicUrl }: WatchOptions,
  { id, organisation_id, workspace_id, budgets }: Watch,
  finding: Finding,
): Promise<void> {
  const { kind, name, mark, facts } = finding;
  const ofWorkspace = workspace_id !== '';
  await tables.write(
    systemTenant(organisation_id),
    async (tx) => {
      const watch = await tx.find('alert_watches', { id });
      // Another node was here first, or the settings have changed since.
      if (watch === undefined || !isNew(watch, finding)) return;
      if (JSON.stringify(watch.budgets) !== JSON.stringify(budgets)) return;
      const workspace = ofWorkspace ? await tx.find('workspaces', { id: workspace_id }) : undefined;
      if (ofWorkspace && workspace?.status !== 'active') return;
      const now = await tx.now();
      await tx.update('alert_watches', { id }, { raised: { ...watch.raised, [name]: mark }, last_updated_at: now });
      const entry = systemEntry(clock, {
        organisationId: organisation_id,
        workspaceId: ofWorkspace ? workspace_id : null,
        resource: ofWorkspace ? 'workspaces' : 'organisation_settings',
        resourceId: id,
        action: 'manage',
        before: null,
        after: { alert: kind, ...facts },
      });
      await appendAudit(tx, macs, entry);
      const event: TrafficEvent = {
        type: `traffic.${kind}`,
        timestamp: new Date(now).toISOString(),
        data: {
          organisation_id,
          workspace_id: ofWorkspace ? workspace_id : null,
          workspace_slug: workspace?.slug ?? null,
          ...facts,
          console_url: `${publicUrl()}/console/`,
        },
      };
      const owner = { owner_kind: ofWorkspace ? 'workspace' : 'organisation', owner_id: id } as const;
      const alert = { ...owner, workspace_id, bucket_id: null, window_no: null, kind, body: { ...event } };
      const recipients = alertRecipients({}, workspace, await tx.organisation());
      await queueDeliveries(tx, clock, alert, recipients, now);
    },
    { queue: organisation_id },
  );
}

const added = (one: TrafficSums, other: TrafficSums): TrafficSums => ({
  requests: one.requests + other.requests,
  failed: one.failed + other.failed,
  micros: one.micros + other.micros,
});

const scaled = ({ requests, failed, micros }: TrafficSums, by: number): TrafficSums => ({
  requests: Math.round(requests * by),
  failed: Math.round(failed * by),
  micros: Math.round(micros * by),
});

/** Both hours belong to the range. */
function between(sums: Hours, from: number, to: number): TrafficSums {
  let all = NO_TRAFFIC;
  for (let hour = from; hour <= to; hour++) all = added(all, sums.get(hour) ?? NO_TRAFFIC);
  return all;
}
