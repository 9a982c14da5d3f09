/** Limits of a call that is no request of a model: what it counts under, reserves and has used. */
import type { Principal } from '../auth/principal.ts';
import { tenantOf } from '../auth/tenant.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { ActualUse, LimitCharge } from '../limits/ledger/ledger.ts';
import { type LimitSpec, MAX_UNITS } from '../limits/ledger/limit-spec.ts';
import { orderingTimestamp } from '../limits/ordering-timestamp.ts';
import type { PolicyFacts } from '../limits/policies/conditions.ts';
import { UsageRefused, unpricedRefused } from '../limits/usage-limit-refused.ts';
import type { WorkspaceSnapshot } from '../runtime/snapshot.ts';
import { rateLimitsOf, usageLimitsOf } from './applied-limits.ts';
import type { LimitState } from './limit-state.ts';
import type { RequestContext } from './request-context.ts';
import type { GatewayServices } from './services.ts';

/** What conditions of policies see of a call beside who makes it; what it leaves out it has nothing of. */
export type CallFacts = Partial<
  Pick<PolicyFacts, 'endpoint_type' | 'mcp_server' | 'mcp_tool' | 'provider' | 'model' | 'prompt'>
>;

/** What a call may use, before it is made. */
export interface CallEstimate {
  /** For refusals: what is called. */
  readonly name: string;
  /** Micro-dollars; null: no price is known. */
  readonly cost: number | null;
  readonly tokens: number;
  /** Whether it cannot use more. */
  readonly bounded: boolean;
}

/** What a call has used. */
export interface CallUse {
  /** Micro-dollars; null: no price is known. */
  readonly cost: number | null;
  readonly tokens: number;
}

/** The policies whose rates a call counts under. */
export type PolicyTarget = keyof WorkspaceSnapshot['ratePolicies'];

interface Known {
  readonly principal: Principal;
  readonly snapshot: WorkspaceSnapshot;
}

function knownOf({ principal, snapshot }: RequestContext): Known {
  if (principal === null || snapshot === null)
    throw new SluiceError('internal', 'Limits are asked before the caller is known.');
  return { principal, snapshot };
}

function appliesTo(request: RequestContext, given: CallFacts) {
  const { principal, snapshot } = knownOf(request);
  const facts = (): PolicyFacts => ({
    workspace_id: snapshot.workspaceId,
    organisation_id: snapshot.organisationId,
    api_key: principal.keyId,
    virtual_key: null,
    provider: null,
    config: null,
    prompt: null,
    model: null,
    endpoint_type: null,
    mcp_server: null,
    mcp_tool: null,
    metadata: request.metadata,
    ...given,
  });
  return { principal, snapshot, stored: null, facts, scope: 'all' } as const;
}

/** Counts the call under its rate limits. Rejects with the refusal of the first that is used up. */
export async function admitCall(
  { admission }: Pick<GatewayServices, 'admission'>,
  request: RequestContext,
  limits: LimitState,
  facts: CallFacts,
  target: PolicyTarget,
): Promise<void> {
  const call = appliesTo(request, facts);
  const entities = rateLimitsOf(call, call.snapshot.ratePolicies[target]);
  if (entities.length === 0) return;
  const reservation = await admission.admit(call.snapshot.workspaceId, entities);
  limits.quota = reservation.quota;
  limits.facts = { ...limits.facts, rates_at: reservation.at };
  if (reservation.refusal !== null) throw reservation.refusal;
  limits.rateReservation = reservation;
}

/** Reserves an estimate under every usage limit of the call. Rejects with the refusal of one that has no room for it. */
export async function reserveCall(
  { ledger, storeClock, unpriced }: Pick<GatewayServices, 'ledger' | 'storeClock' | 'unpriced'>,
  request: RequestContext,
  limits: LimitState,
  facts: CallFacts,
  estimate: CallEstimate,
): Promise<void> {
  const call = appliesTo(request, facts);
  const specs = usageLimitsOf(call);
  if (specs.length === 0) return;
  try {
    const charges = specs.map((one) => chargeOf(one, estimate, unpriced));
    const { tokens, bounded } = estimate;
    limits.facts = { ...limits.facts, estimate: { cost: estimate.cost ?? 0, tokens, bounded } };
    limits.facts.usage_at = orderingTimestamp(storeClock.now());
    limits.usageReservation = await ledger.reserve(tenantOf(call.principal), call.snapshot.workspaceId, charges);
  } catch (error) {
    limits.release();
    if (error instanceof UsageRefused) limits.exhausted = error.state;
    throw error;
  }
}

function chargeOf(
  spec: LimitSpec,
  { name, cost, tokens, bounded }: CallEstimate,
  rule: GatewayServices['unpriced'],
): LimitCharge {
  if (spec.type === 'requests') return { spec, amount: 1, bounded: true };
  if (spec.type === 'tokens') return { spec, amount: tokens, bounded };
  if (cost === null && (spec.unpriced ?? rule) === 'deny') throw unpricedRefused(spec, name);
  return { spec, amount: Math.min(MAX_UNITS, cost ?? 0), bounded: bounded && cost !== null };
}

/**
 * Books what the call has used and gives back the rest; one that was refused has used nothing. Resolves when that would
 * survive the process being killed.
 */
export async function settleCall(
  { storeClock }: Pick<GatewayServices, 'storeClock'>,
  limits: LimitState,
  use: CallUse | null,
): Promise<void> {
  const { rateReservation: reservation, usageReservation: hold, facts } = limits;
  if (use === null) limits.release();
  else reservation?.settle(use.tokens);
  if (facts !== null && facts.refused === undefined) facts.ended_at = orderingTimestamp(storeClock.now());
  if (hold === null) return;
  limits.usageReservation = null;
  const used: ActualUse = {
    cost: use?.cost ?? 0,
    carry: 0,
    tokens: use?.tokens ?? 0,
    requests: use === null ? 0 : 1,
    unpriced: use !== null && use.cost === null ? 1 : 0,
  };
  if (facts !== null) facts.used = used;
  await new Promise<void>((resolve) => hold.settle(used, resolve));
}
