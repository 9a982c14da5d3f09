/**
 * Usage limits on one node: reserves before a call and settles after it, from leases in memory where the limit is far and
 * by the store where it is near (docs/decisions/2026-11-22-budgets.md).
 */
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Closable } from '../../kernel/lifecycle.ts';
import type { Log } from '../../kernel/log.ts';
import type { Tables, TenantContext } from '../../store/ports.ts';
import { type BucketRequest, type FullBucket, type Grants, grantAll } from './grant-or-refuse.ts';
import {
  type ActualUse,
  bucketQueue,
  keyOf,
  type LeaseShare,
  type LimitCharge,
  type LocalBucket,
  NodeUsageReservation,
  newLocalBucket,
  type ReservationNode,
  type UsageReservation,
} from './held-reservation.ts';
import { lineOf, type SettlementJournal, servedLineOf } from './journal.ts';
import { covers, isFresh, keepLeases, partOf, servedPart, takeFrom } from './leases.ts';
import type { LimitSpec } from './limit-spec.ts';
import { unreachable, unrecordable } from './usage-refusal-text.ts';

export type { ActualUse, CostCharge, LimitCharge, UsageLimitState, UsageReservation } from './held-reservation.ts';

export interface Ledger extends Closable {
  /**
   * Reserves for every charge or for none, all of one workspace. Throws `usage_limit_exceeded`. While the store cannot be
   * reached and a lease is spent, `onOutage` decides: `out_of_service` (one such limit is enough), or the request is
   * served and what it used is booked when they are back.
   */
  reserve(
    tenant: TenantContext,
    workspaceId: string,
    charges: readonly LimitCharge[],
  ): UsageReservation | Promise<UsageReservation>;
  /** Renews leases and gives back what is idle or near its limit. By itself every second. */
  maintain(): Promise<void>;
}

export interface LedgerOptions {
  readonly tables: Tables;
  /** Opens the journal, or gives the open one; asked for when a request with a limit comes. */
  readonly journal: () => Promise<SettlementJournal>;
  /** The store's time (`runtime/store-clock.ts`). */
  readonly clock: Clock;
  readonly log: Log;
  /** This run of this process. */
  readonly node: string;
  readonly leaseMs?: number;
  /** How long what others hold of a limit is waited for before it refuses, in milliseconds; 0: not at all. */
  readonly othersMs?: number;
}

const LEASE_MS = 30_000;
const MAINTAIN_MS = 1_000;
/** How long a node refuses from memory before it asks the store again. */
const REFUSE_MS = 250;
/** How long a request whose limits may be passed in an outage waits for the store. */
const SERVE_MS = 1_000;
/** How long a request waits at most for what may come back of a limit that is only reserved. */
const PATIENCE_MS = 100;
/** What ended on other nodes is in the store by then: two and a half times the pause of their shippers. */
const OTHERS_MS = 50;
/** How long a store that could not be reached is left alone. */
const AWAY_MS = 250;
/** Requests whose reservations, or leases whose renewals, share one transaction. */
const BATCH = 256;

/** A request that waits for the store; or one that runs, and whose part grows. */
interface Waiting {
  readonly tenant: TenantContext;
  readonly workspaceId: string;
  readonly charges: readonly LimitCharge[];
  readonly grows: { readonly part: LeaseShare; readonly hold: NodeUsageReservation; readonly by: number } | null;
  /** What it has of leases in memory, by charge, while the store is asked for the rest. */
  held: (LeaseShare | undefined)[];
  /** Once; what comes later is not wanted any more. */
  answered: boolean;
  /** Whether it was refused by what is only reserved, and asks once more. */
  again: boolean;
  readonly resolve: (hold: UsageReservation) => void;
  readonly reject: (error: unknown) => void;
}

export function createLedger(options: LedgerOptions): Ledger {
  return new NodeLedger(options);
}

class NodeLedger implements Ledger, ReservationNode {
  readonly #options: LedgerOptions;
  readonly #leaseMs: number;
  readonly #locals = new Map<string, LocalBucket>();
  /** Requests that wait for the store, by workspace. */
  readonly #lanes = new Map<string, Waiting[]>();
  readonly #running = new Set<Promise<void>>();
  #journal: SettlementJournal | null = null;
  /** Monotonic: the store could not be reached, and is not asked again before. 0: it answered. */
  #awayUntil = 0;
  #probing = false;
  /** Lines written to the journal, and how many of them are in the store as far as is known. */
  #lines = 0;
  #shipped = 0;
  #cancel: (() => void) | null = null;
  #maintaining: Promise<void> | null = null;
  #closed = false;

  constructor(options: LedgerOptions) {
    this.#options = options;
    this.#leaseMs = options.leaseMs ?? LEASE_MS;
  }

  reserve(
    tenant: TenantContext,
    workspaceId: string,
    charges: readonly LimitCharge[],
  ): UsageReservation | Promise<UsageReservation> {
    if (this.#closed) throw new SluiceError('out_of_service', 'Sluice is shutting down; send the request again.');
    if (this.#journal?.failing) throw unrecordable();
    const now = this.#options.clock.now();
    const monotonic = this.#options.clock.monotonic();
    const locals: LocalBucket[] = [];
    let inMemory = this.#journal !== null;
    for (const charge of charges) {
      const local = this.#local(workspaceId, charge.spec);
      local.usedAt = monotonic;
      if (local.refusal !== null && monotonic < local.refusedUntil && isFresh(local, charge, now)) throw local.refusal;
      inMemory &&= covers(local, charge, now, monotonic);
      locals.push(local);
    }
    if (!inMemory) return this.#wait(tenant, workspaceId, charges);
    const parts = charges.map((charge, i) => takeFrom(locals[i] as LocalBucket, charge));
    return new NodeUsageReservation(this, tenant, workspaceId, parts);
  }

  #local(workspaceId: string, spec: LimitSpec): LocalBucket {
    const key = keyOf(workspaceId, spec);
    let local = this.#locals.get(key);
    if (local === undefined) {
      local = newLocalBucket(key);
      this.#locals.set(key, local);
      this.#schedule();
    }
    return local;
  }

  settlePart(hold: NodeUsageReservation, part: LeaseShare, used: ActualUse, done: () => void): void {
    const { local, charge, amount } = part;
    const { spec } = charge;
    const { type } = spec;
    const priced = used.charge?.(spec) ?? used;
    const mine = type === 'cost' ? priced.cost : type === 'tokens' ? used.tokens : used.requests;
    const actual = Math.max(0, Math.min(Number.MAX_SAFE_INTEGER, Math.round(mine)));
    const spent = {
      used: actual,
      carry: type === 'cost' ? priced.carry : 0,
      requests: used.requests,
      unpriced: type === 'cost' ? priced.unpriced : 0,
    };
    if (part.servedAt > 0) {
      const { organisationId } = hold.tenant;
      const { workspaceId } = hold;
      this.#append(
        local,
        servedLineOf({ organisationId, workspaceId, terms: spec, at: part.servedAt, ...spent }),
        done,
      );
      return;
    }
    local.holders -= 1;
    const surplus = Math.max(0, amount - actual);
    const alive = local.lease === part.lease && this.#options.clock.monotonic() < local.leaseUntil;
    const kept = alive && !local.near && !this.#closed && local.available + surplus <= local.most;
    if (kept) local.available += surplus;
    const { bucket, window, lease } = part;
    const { workspaceId } = hold;
    const line = lineOf({ workspaceId, bucket, window, lease, reserved: amount, ...spent, giveBack: !kept });
    this.#append(local, line, done);
  }

  #append(local: LocalBucket, line: string, done: () => void): void {
    this.#lines += 1;
    local.lastLine = this.#lines;
    this.#journal?.append(line, done);
  }

  growPart(hold: NodeUsageReservation, part: LeaseShare): void {
    const { local, charge, lease } = part;
    // A lease that was lost cannot grow: what is used beyond it is added at the end.
    if (lease !== local.lease || this.#options.clock.monotonic() >= local.leaseUntil || part.growing) return;
    const by = part.wanted - part.amount;
    if (local.available >= by) {
      local.available -= by;
      part.amount += by;
      return;
    }
    if (this.#closed || this.#isAway()) return;
    part.growing = true;
    const { tenant, workspaceId } = hold;
    const end = () => {
      part.growing = false;
    };
    const grows = { part, hold, by };
    this.#queue({
      tenant,
      workspaceId,
      charges: [charge],
      grows,
      held: [],
      answered: false,
      again: false,
      resolve: end,
      reject: end,
    });
  }

  async #wait(tenant: TenantContext, workspaceId: string, charges: readonly LimitCharge[]): Promise<UsageReservation> {
    this.#journal ??= await this.#options.journal().catch((error: unknown) => {
      throw unrecordable(error);
    });
    return new Promise((resolve, reject) => {
      let cancel = () => {};
      const waiting: Waiting = {
        tenant,
        workspaceId,
        charges,
        grows: null,
        held: [],
        answered: false,
        again: false,
        resolve: (hold) => {
          cancel();
          resolve(hold);
        },
        reject: (error) => {
          cancel();
          reject(error);
        },
      };
      if (this.#isAway()) {
        this.#without(waiting, 'the store could not be reached a moment ago');
        return;
      }
      if (charges.every(({ spec }) => spec.onOutage === 'serve')) {
        cancel = this.#options.clock.after(SERVE_MS, () => this.#without(waiting, 'the store is slow'));
      }
      this.#queue(waiting);
    });
  }

  /** Whether the store is away as far as is known. Now and then one request tries it. */
  #isAway(): boolean {
    return this.#awayUntil > 0 && (this.#probing || this.#options.clock.monotonic() < this.#awayUntil);
  }

  /** Answers a request that the store cannot be asked about: by leases in memory and by what its limits say of outages. */
  #without(waiting: Waiting, reason: unknown): void {
    const { tenant, workspaceId, charges, answered } = waiting;
    if (answered) return;
    waiting.answered = true;
    this.#letGo(waiting);
    if (waiting.grows !== null) {
      waiting.reject(reason);
      return;
    }
    const now = this.#options.clock.now();
    const monotonic = this.#options.clock.monotonic();
    for (const charge of charges) {
      const local = this.#local(workspaceId, charge.spec);
      // A limit that was used up when the store was last seen still is.
      if (local.refusal !== null && isFresh(local, charge, now)) {
        waiting.reject(local.refusal);
        return;
      }
      if (charge.spec.onOutage !== 'serve' && !covers(local, charge, now, monotonic)) {
        waiting.reject(unreachable(reason));
        return;
      }
    }
    const parts = charges.map((charge) => {
      const local = this.#local(workspaceId, charge.spec);
      return covers(local, charge, now, monotonic) ? takeFrom(local, charge) : servedPart(local, charge, now);
    });
    waiting.resolve(new NodeUsageReservation(this, tenant, workspaceId, parts));
  }

  #queue(waiting: Waiting): void {
    const { workspaceId } = waiting;
    const lane = this.#lanes.get(workspaceId);
    if (lane !== undefined) {
      lane.push(waiting);
      return;
    }
    const fresh = [waiting];
    this.#lanes.set(workspaceId, fresh);
    this.#track(this.#run(workspaceId, fresh));
  }

  async #run(workspaceId: string, lane: Waiting[]): Promise<void> {
    while (lane.length > 0) {
      const batch = lane.splice(0, BATCH).filter(({ answered, grows }) => !answered && grows?.part.ended !== true);
      this.#probing = this.#awayUntil > 0;
      try {
        await this.#ask(batch);
        this.#awayUntil = 0;
      } catch (error) {
        // A store that answers is there for others: what it refuses concerns this workspace.
        const away = !(error instanceof SluiceError) || error.kind === 'unavailable';
        if (away) this.#awayUntil = this.#options.clock.monotonic() + AWAY_MS;
        // Those that came meanwhile would only wait for the same.
        for (const waiting of [...batch, ...lane.splice(0)]) this.#without(waiting, error);
      }
      this.#probing = false;
    }
    this.#lanes.delete(workspaceId);
  }

  /**
   * Takes what leases in memory have room for, and answers a request for which that is all: what came into the lease while
   * it waited, or the other limits of a request of which one is busy. The store is asked for the rest only.
   */
  #fromMemory(waiting: Waiting): readonly LimitCharge[] {
    const { tenant, workspaceId, charges, grows, held } = waiting;
    if (grows !== null) return charges;
    const now = this.#options.clock.now();
    const monotonic = this.#options.clock.monotonic();
    for (const [i, charge] of charges.entries()) {
      const local = this.#local(workspaceId, charge.spec);
      if (held[i] === undefined && covers(local, charge, now, monotonic)) held[i] = takeFrom(local, charge);
    }
    const rest = charges.filter((_, i) => held[i] === undefined);
    if (rest.length === 0) {
      waiting.answered = true;
      waiting.resolve(
        new NodeUsageReservation(
          this,
          tenant,
          workspaceId,
          held.filter((part) => part !== undefined),
        ),
      );
    }
    return rest;
  }

  /** Gives back what a request took from leases in memory before it was refused. */
  #letGo({ held }: Waiting): void {
    for (const part of held.splice(0)) {
      if (part === undefined) continue;
      part.local.holders -= 1;
      if (part.local.lease === part.lease) part.local.available += part.amount;
    }
  }

  /** One transaction for what a batch of one workspace does not have in memory. */
  async #ask(waiters: readonly Waiting[]): Promise<void> {
    const [first] = waiters;
    if (first === undefined) return;
    const { tenant, workspaceId } = first;
    const { tables, clock, node } = this.#options;
    const asked = clock.monotonic();
    const batch = waiters.flatMap((waiting) => {
      const charges = this.#fromMemory(waiting);
      return charges.length === 0 ? [] : [{ waiting, charges, grows: waiting.grows }];
    });
    if (batch.length === 0) return;
    // The unspent part here goes back first: at the limit it is the last that can be had.
    const involved = new Map<string, BucketRequest>();
    for (const { charges } of batch) {
      for (const { spec } of charges) {
        const local = this.#local(workspaceId, spec);
        const known = involved.get(local.key);
        if (known !== undefined) {
          if (spec.at > known.spec.at) known.spec = spec;
          continue;
        }
        const alive = asked < local.leaseUntil;
        const lease = alive ? local.lease : '';
        involved.set(local.key, { key: local.key, local, spec, surplus: alive ? local.available : 0, lease });
        local.available = 0;
      }
    }
    const ordered = [...involved.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
    const place = { organisationId: tenant.organisationId, workspaceId };
    const leases = { clock, node, leaseMs: this.#leaseMs };
    let computed = false;
    let granted: Grants;
    try {
      granted = await tables.write(
        tenant,
        async (tx) => {
          computed = false;
          const result = await grantAll(tx, place, batch, ordered, leases);
          computed = true;
          return result;
        },
        { queue: bucketQueue(workspaceId) },
      );
    } catch (error) {
      for (const { local, surplus, lease } of ordered) {
        // Never at its end, it was not committed. Else that is not known: the lease is left to the sweeper.
        if (computed) local.leaseUntil = 0;
        else if (lease !== '' && local.lease === lease) local.available += surplus;
      }
      throw error;
    }
    for (const [i, { local, spec }] of ordered.entries()) {
      const now = granted.locals[i];
      if (now === undefined) continue;
      // What came free meanwhile belongs to the lease it was taken from.
      if (local.lease !== now.lease) local.available = 0;
      local.bucket = now.bucket;
      local.window = now.window;
      local.lease = now.lease;
      local.leaseUntil = now.leased ? asked + this.#leaseMs : 0;
      local.resetsAt = now.resetsAt ?? Number.POSITIVE_INFINITY;
      local.near = now.near;
      local.most = now.most;
      local.open = now.open;
      local.available += now.ahead;
      local.specAt = spec.at;
      local.refusal = now.refusal;
      local.refusedUntil = clock.monotonic() + REFUSE_MS;
    }
    const patient: Waiting[] = [];
    let forOthers = false;
    for (const [i, { waiting, charges }] of batch.entries()) {
      const taken = granted.taken[i];
      if (taken !== undefined && this.#mayComeBack(waiting, taken)) {
        this.#letGo(waiting);
        patient.push(waiting);
        forOthers ||= taken.byOthers;
      } else this.#answer(waiting, charges, granted.answers[i], granted.seen[i]);
    }
    if (patient.length > 0) this.#track(this.#askAgain(patient, forOthers));
  }

  /**
   * Whether a refusal waits for what ended already and is only not in the store yet: here, or on another node. A caller
   * who sends one request after another holds nothing himself.
   */
  #mayComeBack(waiting: Waiting, { key, byOthers }: FullBucket): boolean {
    const local = this.#locals.get(key);
    if (local === undefined) return false;
    const now = this.#options.clock.monotonic();
    if (waiting.again) {
      if (byOthers) local.hurriedUntil = now + REFUSE_MS;
      return false;
    }
    const { othersMs = OTHERS_MS } = this.#options;
    return local.lastLine > this.#shipped || (byOthers && othersMs > 0 && now >= local.hurriedUntil);
  }

  async #askAgain(patient: readonly Waiting[], forOthers: boolean): Promise<void> {
    const { clock, othersMs = OTHERS_MS } = this.#options;
    const cancels: (() => void)[] = [];
    const pause = (ms: number) => new Promise<void>((resolve) => cancels.push(clock.after(ms, resolve)));
    const others = forOthers && othersMs > 0 ? pause(othersMs) : undefined;
    await Promise.race([Promise.all([this.#ship(), others]), pause(Math.max(PATIENCE_MS, 2 * othersMs))]);
    for (const cancel of cancels) cancel();
    for (const waiting of patient) {
      waiting.again = true;
      this.#queue(waiting);
    }
  }

  /** Brings what was settled here into the store. Resolves also when that was not possible. */
  async #ship(): Promise<void> {
    const upTo = this.#lines;
    try {
      await this.#journal?.ship();
      this.#shipped = Math.max(this.#shipped, upTo);
    } catch (error) {
      this.#options.log.debug('settlements of usage limits could not be shipped', { error: String(error) });
    }
  }

  #track(work: Promise<void>): void {
    const running = work.finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  /** @param asked of its charges those that the store was asked about, with their answers in this order */
  #answer(
    waiting: Waiting,
    asked: readonly LimitCharge[],
    answer: SluiceError | readonly number[] | undefined,
    seen: readonly number[] = [],
  ): void {
    const { tenant, workspaceId, charges, grows, held } = waiting;
    if (grows !== null) {
      const { part, hold } = grows;
      part.growing = false;
      const by = answer === undefined || answer instanceof SluiceError ? 0 : (answer[0] ?? 0);
      if (part.ended || by === 0) {
        part.local.available += by;
        return;
      }
      part.amount += by;
      if (part.wanted > part.amount) this.growPart(hold, part);
      return;
    }
    if (answer === undefined || answer instanceof SluiceError) {
      if (waiting.answered) return;
      waiting.answered = true;
      this.#letGo(waiting);
      waiting.reject(answer ?? new SluiceError('internal', 'A reservation has no answer.'));
      return;
    }
    const granted = new Map<LimitCharge, LeaseShare>();
    for (const [i, charge] of asked.entries()) {
      const local = this.#local(workspaceId, charge.spec);
      const amount = answer[i] ?? 0;
      // A request that was served without them leaves its part to the others.
      if (waiting.answered) local.available += amount;
      else {
        local.holders += 1;
        granted.set(charge, partOf(local, charge, amount));
      }
    }
    if (waiting.answered) return;
    waiting.answered = true;
    const parts = charges.flatMap((charge, i) => held[i] ?? granted.get(charge) ?? []);
    const before = charges.map((charge) => seen[asked.indexOf(charge)]);
    waiting.resolve(new NodeUsageReservation(this, tenant, workspaceId, parts, before));
  }

  maintain(): Promise<void> {
    this.#maintaining ??= this.#keep().finally(() => {
      this.#maintaining = null;
    });
    return this.#maintaining;
  }

  #keep(): Promise<void> {
    return keepLeases(this.#locals, { ...this.#options, leaseMs: this.#leaseMs, giveUp: this.#closed });
  }

  /** A node where nothing is limited does nothing. */
  #schedule(): void {
    if (this.#cancel !== null || this.#closed || this.#locals.size === 0) return;
    this.#cancel = this.#options.clock.after(MAINTAIN_MS, () => {
      void this.maintain().finally(() => {
        this.#cancel = null;
        this.#schedule();
      });
    });
  }

  /** Gives back what is unspent, so that nobody waits for the leases to end. What still runs keeps what it has. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancel?.();
    while (this.#running.size > 0) await Promise.all(this.#running);
    await this.#maintaining;
    await this.#keep();
  }
}
