/** What one request holds of its limits, from its admission to its end. */
import type { SluiceError } from '../../kernel/errors.ts';
import type { TenantContext } from '../../store/ports.ts';
import type { LimitSpec } from './limit-spec.ts';

/** What a request used in the end; everything 0 releases what was reserved. */
export interface ActualUse {
  /** Micro-dollars, and picodollars beside them. */
  readonly cost: number;
  readonly carry: number;
  readonly tokens: number;
  /** 1 when it was accepted. */
  readonly requests: number;
  /** 1 when it used what has no known price. */
  readonly unpriced: number;
  /** What a limit on cost is charged instead, where limits set their own prices. */
  readonly charge?: (spec: LimitSpec) => CostCharge;
}

/** As in `Used`. */
export type CostCharge = Pick<ActualUse, 'cost' | 'carry' | 'unpriced'>;

export interface LimitCharge {
  readonly spec: LimitSpec;
  /** Estimate, in the unit of the limit. */
  readonly amount: number;
  /** Whether the request cannot use more than `amount`. One that can is alone in the last hundredth of a limit. */
  readonly bounded: boolean;
}

/** A limit as this node knows it. */
export interface UsageLimitState {
  readonly spec: LimitSpec;
  /**
   * At least so much can still be had, in the unit of the limit. What the request has reserved for itself is in it, because most
   * of that goes back; of a limit on requests it is not, because a request uses one.
   */
  readonly left: number;
  /** The part of it that no request has reserved: what a further call of the request can have. */
  readonly free: number;
  /** Milliseconds since the epoch; null: it does not reset by itself, or it is not known while the store is away. */
  readonly resetsAt: number | null;
}

export interface UsageReservation {
  /**
   * The request is expected to use so much in all (micro-dollars, tokens): the difference is reserved too, from the lease or
   * soon by the store. Never refuses, never waits; less than before changes nothing.
   */
  grow(total: { readonly cost: number; readonly tokens: number }): void;
  /**
   * What was used and reserved under each charge when the store granted it: undefined for one where a lease sufficed, null
   * when it did for all.
   */
  readonly seen: readonly (number | undefined)[] | null;
  /** One for each charge, as of now. */
  readonly states: readonly UsageLimitState[];
  /** Once; later calls do nothing. `done` runs when the process may be killed without losing it. */
  settle(used: ActualUse, done: () => void): void;
}

export function keyOf(workspaceId: string, { ownerKind, ownerId, bucketKey }: LimitSpec): string {
  return `${workspaceId} ${ownerKind} ${ownerId} ${bucketKey}`;
}

/** Writes that change the buckets of one workspace wait for each other under this name. */
export function bucketQueue(workspaceId: string): string {
  return `usage ${workspaceId}`;
}

/** What this node knows of a bucket. */
export interface LocalBucket {
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
  /** Of the limit, what nobody had when the store was last seen. */
  open: number;
  /** Requests that hold something of the lease. */
  holders: number;
  near: boolean;
  specAt: number;
  usedAt: number;
  refusedUntil: number;
  refusal: SluiceError | null;
  /** Number of its last line in the journal, among those of this node; 0: there is none. */
  lastLine: number;
  /** Monotonic: others were waited for in vain, and are not waited for again before. */
  hurriedUntil: number;
}

export function newLocalBucket(key: string): LocalBucket {
  return {
    key,
    bucket: '',
    window: 0,
    lease: '',
    leaseUntil: 0,
    resetsAt: 0,
    available: 0,
    most: 0,
    open: 0,
    holders: 0,
    near: false,
    specAt: -1,
    usedAt: 0,
    refusedUntil: 0,
    refusal: null,
    lastLine: 0,
    hurriedUntil: 0,
  };
}

/** What a request holds under one limit. */
export interface LeaseShare {
  readonly charge: LimitCharge;
  readonly local: LocalBucket;
  readonly lease: string;
  readonly bucket: string;
  readonly window: number;
  /** Reserved of the lease. */
  amount: number;
  /** What it is expected to use by now, when that has become more. */
  wanted: number;
  /** Whether the store is asked for the difference. */
  growing: boolean;
  ended: boolean;
  /** When it was admitted without the store (by the store's clock), or 0. */
  readonly servedAt: number;
}

/** What holds need of their node. */
export interface ReservationNode {
  settlePart(hold: NodeUsageReservation, part: LeaseShare, used: ActualUse, done: () => void): void;
  growPart(hold: NodeUsageReservation, part: LeaseShare): void;
}

export class NodeUsageReservation implements UsageReservation {
  readonly seen: readonly (number | undefined)[] | null;
  readonly tenant: TenantContext;
  readonly workspaceId: string;
  readonly #holder: ReservationNode;
  readonly #parts: readonly LeaseShare[];
  #settled = false;

  constructor(
    holder: ReservationNode,
    tenant: TenantContext,
    workspaceId: string,
    parts: readonly LeaseShare[],
    seen: readonly (number | undefined)[] | null = null,
  ) {
    this.seen = seen;
    this.tenant = tenant;
    this.workspaceId = workspaceId;
    this.#holder = holder;
    this.#parts = parts;
  }

  get states(): readonly UsageLimitState[] {
    return this.#parts.map(({ charge: { spec }, local, amount, ended }) => ({
      spec,
      left: Math.max(0, local.open + local.available + (ended || spec.type === 'requests' ? 0 : amount)),
      free: Math.max(0, local.open + local.available),
      resetsAt: local.resetsAt > 0 && local.resetsAt < Number.POSITIVE_INFINITY ? local.resetsAt : null,
    }));
  }

  grow(total: { readonly cost: number; readonly tokens: number }): void {
    if (this.#settled) return;
    for (const part of this.#parts) {
      const { type } = part.charge.spec;
      if (type === 'requests' || part.servedAt > 0) continue;
      const wanted = Math.ceil(type === 'cost' ? total.cost : total.tokens);
      if (!(wanted > part.wanted && wanted > part.amount)) continue;
      part.wanted = Math.min(wanted, Number.MAX_SAFE_INTEGER);
      this.#holder.growPart(this, part);
    }
  }

  settle(used: ActualUse, done: () => void): void {
    if (this.#settled) {
      done();
      return;
    }
    this.#settled = true;
    const parts = this.#parts;
    let left = parts.length;
    // One journal line each; all of them must be written.
    const one = () => {
      left -= 1;
      if (left === 0) done();
    };
    for (const part of parts) {
      part.ended = true;
      this.#holder.settlePart(this, part, used, one);
    }
  }
}
