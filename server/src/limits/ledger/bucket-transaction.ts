/**
 * One bucket within one transaction: every change of its counters is a movement between two of its accounts, written as
 * ledger entries when it is closed (docs/decisions/2026-11-22-budgets.md). Nothing else changes `usage_buckets`.
 */
import type { Clock } from '../../kernel/clock.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { TenantTx, Where } from '../../store/ports.ts';
import type { Row, TableName } from '../../store/schema.ts';
import { addUsed, admits, burnAt, carryOf } from './bucket-math.ts';
import { firstReset, type LimitSpec, MAX_UNITS, nextReset } from './limit-spec.ts';

/** What a bucket needs of a transaction, a tenant's or the system's. */
export type BucketTx = Pick<TenantTx, 'find' | 'list' | 'insert' | 'update' | 'remove' | 'now'>;

type Mutable<T> = { -readonly [K in keyof T]: T[K] };
type Bucket = Mutable<Row<'usage_buckets'>>;
type Entry = Mutable<Row<'ledger_entries'>>;
type Held = { readonly row: Mutable<Row<'reservations'>>; readonly stored: boolean };
type Account = Entry['from_account'];

/** What a request used, and what it had reserved. */
export interface Settled {
  readonly window: number;
  readonly lease: string;
  readonly reserved: number;
  readonly used: number;
  /** Picodollars beside `used`, may be negative. */
  readonly carry: number;
  readonly requests: number;
  readonly unpriced: number;
  /** What was reserved and not used goes back to the bucket, not to the lease. */
  readonly giveBack: boolean;
}

const PICO = 1_000_000;
/** Windows before the present one whose entries are kept. */
const KEPT_WINDOWS = 2;
/** So many entries of one window become one for each account. */
const COMPACT_AT = 1_000;

export type Known<N extends TableName> = ReadonlyMap<string, Row<N>>;
const NONE: Known<'reservations'> = new Map();

/** Rows by their id, read at once. */
export async function byId<N extends 'usage_buckets' | 'reservations'>(
  tx: BucketTx,
  table: N,
  ids: readonly string[],
): Promise<Known<N>> {
  if (ids.length === 0) return new Map();
  const rows = await tx.list(table, { where: { id: { in: ids } } as Where<N> });
  return new Map(rows.map((row) => [row.id, row]));
}

export class BucketTransaction {
  readonly #row: Bucket;
  readonly #clock: Clock;
  readonly #entries = new Map<string, Entry>();
  readonly #alerts: Row<'usage_alerts'>['kind'][] = [];
  /** Leases touched here, by id. A missing one is null. */
  readonly #leases = new Map<string, Held | null>();
  /** Leases that were read already. */
  readonly #known: Known<'reservations'>;
  #cleared: Row<'usage_alerts'>['kind'][] = [];
  #turned = false;
  /** Used since it was opened. */
  #spent = 0;
  #dirty: boolean;
  readonly #fresh: boolean;
  readonly #wasStatus: Bucket['status'];

  private constructor(row: Bucket, clock: Clock, fresh: boolean, leases: Known<'reservations'> = NONE) {
    this.#row = { ...row };
    this.#known = leases;
    this.#clock = clock;
    this.#fresh = fresh;
    this.#dirty = fresh;
    this.#wasStatus = row.status;
  }

  /** The bucket of `spec`, made when there is none, turned when its window is over, with the newest spec. */
  static async open(
    tx: BucketTx,
    place: { readonly organisationId: string; readonly workspaceId: string },
    spec: LimitSpec,
    clock: Clock,
    now: number,
    known?: { readonly row: Bucket | undefined; readonly leases: Known<'reservations'> },
  ): Promise<BucketTransaction> {
    const own = known?.row !== undefined && known.row.owner_id === spec.ownerId ? known.row : undefined;
    const row =
      own ??
      (await tx.find('usage_buckets', {
        workspace_id: place.workspaceId,
        owner_kind: spec.ownerKind,
        owner_id: spec.ownerId,
        bucket_key: spec.bucketKey,
      }));
    if (row === undefined) {
      const transaction = new BucketTransaction(newBucket(place, spec, clock, now), clock, true);
      transaction.#judge();
      return transaction;
    }
    const transaction = BucketTransaction.of(row, clock, known?.leases);
    transaction.turn(now);
    transaction.adopt(spec, now);
    return transaction;
  }

  /** `leases` spares reading each of them alone. */
  static of(row: Bucket, clock: Clock, leases?: Known<'reservations'>): BucketTransaction {
    return new BucketTransaction(row, clock, false, leases);
  }

  get id(): string {
    return this.#row.id;
  }

  /** Whether it is not stored yet. */
  get fresh(): boolean {
    return this.#fresh;
  }

  get row(): Readonly<Bucket> {
    return this.#row;
  }

  /** What is spoken for: at the limit nothing more is admitted. */
  get committed(): number {
    return this.#row.used + this.#row.reserved;
  }

  /** What a lease that was touched here holds. */
  heldBy(leaseId: string): number {
    return this.#leases.get(leaseId)?.row.amount ?? 0;
  }

  get admits(): boolean {
    return admits(this.committed, this.#row.credit_limit);
  }

  /** Begins the next window when this one is over. True when it did. */
  turn(now: number): boolean {
    const { resets_at: due, period } = this.#row;
    if (due === null || due > now) return false;
    this.#begin(due);
    this.#row.resets_at = nextReset(period, due, now);
    return true;
  }

  /** Begins a new window by hand; the day of the next turn stays. */
  reset(now: number): void {
    this.#begin(now);
  }

  /** The owner has no such limit any more: nothing is refused, and one that comes back begins at nothing. */
  retire(now: number): void {
    const row = this.#row;
    row.credit_limit = MAX_UNITS;
    row.alert_threshold = null;
    row.period = null;
    row.resets_at = null;
    row.terms_at = Math.max(row.terms_at + 1, now);
    this.#begin(now);
  }

  #begin(at: number): void {
    const row = this.#row;
    if (row.reserved > 0) this.#move('expiry', 'reserved', 'open', row.reserved);
    row.window_no += 1;
    row.used = 0;
    row.carry = 0;
    row.reserved = 0;
    row.unpriced = 0;
    row.last_reset_at = at;
    row.threshold_alerted = false;
    row.exhausted_alerted = false;
    row.unpriced_alerted = false;
    row.entry_count = 0;
    this.#leases.clear();
    this.#turned = true;
    this.#dirty = true;
    this.#judge();
  }

  /** Takes a spec that is newer than the one it has. */
  adopt(spec: LimitSpec, now: number): void {
    const row = this.#row;
    if (spec.at <= row.terms_at) return;
    this.#dirty = true;
    row.terms_at = spec.at;
    row.label = spec.label;
    const raised = spec.limit > row.credit_limit;
    const quieter = spec.alert === null || (row.alert_threshold !== null && spec.alert > row.alert_threshold);
    row.credit_limit = spec.limit;
    row.alert_threshold = spec.alert;
    if (raised) this.#quiet('exhausted');
    if (raised || quieter) this.#quiet('threshold');
    if (row.period !== spec.period) {
      row.period = spec.period;
      row.resets_at = firstReset(spec, now);
    } else if (spec.resetsAt !== null && spec.resetsAt > now) {
      row.resets_at = spec.resetsAt;
    }
    this.#judge();
  }

  #quiet(kind: Row<'usage_alerts'>['kind']): void {
    const flag = `${kind}_alerted` as const;
    if (!this.#row[flag]) return;
    this.#row[flag] = false;
    this.#cleared.push(kind);
  }

  /** Reserves for a lease. */
  async grant(tx: BucketTx, lease: { id: string; node: string; expiresAt: number }, amount: number, now: number) {
    let held = await this.#lease(tx, lease.id);
    if (held === null) {
      const { organisation_id, workspace_id, window_no } = this.#row;
      held = {
        row: {
          id: lease.id,
          organisation_id,
          workspace_id,
          bucket_id: this.id,
          window_no,
          node: lease.node,
          amount: 0,
          expires_at: lease.expiresAt,
          created_at: now,
        },
        stored: false,
      };
      this.#leases.set(lease.id, held);
    }
    held.row.expires_at = lease.expiresAt;
    this.#dirty = true;
    held.row.amount += amount;
    this.#row.reserved += amount;
    this.#move('grant', 'open', 'reserved', amount);
  }

  /** Puts up to `amount` of a lease back. */
  async release(tx: BucketTx, leaseId: string, amount: number, kind: 'release' | 'expiry' = 'release'): Promise<void> {
    const held = await this.#lease(tx, leaseId);
    const given = Math.min(amount, held?.row.amount ?? 0, this.#row.reserved);
    if (held === null || given <= 0) return;
    held.row.amount -= given;
    this.#row.reserved -= given;
    this.#move(kind, 'reserved', 'open', given);
  }

  /** Books what a request used, in the window it was admitted in. */
  async settle(tx: BucketTx, done: Settled): Promise<void> {
    const row = this.#row;
    const extra = { carry: carryOf(done), requests: done.requests, unpriced: done.unpriced };
    if (done.window !== row.window_no) {
      this.#move('settle', 'open', 'used', done.used, extra, done.window);
      return;
    }
    const held = await this.#lease(tx, done.lease);
    const mine = held === null ? 0 : Math.min(done.reserved, held.row.amount, row.reserved);
    const paid = Math.min(done.used, mine);
    if (held !== null && mine > 0) {
      held.row.amount -= paid;
      row.reserved -= paid;
    }
    this.#move('settle', 'reserved', 'used', paid, paid === done.used ? extra : undefined);
    if (paid < done.used) this.#move('settle', 'open', 'used', done.used - paid, extra);
    else if (paid === 0) this.#note(extra);
    addUsed(row, done);
    this.#spent += done.used;
    row.unpriced += done.unpriced;
    if (done.unpriced > 0) this.#alert('unpriced');
    this.#dirty = true;
    if (done.giveBack && mine > paid) await this.release(tx, done.lease, mine - paid);
    this.#judge();
  }

  async #lease(tx: BucketTx, id: string) {
    let held = this.#leases.get(id);
    if (held === undefined) {
      const row = this.#known.get(id) ?? (await tx.find('reservations', { id }));
      held = row === undefined || row.window_no !== this.#row.window_no ? null : { row: { ...row }, stored: true };
      this.#leases.set(id, held);
    }
    return held;
  }

  /** Whether it is exhausted, and whom that concerns. */
  #judge(): void {
    const row = this.#row;
    const status = row.used >= row.credit_limit ? 'exhausted' : 'active';
    if (status !== row.status) {
      row.status = status;
      this.#dirty = true;
    }
    if (status === 'exhausted') this.#alert('exhausted');
    if (row.alert_threshold !== null && row.used >= row.alert_threshold) this.#alert('threshold');
  }

  #alert(kind: Row<'usage_alerts'>['kind']): void {
    const flag = `${kind}_alerted` as const;
    if (this.#row[flag] || (this.#row.used === 0 && kind === 'exhausted')) return;
    this.#row[flag] = true;
    this.#alerts.push(kind);
    this.#dirty = true;
  }

  /** A request that used nothing that could be moved. */
  #note(extra: Pick<Entry, 'carry' | 'requests' | 'unpriced'>): void {
    this.#entry('settle', 'open', 'used', this.#row.window_no, 0, extra);
  }

  #move(
    kind: Entry['kind'],
    from: Account,
    to: Account,
    amount: number,
    extra: Pick<Entry, 'carry' | 'requests' | 'unpriced'> = { carry: 0, requests: 0, unpriced: 0 },
    window = this.#row.window_no,
  ): void {
    if (amount === 0 && window === this.#row.window_no) return;
    this.#entry(kind, from, to, window, amount, extra);
  }

  /** Movements of one kind are one entry. */
  #entry(
    kind: Entry['kind'],
    from: Account,
    to: Account,
    window: number,
    amount: number,
    extra: Pick<Entry, 'carry' | 'requests' | 'unpriced'>,
  ): void {
    this.#dirty = true;
    const key = `${kind} ${from} ${to} ${window}`;
    const entry = this.#entries.get(key);
    if (entry !== undefined) {
      entry.amount += amount;
      entry.carry += extra.carry;
      entry.requests += extra.requests;
      entry.unpriced += extra.unpriced;
      return;
    }
    const { organisation_id, workspace_id, id } = this.#row;
    this.#entries.set(key, {
      id: uuidv7(this.#clock),
      organisation_id,
      workspace_id,
      bucket_id: id,
      window_no: window,
      kind,
      from_account: from,
      to_account: to,
      amount,
      ...extra,
      created_at: 0,
    });
  }

  /** What windows that are over leave behind. */
  async #forget(tx: BucketTx): Promise<void> {
    const { id: bucket_id, window_no } = this.#row;
    await tx.remove('reservations', { bucket_id, window_no: { lt: window_no } });
    const old = window_no - KEPT_WINDOWS;
    if (old < 2) return;
    await tx.remove('ledger_entries', { bucket_id, window_no: { lt: old } });
    await tx.remove('usage_alerts', { bucket_id, window_no: { lt: old }, done_at: { gt: 0 } });
  }

  /** Whether its entries are so many that `compact` is due. */
  get full(): boolean {
    return this.#row.entry_count >= COMPACT_AT;
  }

  /** Draws the entries of this window together: what they say of the counters stays as it is. */
  async compact(tx: BucketTx): Promise<void> {
    const { id, window_no } = this.#row;
    const entries = await tx.list('ledger_entries', { where: { bucket_id: id, window_no } });
    const { used, reserved, ...extra } = totals(entries);
    await tx.remove('ledger_entries', { bucket_id: id, window_no });
    this.#row.entry_count = 0;
    if (reserved !== 0) this.#move('opening', 'open', 'reserved', reserved);
    this.#entry('opening', 'open', 'used', window_no, used, extra);
  }

  /** What went back and was granted again in one transaction did not move. */
  #net(): void {
    const window = this.#row.window_no;
    const grant = this.#entries.get(`grant open reserved ${window}`);
    const release = this.#entries.get(`release reserved open ${window}`);
    if (grant === undefined || release === undefined) return;
    const both = Math.min(grant.amount, release.amount);
    grant.amount -= both;
    release.amount -= both;
    for (const [key, entry] of this.#entries) {
      if ((entry === grant || entry === release) && entry.amount === 0) this.#entries.delete(key);
    }
  }

  /** Writes what was changed. */
  async close(tx: BucketTx, now: number): Promise<void> {
    if (!this.#dirty) return;
    const row = this.#row;
    this.#net();
    for (const { window_no: window } of this.#entries.values()) if (window === row.window_no) row.entry_count += 1;
    // A turn alone is no use: what nobody uses any more is found by this.
    if (this.#entries.size > 0 || !this.#turned) row.last_updated_at = now;
    if (this.#spent > 0) {
      row.burn = burnAt(row, now) + this.#spent;
      row.burn_at = now;
    }
    if (this.#fresh) await tx.insert('usage_buckets', row);
    else {
      // What other rows refer to stays out: SQLite would look for them all, as if it changed.
      const { id, organisation_id: _of, workspace_id: _in, owner_kind: _kind, owner_id: _owner, ...patch } = row;
      await tx.update('usage_buckets', { id }, patch);
    }
    if (this.#turned) await this.#forget(tx);
    for (const held of this.#leases.values()) {
      if (held === null) continue;
      const { id, amount, expires_at } = held.row;
      if (!held.stored) await tx.insert('reservations', held.row);
      else await tx.update('reservations', { id }, { amount, expires_at });
    }
    for (const entry of this.#entries.values()) await tx.insert('ledger_entries', { ...entry, created_at: now });
    for (const kind of this.#cleared) {
      await tx.remove('usage_alerts', { bucket_id: row.id, window_no: row.window_no, kind });
    }
    for (const kind of new Set(this.#alerts)) {
      const alert = { bucket_id: row.id, window_no: row.window_no, kind };
      const { organisation_id, workspace_id, used } = row;
      await tx.insert('usage_alerts', {
        organisation_id,
        workspace_id,
        ...alert,
        used,
        created_at: now,
        done_at: null,
      });
    }
    if (row.status !== this.#wasStatus) await markOwner(tx, row);
  }
}

function newBucket(
  place: { readonly organisationId: string; readonly workspaceId: string },
  spec: LimitSpec,
  clock: Clock,
  now: number,
): Bucket {
  return {
    id: uuidv7(clock),
    organisation_id: place.organisationId,
    workspace_id: place.workspaceId,
    owner_kind: spec.ownerKind,
    owner_id: spec.ownerId,
    bucket_key: spec.bucketKey,
    value_key: spec.valueKey,
    label: spec.label,
    type: spec.type,
    credit_limit: spec.limit,
    alert_threshold: spec.alert,
    terms_at: spec.at,
    period: spec.period,
    window_no: 1,
    used: 0,
    carry: 0,
    reserved: 0,
    unpriced: 0,
    resets_at: firstReset(spec, now),
    last_reset_at: null,
    status: 'active',
    threshold_alerted: false,
    exhausted_alerted: false,
    unpriced_alerted: false,
    burn: 0,
    burn_at: now,
    entry_count: 0,
    created_at: now,
    last_updated_at: now,
  };
}

/** Keys, providers and virtual keys are listed by their status, so their row holds it too. */
async function markOwner(tx: BucketTx, bucket: Bucket): Promise<void> {
  const { owner_kind: kind, owner_id: id, status } = bucket;
  const table =
    kind === 'key' ? 'api_keys' : kind === 'provider' ? 'providers' : kind === 'virtual-key' ? 'virtual_keys' : null;
  if (table === null) return;
  await tx.update(table, { id, status: status === 'active' ? 'exhausted' : 'active' }, { status });
}

/** The counters of a bucket's present window as its ledger entries say; they must be what the bucket holds. */
export async function rebuilt(
  tx: BucketTx,
  bucket: Bucket,
): Promise<{ used: number; carry: number; reserved: number }> {
  const entries = await tx.list('ledger_entries', { where: { bucket_id: bucket.id, window_no: bucket.window_no } });
  const { used, reserved, carry: picos } = totals(entries);
  const whole = Math.floor(picos / PICO);
  return { used: used + whole, carry: picos - whole * PICO, reserved };
}

function totals(entries: readonly Entry[]) {
  const sum = { used: 0, reserved: 0, carry: 0, requests: 0, unpriced: 0 };
  for (const entry of entries) {
    if (entry.to_account !== 'open') sum[entry.to_account] += entry.amount;
    if (entry.from_account !== 'open') sum[entry.from_account] -= entry.amount;
    sum.carry += entry.carry;
    sum.requests += entry.requests;
    sum.unpriced += entry.unpriced;
  }
  return sum;
}
