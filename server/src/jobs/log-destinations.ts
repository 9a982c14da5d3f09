/** Log destinations: hands them to the process that feeds them, answers what that asks, and notes what it says of them. */

import { systemTenant } from '../auth/tenant.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import { planOf } from '../resources/log-destinations/rules.ts';
import type { BodyReader } from '../resources/logs/bodies.ts';
import { bodySettings, deniedExportFields } from '../resources/settings/settings.ts';
import { signingSecrets } from '../resources/settings/webhook-secret.ts';
import type { StoredHandOver } from '../store/log-tables.ts';
import type { Change, SystemTx, Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Macs, Vault } from '../store/vault.ts';
import { presentPart } from '../telemetry/bodies/presented.ts';
import type {
  BatchRules,
  DestinationHost,
  DestinationPlan,
  DestinationState,
  HandedOver,
  LeftRecords,
  PastPage,
} from '../telemetry/log-destination.ts';
import type { LogBodies } from '../telemetry/log-export.ts';
import type { LogStore } from '../telemetry/log-query.ts';
import type { LogRecord } from '../telemetry/record.ts';
import { nodeOfRun } from '../telemetry/recorder.ts';
import { LeftFeeds, storedPage } from './left-feeds.ts';

/** The process that sends. */
export interface DestinationProcess {
  /** Takes the destinations as they are now; runs while there is any. Never rejects. */
  feed(plans: readonly DestinationPlan[], host: DestinationHost): Promise<void>;
  /** Null where it does not answer, or does not run. Never rejects. */
  states(): Promise<readonly DestinationState[] | null>;
}

export interface DestinationParts {
  readonly tables: Tables;
  readonly vault: Pick<Vault, 'open'> & Macs;
  readonly process: DestinationProcess;
  /** The records of this machine. */
  readonly records: Pick<LogStore, 'page'>;
  readonly bodies: Pick<BodyReader, 'find'>;
  /** By the keeper of this machine. */
  readonly parquet: DestinationHost['parquet'];
  /** Days that records and bodies stay; 0: all. */
  readonly days: { readonly logs: number; readonly bodies: number };
  /** What paths of requests are behind. */
  readonly origin: () => string;
  /** Name of this machine's node. */
  readonly nodeId: string;
  /** Each node reads the records of all, and sends what one that is away has left. */
  readonly shared: boolean;
  readonly clock: Clock;
  readonly log: Log;
}

const PAGE = 200;
/** More than an organisation may have. */
const MOST_OF_ORGANISATION = 100;
const DAY_MS = 86_400_000;
const STATE_MS = 1_000;
/** Numbers that rise are noted so often, an error at once. */
const NOTE_MS = 3_000;
/** A lag that grows. */
const LAG_MS = 15_000;
const LOAD_AGAIN_MS = 5_000;

export class LogDestinations implements Closable, DestinationHost {
  readonly #parts: DestinationParts;
  readonly #plans = new Map<string, readonly DestinationPlan[]>();
  #states: readonly DestinationState[] = [];
  /** What was noted of each last. */
  readonly #noted = new Map<string, { readonly seen: string; readonly kind: string; readonly at: number }>();
  /** Organisations whose destinations are read again; null: all. */
  #stale: Set<string> | null = null;
  #loading: Promise<void> | null = null;
  readonly #leftFeeds: LeftFeeds;
  #cancel: () => void = () => undefined;
  #closed = false;

  constructor(parts: DestinationParts) {
    this.#parts = parts;
    this.#leftFeeds = new LeftFeeds(parts);
  }

  /** What the process said last. */
  get states(): readonly DestinationState[] {
    return this.#states;
  }

  /** How many there are. */
  get count(): number {
    return [...this.#plans.values()].reduce((sum, plans) => sum + plans.length, 0);
  }

  /** Reads the destinations, and starts the process where there are any. */
  async start(): Promise<void> {
    await this.#load();
    this.#watchStates();
  }

  /** Something of the store has changed; null: anything may have. */
  changed(change: Change | null): void {
    if (change === null) this.#stale = null;
    else if (change.topic !== 'log_destinations') return;
    else this.#stale?.add(change.organisationId);
    void this.#load();
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#cancel();
    await this.#loading;
    await this.#noteStates().catch(() => undefined);
  }

  async terms(id: string): Promise<BatchRules | null> {
    const { tables, vault, origin, nodeId, shared } = this.#parts;
    return tables.systemRead(async (tx) => {
      const row = await tx.find('log_destinations', { id });
      if (row === undefined || !row.enabled) return null;
      const organisation = await tx.find('organisations', { id: row.organisation_id });
      if (organisation === undefined || organisation.status !== 'active') return null;
      const { workspace_id: workspaceId } = row;
      const workspace = workspaceId === null ? undefined : await tx.find('workspaces', { id: workspaceId });
      const { deniedFields } = deniedExportFields(organisation, workspace ?? null);
      const secrets = row.kind === 'webhook' ? signingSecrets(vault, organisation, await tx.now()) : [];
      const rules = { denied: deniedFields, secrets, origin: origin() };
      if (!shared) return rules;
      const own = await tx.find('log_destination_feeds', { destination_id: id, node: nodeId });
      const handed = own?.handed ?? null;
      return { ...rules, handedOver: handed === null ? null : handOverOf(handed) };
    });
  }

  async bodies(
    records: readonly LogRecord[],
    noMetadata: boolean,
  ): Promise<{ readonly found: ReadonlyMap<string, LogBodies>; readonly pending: boolean }> {
    const { bodies, origin, clock } = this.#parts;
    const found = new Map<string, LogBodies>();
    let pending = false;
    const daysOf = await this.#bodyDays(records);
    for (const record of records) {
      const { id, organisation_id: organisationId, body_chunk: chunk, body_slot: slot } = record;
      if (organisationId === null || typeof chunk !== 'string' || typeof slot !== 'number') continue;
      const days = daysOf(record);
      if (days > 0 && record.time < clock.now() - days * DAY_MS) continue;
      const kept = await bodies.find({ organisationId, chunk, slot, id });
      if (kept === null) pending = true;
      else {
        const body = (part: 'request' | 'answer') =>
          (presentPart(kept, part, noMetadata, origin())?.body ?? null) as object | null;
        found.set(id, { request: body('request'), response: body('answer') });
      }
    }
    return { found, pending };
  }

  async past(id: string, to: number, behind: PastPage['next']): Promise<PastPage> {
    const { nodeId } = this.#parts;
    const plan = this.#planOf(id);
    if (plan === null) return { records: [], next: null };
    const { records, next } = await storedPage(this.#parts, plan, { from: plan.startAt, to, behind });
    // Each node sends what it has served, whatever else it can read.
    return { records: records.filter(({ node }) => (nodeOfRun(node) ?? nodeId) === nodeId), next };
  }

  parquet(...asked: Parameters<DestinationHost['parquet']>): Promise<string> {
    return this.#parts.parquet(...asked);
  }

  async settled(state: DestinationState): Promise<void> {
    await this.#note(state);
  }

  async left(id: string): Promise<LeftRecords | null> {
    const plan = this.#planOf(id);
    return plan === null ? null : this.#leftFeeds.next(plan);
  }

  leftSettled(id: string, left: Pick<LeftRecords, 'node' | 'next'>): Promise<void> {
    return this.#leftFeeds.settled(id, left);
  }

  #planOf(id: string): DestinationPlan | null {
    for (const plans of this.#plans.values()) {
      const found = plans.find((one) => one.id === id);
      if (found !== undefined) return found;
    }
    return null;
  }

  /** Days that the bodies of a record stay, by the settings of its workspace. */
  async #bodyDays(records: readonly LogRecord[]): Promise<(record: LogRecord) => number> {
    const { tables, days } = this.#parts;
    const ids = [...new Set(records.map(({ workspace_id: id }) => id ?? ''))];
    const [first] = records;
    const own = await tables.systemRead(async (tx) => {
      const organisation = await tx.find('organisations', { id: first?.organisation_id ?? '' });
      const found = new Map<string, number>();
      if (organisation === undefined) return found;
      for (const id of ids) {
        const workspace = await tx.find('workspaces', { id });
        found.set(id, bodySettings(organisation, workspace ?? null).days ?? days.bodies);
      }
      return found;
    });
    return ({ workspace_id: id }) => Math.min(own.get(id ?? '') ?? days.bodies, days.bodies);
  }

  #load(): Promise<void> {
    this.#loading ??= this.#reload()
      .catch((error: unknown) => {
        this.#parts.log.warn('log destinations could not be read, they are read again', { error: String(error) });
        this.#stale = null;
        this.#parts.clock.after(LOAD_AGAIN_MS, () => void (this.#closed ? undefined : this.#load()));
      })
      .finally(() => {
        this.#loading = null;
        // Something changed meanwhile.
        if (!this.#closed && this.#stale !== null && this.#stale.size > 0) void this.#load();
      });
    return this.#loading;
  }

  async #reload(): Promise<void> {
    const stale = this.#stale;
    this.#stale = new Set();
    if (stale === null) await this.#loadAll();
    else for (const id of stale) this.#keep(id, await this.#plansIn(await this.#rowsOf(id)));
    if (this.#closed) return;
    const plans = [...this.#plans.values()].flat();
    await this.#parts.process.feed(plans, this);
  }

  async #loadAll(): Promise<void> {
    const { tables } = this.#parts;
    this.#plans.clear();
    for (let after = ''; ; ) {
      const rows = await tables.systemRead((tx) =>
        tx.list('log_destinations', { where: { id: { gt: after } }, orderBy: [['id', 'asc']], limit: PAGE }),
      );
      for (const [id, some] of Map.groupBy(rows, (row) => row.organisation_id)) {
        this.#keep(id, [...(this.#plans.get(id) ?? []), ...(await this.#plansIn(some))]);
      }
      if (rows.length < PAGE) return;
      after = rows.at(-1)?.id ?? '';
    }
  }

  #rowsOf(organisationId: string): Promise<Row<'log_destinations'>[]> {
    const where = { organisation_id: organisationId };
    const orderBy = [
      ['created_at', 'desc'],
      ['id', 'desc'],
    ] as const;
    return this.#parts.tables.systemRead((tx) =>
      tx.list('log_destinations', { where, orderBy, limit: MOST_OF_ORGANISATION }),
    );
  }

  #keep(organisationId: string, plans: readonly DestinationPlan[]): void {
    if (plans.length === 0) this.#plans.delete(organisationId);
    else this.#plans.set(organisationId, plans);
  }

  /** One whose secrets do not open is as one that is switched off: its requests wait. */
  async #plansIn(rows: readonly Row<'log_destinations'>[]): Promise<DestinationPlan[]> {
    const { vault, log, shared } = this.#parts;
    const plans: DestinationPlan[] = [];
    for (const row of rows) {
      const tenant = systemTenant(row.organisation_id);
      try {
        plans.push({ ...(await planOf(vault, tenant, row)), shared });
      } catch (error) {
        log.error('the secrets of a log destination cannot be opened', {
          destination_id: row.id,
          error: String(error),
        });
        plans.push({ ...(await planOf(vault, tenant, { ...row, enabled: false })), shared });
      }
    }
    return plans;
  }

  #watchStates(): void {
    this.#cancel = this.#parts.clock.after(STATE_MS, () => {
      this.#noteStates()
        .catch((error: unknown) =>
          this.#parts.log.warn('the state of log destinations could not be noted', { error: String(error) }),
        )
        .finally(() => {
          if (!this.#closed) this.#watchStates();
        });
    });
  }

  async #noteStates(): Promise<void> {
    if (this.#plans.size === 0) {
      this.#states = [];
      return;
    }
    const states = await this.#parts.process.states();
    if (states === null) return;
    this.#states = states;
    for (const state of states) {
      const seen = JSON.stringify({ ...state, lagMs: Math.floor(state.lagMs / LAG_MS) });
      const kind = JSON.stringify([state.error, state.backfilling, state.waiting > 0]);
      const before = this.#noted.get(state.id);
      const at = this.#parts.clock.monotonic();
      if (before?.seen === seen || (before?.kind === kind && at - before.at < NOTE_MS)) continue;
      if (await this.#note(state)) this.#noted.set(state.id, { seen, kind, at });
    }
    for (const id of this.#noted.keys()) if (!states.some((one) => one.id === id)) this.#noted.delete(id);
  }

  async #note(state: DestinationState): Promise<boolean> {
    const { tables, nodeId } = this.#parts;
    return tables.systemWrite(async (tx) => {
      const destination = await tx.find('log_destinations', { id: state.id });
      // It was deleted meanwhile.
      if (destination === undefined) return false;
      const { delivered, failed, lost, waiting, lagMs, backfilling, deliveredAt, error, mark } = state;
      const values = {
        ...{ delivered, failed, lost, waiting, backfilling, error, lag_ms: lagMs, delivered_at: deliveredAt, mark },
        last_updated_at: await tx.now(),
        // It is here: no other one sends in its place.
        taken_by: null,
        taken_until: null,
      };
      const place = { destination_id: state.id, node: nodeId };
      await this.#forgetHandOver(tx, place, mark);
      if ((await tx.update('log_destination_feeds', place, values)) === 0) {
        await tx.insert('log_destination_feeds', {
          ...place,
          organisation_id: destination.organisation_id,
          handed: null,
          ...values,
        });
      }
      return true;
    });
  }

  /** What others have sent in its place counts until it is past that itself. */
  async #forgetHandOver(
    tx: SystemTx,
    place: { readonly destination_id: string; readonly node: string },
    mark: DestinationState['mark'],
  ): Promise<void> {
    if (!this.#parts.shared || mark === null) return;
    const own = await tx.find('log_destination_feeds', place);
    if (own?.handed == null || mark.since < own.handed.before) return;
    await tx.update('log_destination_feeds', place, { handed: null });
  }
}

function handOverOf({ time, id, before, done }: StoredHandOver): HandedOver | null {
  if (done) return { place: { time: before, id: '' }, before };
  return time === null || id === null ? null : { place: { time, id }, before };
}
