/**
 * Usage limits on one node: reserves before a call and settles after it, from leases in memory where the limit is far and
 * by the books where it is near (docs/decisions/2026-11-22-budgets.md).
 */
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { Closable } from '../../kernel/lifecycle.ts';
import type { Log } from '../../kernel/log.ts';
import type { Tables, TenantContext, TenantTx } from '../../store/ports.ts';
import { Book } from './book.ts';
import { lineOf, type SettlementJournal } from './journal.ts';
import { shownAmount, type Terms } from './terms.ts';

export interface Demand {
  readonly terms: Terms;
  /** Estimate, in the unit of the limit. */
  readonly amount: number;
  /** Whether the request cannot use more than `amount`. One that can is alone in the last hundredth of a limit. */
  readonly bounded: boolean;
}

/** What a request used in the end; everything 0 releases what was reserved. */
export interface Used {
  /** Micro-dollars, and picodollars beside them. */
  readonly cost: number;
  readonly carry: number;
  readonly tokens: number;
  /** 1 when it was accepted. */
  readonly requests: number;
  /** 1 when it used what has no known price. */
  readonly unpriced: number;
}

export interface Hold {
  /** Once; later calls do nothing. `done` runs when the process may be killed without losing it. */
  settle(used: Used, done: () => void): void;
}

export interface Ledger extends Closable {
  /**
   * Reserves for every demand or for none, all of one workspace. Throws `usage_limit_exceeded`, or `gateway_unavailable`
   * while the books cannot be reached and no lease is left.
   */
  reserve(tenant: TenantContext, workspaceId: string, demands: readonly Demand[]): Hold | Promise<Hold>;
  /** Renews leases and gives back what is idle or near its limit. By itself every second. */
  maintain(): Promise<void>;
}

export interface LedgerOptions {
  readonly tables: Tables;
  readonly journal: SettlementJournal;
  /** The store's time (`runtime/store-clock.ts`). */
  readonly clock: Clock;
  readonly log: Log;
  /** This run of this process. */
  readonly node: string;
  readonly leaseMs?: number;
}

const LEASE_MS = 30_000;
const MAINTAIN_MS = 1_000;
/** Leases are renewed when this part of their time is over. */
const RENEW = 1 / 3;
const IDLE_MS = 1_000;
const FORGET_MS = 60_000;
/** How long a node refuses from memory before it asks the books again. */
const REFUSE_MS = 250;
/** Requests whose reservations share one transaction. */
const BATCH = 256;
/** A lease drawn ahead is this part of the limit; none is drawn once `NEAR` of the limit is committed. */
const AHEAD = 1 / 256;
const NEAR = 0.9;

/** What this node knows of a bucket. */
interface Local {
  readonly key: string;
  bucket: string;
  window: number;
  lease: string;
  /** Milliseconds, monotonic: when others may take the lease for dead. 0: there is none. */
  leaseUntil: number;
  resetsAt: number;
  /** Of the lease, what no request has. */
  available: number;
  /** Largest `available` that is kept. */
  most: number;
  /** Requests that hold something of the lease. */
  holders: number;
  near: boolean;
  termsAt: number;
  usedAt: number;
  refusedUntil: number;
  refusal: SluiceError | null;
}

interface Part {
  readonly demand: Demand;
  readonly local: Local;
  readonly lease: string;
  readonly bucket: string;
  readonly window: number;
  readonly amount: number;
}

interface Waiting {
  readonly tenant: TenantContext;
  readonly workspaceId: string;
  readonly demands: readonly Demand[];
  readonly resolve: (hold: Hold) => void;
  readonly reject: (error: unknown) => void;
}

export function keyOf(workspaceId: string, { ownerKind, ownerId, bucketKey }: Terms): string {
  return `${workspaceId} ${ownerKind} ${ownerId} ${bucketKey}`;
}

/** Writes that change the books of one workspace wait for each other under this name. */
export function booksQueue(workspaceId: string): string {
  return `usage ${workspaceId}`;
}

const NAMES: Readonly<Record<Terms['ownerKind'], string>> = {
  key: 'API key',
  workspace: 'workspace',
  provider: 'provider',
  'virtual-key': 'virtual key',
  integration: 'integration',
  policy: 'policy',
  token: 'token',
};

function exceeded(
  terms: Terms,
  row: { used: number; credit_limit: number; resets_at: number | null; value_key: string },
) {
  const { type } = terms;
  const amount = (value: number) =>
    type === 'cost'
      ? `$${shownAmount(type, value)}`
      : `${shownAmount(type, value)} ${type === 'tokens' ? 'tokens' : 'requests'}`;
  const whom = terms.ownerKind === 'policy' ? ` for ${row.value_key}` : '';
  const reset =
    row.resets_at === null ? 'It does not reset by itself.' : `It resets at ${new Date(row.resets_at).toISOString()}.`;
  const left = Math.max(0, row.credit_limit - row.used);
  const state =
    left === 0
      ? `is exhausted: ${amount(row.used)} of ${amount(row.credit_limit)} used.`
      : `is taken up: ${amount(row.used)} of ${amount(row.credit_limit)} used, the rest is reserved by requests that still run.`;
  return new SluiceError(
    'usage_limit_exceeded',
    `The usage limit of ${NAMES[terms.ownerKind]} ${terms.label}${whom} ${state} ${reset}`,
  );
}

export function createLedger(options: LedgerOptions): Ledger {
  return new NodeLedger(options);
}

class NodeLedger implements Ledger {
  readonly #options: LedgerOptions;
  readonly #leaseMs: number;
  readonly #locals = new Map<string, Local>();
  /** Requests that wait for the books, by workspace. */
  readonly #lanes = new Map<string, Waiting[]>();
  #cancel: () => void = () => {};
  #maintaining: Promise<void> | null = null;
  #closed = false;

  constructor(options: LedgerOptions) {
    this.#options = options;
    this.#leaseMs = options.leaseMs ?? LEASE_MS;
    this.#schedule();
  }

  reserve(tenant: TenantContext, workspaceId: string, demands: readonly Demand[]): Hold | Promise<Hold> {
    if (this.#options.journal.failing) {
      throw new SluiceError(
        'gateway_unavailable',
        'Usage cannot be recorded at the moment, and this request has a usage limit.',
      );
    }
    const now = this.#options.clock.now();
    const monotonic = this.#options.clock.monotonic();
    const locals: Local[] = [];
    let inMemory = true;
    for (const demand of demands) {
      const local = this.#local(workspaceId, demand.terms);
      local.usedAt = monotonic;
      const { terms, amount } = demand;
      const fresh = terms.at === local.termsAt && now < local.resetsAt;
      if (fresh && local.refusal !== null && monotonic < local.refusedUntil) throw local.refusal;
      // What may use more than it says asks the books where the limit is near.
      inMemory &&=
        fresh &&
        monotonic < local.leaseUntil &&
        local.available >= Math.max(amount, 1) &&
        !(local.near && !demand.bounded);
      locals.push(local);
    }
    if (!inMemory) return this.#wait(tenant, workspaceId, demands);
    return this.#hold(
      demands.map((demand, i) => {
        const local = locals[i] as Local;
        local.available -= demand.amount;
        local.holders += 1;
        return { demand, local, lease: local.lease, bucket: local.bucket, window: local.window, amount: demand.amount };
      }),
    );
  }

  #local(workspaceId: string, terms: Terms): Local {
    const key = keyOf(workspaceId, terms);
    let local = this.#locals.get(key);
    if (local === undefined) {
      local = {
        key,
        bucket: '',
        window: 0,
        lease: '',
        leaseUntil: 0,
        resetsAt: 0,
        available: 0,
        most: 0,
        holders: 0,
        near: false,
        termsAt: -1,
        usedAt: 0,
        refusedUntil: 0,
        refusal: null,
      };
      this.#locals.set(key, local);
    }
    return local;
  }

  #hold(parts: readonly Part[]): Hold {
    let settled = false;
    return {
      settle: (used, done) => {
        if (settled) return done();
        settled = true;
        let left = parts.length;
        const one = () => {
          left -= 1;
          if (left === 0) done();
        };
        for (const part of parts) this.#settle(part, used, one);
      },
    };
  }

  #settle(part: Part, used: Used, done: () => void): void {
    const { local, demand, amount } = part;
    const { type } = demand.terms;
    const mine = type === 'cost' ? used.cost : type === 'tokens' ? used.tokens : used.requests;
    const actual = Math.max(0, Math.min(Number.MAX_SAFE_INTEGER, Math.round(mine)));
    local.holders -= 1;
    const surplus = Math.max(0, amount - actual);
    const alive = local.lease === part.lease && this.#options.clock.monotonic() < local.leaseUntil;
    const kept = alive && !local.near && local.available + surplus <= local.most;
    if (kept) local.available += surplus;
    const line = lineOf({
      bucket: part.bucket,
      window: part.window,
      lease: part.lease,
      reserved: amount,
      used: actual,
      carry: type === 'cost' ? used.carry : 0,
      requests: used.requests,
      unpriced: type === 'cost' ? used.unpriced : 0,
      giveBack: !kept,
    });
    this.#options.journal.append(line, done);
  }

  #wait(tenant: TenantContext, workspaceId: string, demands: readonly Demand[]): Promise<Hold> {
    return new Promise((resolve, reject) => {
      const waiting = { tenant, workspaceId, demands, resolve, reject };
      const lane = this.#lanes.get(workspaceId);
      if (lane !== undefined) {
        lane.push(waiting);
        return;
      }
      const fresh = [waiting];
      this.#lanes.set(workspaceId, fresh);
      void this.#run(workspaceId, fresh);
    });
  }

  async #run(workspaceId: string, lane: Waiting[]): Promise<void> {
    while (lane.length > 0) {
      const batch = lane.splice(0, BATCH);
      try {
        await this.#ask(batch);
      } catch (error) {
        const unavailable = new SluiceError(
          'gateway_unavailable',
          'The usage limits of this request cannot be read at the moment; try again in a few seconds.',
          { detail: error },
        );
        for (const waiting of batch) waiting.reject(unavailable);
      }
    }
    this.#lanes.delete(workspaceId);
  }

  /** One transaction for a batch of one workspace. */
  async #ask(batch: readonly Waiting[]): Promise<void> {
    const [first] = batch;
    if (first === undefined) return;
    const { tenant, workspaceId } = first;
    const { clock } = this.#options;
    const asked = clock.monotonic();
    // What is unspent here goes back first: at the limit it is the last that can be had.
    const involved = new Map<string, { local: Local; terms: Terms; surplus: number; lease: string }>();
    for (const waiting of batch) {
      for (const { terms } of waiting.demands) {
        const local = this.#local(workspaceId, terms);
        const known = involved.get(local.key);
        if (known !== undefined) {
          if (terms.at > known.terms.at) known.terms = terms;
          continue;
        }
        const alive = asked < local.leaseUntil;
        involved.set(local.key, {
          local,
          terms,
          surplus: alive ? local.available : 0,
          lease: alive ? local.lease : '',
        });
        local.available = 0;
      }
    }
    const ordered = [...involved.values()].sort((a, b) => (a.local.key < b.local.key ? -1 : 1));
    let granted: Granted;
    try {
      granted = await this.#options.tables.write(tenant, (tx) => this.#grant(tx, first, batch, ordered), {
        queue: booksQueue(workspaceId),
      });
    } catch (error) {
      // Whether it was committed is not known: the lease is left to the sweeper, which gives back what it holds.
      for (const { local } of ordered) local.leaseUntil = 0;
      throw error;
    }
    for (const [i, { local, terms }] of ordered.entries()) {
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
      local.available += now.ahead;
      local.termsAt = terms.at;
      local.refusal = now.refusal;
      local.refusedUntil = clock.monotonic() + REFUSE_MS;
    }
    for (const [i, waiting] of batch.entries()) {
      const answer = granted.answers[i];
      if (answer === undefined || answer instanceof SluiceError) {
        waiting.reject(answer ?? new SluiceError('internal', 'A reservation has no answer.'));
        continue;
      }
      waiting.resolve(
        this.#hold(
          waiting.demands.map((demand, j) => {
            const local = this.#local(workspaceId, demand.terms);
            local.holders += 1;
            const { lease, bucket, window } = local;
            return { demand, local, lease, bucket, window, amount: answer[j] ?? 0 };
          }),
        ),
      );
    }
  }

  /** Only reads, computes and writes: it may run again. */
  async #grant(
    tx: TenantTx,
    { tenant, workspaceId }: Waiting,
    batch: readonly Waiting[],
    ordered: readonly { local: Local; terms: Terms; surplus: number; lease: string }[],
  ): Promise<Granted> {
    const { clock, node } = this.#options;
    const now = await tx.now();
    const books = new Map<string, Open>();
    for (const { local, terms, surplus, lease } of ordered) {
      const book = await Book.open(tx, { organisationId: tenant.organisationId, workspaceId }, terms, clock, now);
      const same = lease !== '' && book.row.window_no === local.window;
      if (same) await book.release(tx, lease, surplus);
      books.set(local.key, { book, terms, lease: same ? lease : uuidv7(clock), same, wanted: 0 });
    }
    const answers = batch.map((waiting): SluiceError | number[] => {
      const mine = waiting.demands.map(({ terms }) => books.get(keyOf(workspaceId, terms)));
      for (const one of mine) {
        if (one !== undefined && one.book.committed + one.wanted >= one.book.row.credit_limit) {
          return exceeded(one.terms, one.book.row);
        }
      }
      return waiting.demands.map((demand, i) => {
        const one = mine[i];
        if (one === undefined) return 0;
        const left = one.book.row.credit_limit - one.book.committed - one.wanted;
        const alone = !demand.bounded && left <= one.book.row.credit_limit / 100;
        const amount = alone ? Math.max(demand.amount, left) : demand.amount;
        one.wanted += amount;
        return amount;
      });
    });
    const locals: Granted['locals'][number][] = [];
    for (const { local } of ordered) {
      const open = books.get(local.key);
      if (open === undefined) continue;
      const { book, lease, same, wanted, terms } = open;
      const limit = book.row.credit_limit;
      const near = book.committed + wanted > limit * NEAR;
      const most = Math.floor(limit * AHEAD);
      const ahead = near ? 0 : most;
      const leased = same || wanted + ahead > 0;
      const held = { id: lease, node, expiresAt: now + this.#leaseMs };
      if (leased) await book.grant(tx, held, wanted + ahead, now);
      // Only a limit that is used up is refused from memory: what others have reserved may come back any time.
      const refusal = book.row.used >= limit ? exceeded(terms, book.row) : null;
      await book.close(tx, now);
      const { id: bucket, window_no: window, resets_at: resetsAt } = book.row;
      locals.push({ bucket, window, lease, leased, resetsAt, near, most, ahead, refusal });
    }
    return { answers, locals };
  }

  maintain(): Promise<void> {
    this.#maintaining ??= this.#keep().finally(() => {
      this.#maintaining = null;
    });
    return this.#maintaining;
  }

  async #keep(): Promise<void> {
    const { clock, log } = this.#options;
    const now = clock.monotonic();
    const byWorkspace = new Map<string, Local[]>();
    for (const local of this.#locals.values()) {
      const idle = now - local.usedAt;
      if (local.available === 0 && local.holders === 0) {
        if (idle > FORGET_MS) this.#locals.delete(local.key);
        continue;
      }
      if (now >= local.leaseUntil) {
        local.available = 0;
        continue;
      }
      const workspaceId = local.key.slice(0, local.key.indexOf(' '));
      const list = byWorkspace.get(workspaceId);
      if (list === undefined) byWorkspace.set(workspaceId, [local]);
      else list.push(local);
    }
    for (const locals of byWorkspace.values()) {
      await this.#renew(locals, now).catch((error: unknown) =>
        log.warn('leases of usage limits could not be renewed', { error: String(error) }),
      );
    }
  }

  async #renew(locals: readonly Local[], now: number): Promise<void> {
    const { tables, log } = this.#options;
    const ids = locals.map((local) => local.bucket);
    const rows = new Map(
      (await tables.systemRead((tx) => tx.list('usage_buckets', { where: { id: { in: ids } } }))).map((row) => [
        row.id,
        row,
      ]),
    );
    for (const local of locals) {
      const row = rows.get(local.bucket);
      if (row === undefined || row.window_no !== local.window) {
        // The window has turned, or was reset by hand: the old lease is worth nothing.
        local.available = 0;
        local.leaseUntil = 0;
        continue;
      }
      const near = row.used + row.reserved > row.credit_limit * NEAR;
      const idle = now - local.usedAt > IDLE_MS;
      const back = near || idle || this.#closed ? local.available : 0;
      const due = local.leaseUntil - now < this.#leaseMs * (1 - RENEW);
      local.near ||= near;
      if (back === 0 && !due) continue;
      local.available -= back;
      const { lease } = local;
      const asked = this.#options.clock.monotonic();
      const alive = await tables
        .systemWrite(
          async (tx) => {
            const time = await tx.now();
            const held = await tx.find('reservations', { id: lease });
            if (held === undefined) return false;
            await tx.update('reservations', { id: lease }, { expires_at: time + this.#leaseMs });
            if (back === 0) return true;
            const bucket = await tx.find('usage_buckets', { id: held.bucket_id });
            if (bucket === undefined || bucket.window_no !== held.window_no) return false;
            const book = Book.of(bucket, this.#options.clock);
            await book.release(tx, lease, back);
            await book.close(tx, time);
            return true;
          },
          { queue: booksQueue(row.workspace_id) },
        )
        .catch((error: unknown) => {
          log.warn('a lease of a usage limit could not be renewed', { error: String(error) });
          return false;
        });
      if (local.lease !== lease) continue;
      if (alive) local.leaseUntil = asked + this.#leaseMs;
      else {
        local.available = 0;
        local.leaseUntil = 0;
      }
    }
  }

  #schedule(): void {
    this.#cancel = this.#options.clock.after(MAINTAIN_MS, () => {
      void this.maintain().finally(() => {
        if (!this.#closed) this.#schedule();
      });
    });
  }

  /** Gives back what is unspent, so that nobody waits for the leases to end. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancel();
    await this.#maintaining;
    await this.#keep();
  }
}

interface Granted {
  /** What each request has, per demand; or why not. */
  readonly answers: readonly (SluiceError | number[])[];
  readonly locals: readonly {
    readonly bucket: string;
    readonly window: number;
    readonly lease: string;
    readonly leased: boolean;
    readonly resetsAt: number | null;
    readonly near: boolean;
    readonly most: number;
    readonly ahead: number;
    readonly refusal: SluiceError | null;
  }[];
}

/** A bucket in the transaction of a batch. */
interface Open {
  readonly book: Book;
  readonly terms: Terms;
  readonly lease: string;
  /** Whether the lease is the one the node had. */
  readonly same: boolean;
  /** What the requests of the batch take, all together. */
  wanted: number;
}
