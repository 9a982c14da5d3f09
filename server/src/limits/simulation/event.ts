/** A stored record as a simulation sees it: what limits knew of the request, when, and what it used. */
import { OPERATIONS, type Operation } from '../../operations/operation.ts';
import type { TokenUsage } from '../../operations/usage.ts';
import type { LimitFacts, RefusedBy } from '../../store/limit-types.ts';
import type { StoredLog } from '../../store/ports.ts';
import { limitClassOf } from '../limit-class.ts';
import { type PolicyFacts, requestFacts } from '../policies/conditions.ts';

export interface Event {
  readonly id: string;
  readonly traceId: string;
  readonly facts: PolicyFacts;
  /** When limits of the kind were asked, and when the request was settled. */
  readonly at: number;
  readonly endedAt: number;
  readonly refused: RefusedBy | null;
  /** What it was expected to use; where nobody asked, what it used. */
  readonly estimate: { readonly cost: number; readonly tokens: number; readonly bounded: boolean };
  /** Whether `estimate` is what was reserved then. */
  readonly estimated: boolean;
  readonly used: NonNullable<LimitFacts['used']>;
  /** Refused before anything was tried: rate limits take such a request back. */
  readonly takenBack: boolean;
  readonly usage: TokenUsage | null;
  readonly committed: LimitFacts['committed'];
}

/** What of a record is read, as `telemetry/record.ts` writes it. */
interface Read {
  readonly id: string;
  readonly time: number;
  readonly organisation_id: string;
  readonly workspace_id: string | null;
  readonly api_key_id: string | null;
  readonly trace_id: string;
  readonly operation: string;
  readonly method: string;
  readonly path: string;
  readonly bytes_in: number;
  readonly provider: string | null;
  readonly provider_slug: string | null;
  readonly config_slug: string | null;
  readonly model_requested: string | null;
  readonly model_sent?: string;
  readonly outcome: string;
  readonly usage: TokenUsage | null;
  readonly cost_micros: number | null;
  readonly latency_ms: number;
  readonly attempts: readonly unknown[];
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly dry_run: boolean;
  readonly limits?: LimitFacts;
  readonly source?: string;
}

const NO_ESTIMATE = { cost: 0, tokens: 0, bounded: true };

/** As it would be today: what only reads, and for usage limits what ends something, is asked of nobody. */
function isCounted({ method, path, bytes_in: bytes }: Read, operation: Operation, kind: RefusedBy['limit']): boolean {
  const limitClass = limitClassOf(operation, method, path, bytes === 0);
  return limitClass === 'uses' || (limitClass === 'ends' && kind === 'rate');
}

/** Null for a request that never came as far as limits of the kind. */
export function readEvent(stored: StoredLog, kind: RefusedBy['limit']): Event | null {
  const record = stored as unknown as Read;
  if (record.dry_run || record.workspace_id === null) return null;
  // Rate policies of models count no other calls; usage policies count all.
  if (kind === 'rate' && (record.source ?? 'llm') !== 'llm') return null;
  const { limits, usage } = record;
  const began = record.attempts.length > 0 || record.outcome === 'ok';
  if (limits === undefined && !began) return null;
  const operation = OPERATIONS[record.operation as keyof typeof OPERATIONS];
  if (operation !== undefined && !isCounted(record, operation, kind)) return null;
  const { usage_at, rates_at } = limits ?? {};
  const at = (kind === 'usage' ? (usage_at ?? rates_at) : (rates_at ?? usage_at)) ?? record.time;
  const tokens = usage === null ? 0 : usage.input + usage.output;
  const used = limits?.used ?? {
    cost: record.cost_micros ?? 0,
    carry: 0,
    tokens,
    requests: began ? 1 : 0,
    unpriced: began && record.cost_micros === null && (usage !== null || record.outcome === 'ok') ? 1 : 0,
  };
  const refused = limits?.refused ?? null;
  return {
    id: record.id,
    traceId: record.trace_id,
    facts: requestFacts({
      workspaceId: record.workspace_id,
      organisationId: record.organisation_id,
      keyId: record.api_key_id,
      provider: record.provider,
      slug: record.provider_slug,
      config: record.config_slug,
      model: record.model_sent ?? record.model_requested ?? '',
      requestType: operation?.requestType ?? record.operation,
      metadata: record.metadata,
    }),
    at,
    endedAt: Math.max(at, limits?.ended_at ?? record.time + record.latency_ms),
    refused,
    estimate: limits?.estimate ?? (refused === null ? { ...used, bounded: true } : NO_ESTIMATE),
    estimated: limits?.estimate !== undefined,
    used,
    takenBack: !began && record.outcome === 'refused' && operation?.family !== 'job',
    usage,
    committed: limits?.committed,
  };
}
