/** What one record adds to the metrics. Called for every request: it finds cells and adds to them, and allocates nothing. */
import { ERROR_KINDS, ERROR_REASONS, SluiceError } from '../../kernel/errors.ts';
import { Lru } from '../../kernel/lru.ts';
import { recordedAs } from '../../operations/dialects/errors.ts';
import { CONVENTION_NAMES } from '../conventions/operations.ts';
import type { GuardrailFacts } from '../guardrail-facts.ts';
import { type AttemptRecord, NOT_SENT } from '../record.ts';
import type { RecordDraft } from '../recorder.ts';
import { type Cells, OTHER } from './cells.ts';
import { ModelNames } from './model-names.ts';

/** Workspaces that have a label of their name; those that are seen later are `other`. */
export const MAX_WORKSPACES = 500;
/** Records that may be made again after a failure, and must not count twice. */
const REMEMBERED = 1_000;

/** By the code that records have. Several kinds share a code; the first one names it. */
const REFUSALS: ReadonlyMap<string, string> = new Map([
  ...[...ERROR_KINDS].reverse().map((kind) => [recordedAs(new SluiceError(kind, '')), kind] as const),
  // A fault of ours is no refusal.
  [recordedAs(new SluiceError('unavailable', '')), 'unavailable'],
  ...ERROR_REASONS.map((reason) => [reason, reason] as const),
]);

const CACHE_STATES: ReadonlyMap<string, string> = new Map(
  ['HIT', 'SEMANTIC HIT', 'MISS', 'SEMANTIC MISS', 'REFRESH', 'DISABLED'].map((state) => [
    state,
    state.toLowerCase().replace(' ', '_'),
  ]),
);

const STATUS_CLASSES = ['none', '1xx', '2xx', '3xx', '4xx', '5xx'] as const;

export interface RequestMetricsOptions {
  readonly cells: Cells;
  /** Ids of the providers that there are. */
  readonly providers: ReadonlySet<string>;
  /** Some families have a label for the workspace. */
  readonly workspaces: boolean;
}

/** Counts records as they are made, so that the numbers are those of the records. Dry runs count nowhere. */
export class RequestMetrics {
  readonly #providers: ReadonlySet<string>;
  readonly #models = new ModelNames();
  readonly #workspaces: Set<string> | null;
  readonly #once = new Lru<string, true>({ maxEntries: REMEMBERED });
  readonly #tokens;
  readonly #calls;
  readonly #durations;
  readonly #firstTokens;
  readonly #outputTokens;
  readonly #requests;
  readonly #attempts;
  readonly #cost;
  readonly #unpriced;
  readonly #refused;
  readonly #verdicts;
  readonly #cache;

  constructor({ cells, providers, workspaces }: RequestMetricsOptions) {
    this.#providers = providers;
    this.#workspaces = workspaces ? new Set() : null;
    this.#tokens = cells.family('gen_ai_client_token_usage');
    this.#calls = cells.family('gen_ai_client_operation_duration_seconds');
    this.#durations = cells.family('gen_ai_server_request_duration_seconds');
    this.#firstTokens = cells.family('gen_ai_server_time_to_first_token_seconds');
    this.#outputTokens = cells.family('gen_ai_server_time_per_output_token_seconds');
    this.#requests = cells.family('sluice_requests_total');
    this.#attempts = cells.family('sluice_attempts_total');
    this.#cost = cells.family('sluice_cost_microdollars_total');
    this.#unpriced = cells.family('sluice_unpriced_total');
    this.#refused = cells.family('sluice_refused_total');
    this.#verdicts = cells.family('sluice_guardrail_verdicts_total');
    this.#cache = cells.family('sluice_cache_total');
  }

  /** @param configured the name under which the provider of the request has its model stored; null when it has not */
  count(draft: RecordDraft, configured: string | null): void {
    if (draft.dry_run) return;
    const provider = this.#provider(draft.provider);
    const model = this.#model(draft, provider, configured);
    this.#countUse(draft, provider, model);
    this.#countTimes(draft, provider, model);
    const { attempts, guardrails } = draft;
    for (let i = 0; i < attempts.length; i++) this.#countAttempt(attempts[i], draft, model);
    if (guardrails !== undefined)
      for (const facts of guardrails) this.#verdicts.add(1, facts.phase ?? 'beside', of(facts));
    this.#cache.add(1, CACHE_STATES.get(draft.cache_status) ?? OTHER);
  }

  /** Counts what a provider has run for an earlier request: it took no time of a caller. `key` counts once. */
  countOnce(key: string, draft: RecordDraft): void {
    if (draft.dry_run || this.#once.get(key) !== undefined) return;
    this.#once.set(key, true);
    const provider = this.#provider(draft.provider);
    this.#countUse(draft, provider, this.#model(draft, provider, null));
  }

  #countUse(draft: RecordDraft, provider: string, model: string): void {
    const { outcome, usage, cost_micros: cost } = draft;
    const workspace = this.#workspace(draft.workspace_id);
    const known = CONVENTION_NAMES.get(draft.operation);
    const status = STATUS_CLASSES[Math.floor(draft.status / 100)] ?? OTHER;
    this.#requests.add(1, known === undefined ? OTHER : draft.operation, outcome, status, workspace);
    if (outcome === 'refused') {
      this.#refused.add(1, REFUSALS.get(draft.error_code ?? '') ?? OTHER, workspace);
    }
    if (usage !== null) {
      const operation = known ?? OTHER;
      this.#tokens.observe(usage.input, operation, provider, model, 'input');
      this.#tokens.observe(usage.output, operation, provider, model, 'output');
      if (cost === null) this.#unpriced.add(1, workspace);
    }
    if (cost !== null && cost !== 0) this.#cost.add(cost, provider, model, workspace);
  }

  #countTimes(draft: RecordDraft, provider: string, model: string): void {
    const { outcome, ttft_ms: ttft, latency_ms: latency, usage } = draft;
    const operation = CONVENTION_NAMES.get(draft.operation) ?? OTHER;
    this.#durations.observe(latency / 1_000, operation, provider, model, outcome === 'ok' ? '' : outcome);
    if (outcome !== 'ok' || ttft === null || !draft.stream) return;
    this.#firstTokens.observe(ttft / 1_000, operation, provider, model);
    if (usage === null || usage.output < 2) return;
    const rest = Math.max(0, latency - ttft) / 1_000;
    this.#outputTokens.observe(rest / (usage.output - 1), operation, provider, model);
  }

  #countAttempt(attempt: AttemptRecord | undefined, draft: RecordDraft, model: string): void {
    if (attempt === undefined) return;
    const provider = this.#provider(attempt.provider);
    const result = resultOf(attempt);
    this.#attempts.add(1, provider, result);
    if (attempt.cause !== undefined && NOT_SENT.has(attempt.cause.kind)) return;
    const operation = CONVENTION_NAMES.get(draft.operation) ?? OTHER;
    // A record names the model of its last target.
    const sent = attempt.provider === draft.provider ? model : '';
    this.#calls.observe(attempt.duration_ms / 1_000, operation, provider, sent, result === 'ok' ? '' : result);
  }

  /** Empty for none, as for a request that was refused before it had one. */
  #provider(id: string | null): string {
    if (id === null) return '';
    return this.#providers.has(id) ? id : OTHER;
  }

  #model(draft: RecordDraft, provider: string, configured: string | null): string {
    const name = draft.model_sent ?? draft.model_requested;
    if (name === null) return '';
    return provider === '' || provider === OTHER
      ? OTHER
      : this.#models.of(provider, name, draft.price?.source ?? null, configured);
  }

  #workspace(id: string | null): string {
    const seen = this.#workspaces;
    if (seen === null || id === null) return '';
    if (seen.has(id)) return id;
    if (seen.size >= MAX_WORKSPACES) return OTHER;
    seen.add(id);
    return id;
  }
}

function of({ skipped, verdict, deny }: GuardrailFacts): string {
  if (skipped) return 'skipped';
  if (verdict) return 'pass';
  return deny ? 'deny' : 'fail';
}

function resultOf({ status, error, cause }: AttemptRecord): string {
  if (cause === undefined) return error === null ? 'ok' : 'failed';
  if (cause.kind !== 'status') return cause.kind;
  if (status === 429) return 'status_429';
  return status !== null && status >= 500 ? 'status_5xx' : 'status_4xx';
}
