/**
 * Every family of metrics, as data: its name in the text format, its kind, its labels, its help. The guide has the same
 * table. Buckets are those of OpenTelemetry's conventions of generative AI; durations are seconds.
 */

const DURATIONS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92] as const;
const FIRST_TOKENS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10] as const;
const OUTPUT_TOKENS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5] as const;
const TOKENS = [
  1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864,
] as const;

const OPERATION = 'gen_ai_operation_name';
const PROVIDER = 'gen_ai_provider_name';
const MODEL = 'gen_ai_request_model';

export interface FamilyDefinition {
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  /** At most four; `workspace` is one more where the setting asks for it and `byWorkspace` is true. */
  readonly labels: readonly string[];
  /** Upper bounds, rising; of histograms alone. */
  readonly buckets?: readonly number[];
  readonly byWorkspace?: true;
  /** Of gauges: what several processes have together. The rest is added up. */
  readonly join?: 'sum' | 'max' | 'min';
  /** Read when it is asked for, and fed by no record. */
  readonly read?: true;
}

export const FAMILIES = {
  gen_ai_client_token_usage: {
    type: 'histogram',
    help: 'Input and output tokens of a request.',
    labels: [OPERATION, PROVIDER, MODEL, 'gen_ai_token_type'],
    buckets: TOKENS,
  },
  gen_ai_client_operation_duration_seconds: {
    type: 'histogram',
    help: 'Time of one call of a provider; a request with retries has several.',
    labels: [OPERATION, PROVIDER, MODEL, 'error_type'],
    buckets: DURATIONS,
  },
  gen_ai_server_request_duration_seconds: {
    type: 'histogram',
    help: 'Time of a request at Sluice, from its arrival to the end of its answer.',
    labels: [OPERATION, PROVIDER, MODEL, 'error_type'],
    buckets: DURATIONS,
  },
  gen_ai_server_time_to_first_token_seconds: {
    type: 'histogram',
    help: 'Time from the arrival of a request to the first content of its stream.',
    labels: [OPERATION, PROVIDER, MODEL],
    buckets: FIRST_TOKENS,
  },
  gen_ai_server_time_per_output_token_seconds: {
    type: 'histogram',
    help: 'Time of an output token of a stream, after the first.',
    labels: [OPERATION, PROVIDER, MODEL],
    buckets: OUTPUT_TOKENS,
  },
  sluice_requests_total: {
    type: 'counter',
    help: 'Requests that left a record.',
    labels: ['operation', 'outcome', 'status'],
    byWorkspace: true,
  },
  sluice_attempts_total: {
    type: 'counter',
    help: 'Attempts at providers, by their result.',
    labels: ['provider', 'result'],
  },
  sluice_cost_microdollars_total: {
    type: 'counter',
    help: 'Cost of requests in micro-dollars.',
    labels: ['provider', 'model'],
    byWorkspace: true,
  },
  sluice_unpriced_total: {
    type: 'counter',
    help: 'Requests that used tokens of a model without a known price.',
    labels: [],
    byWorkspace: true,
  },
  sluice_refused_total: {
    type: 'counter',
    help: 'Requests that Sluice refused, by the kind of refusal.',
    labels: ['kind'],
    byWorkspace: true,
  },
  sluice_guardrail_verdicts_total: {
    type: 'counter',
    help: 'Verdicts of guardrails. The phase beside is that of guardrails that no answer waits for.',
    labels: ['phase', 'verdict'],
  },
  sluice_cache_total: {
    type: 'counter',
    help: 'Requests by the part that the response cache had in them.',
    labels: ['status'],
  },
  sluice_inflight: {
    type: 'gauge',
    help: 'Requests whose answers are not complete.',
    labels: [],
    read: true,
  },
  sluice_eventloop_lag_seconds: {
    type: 'gauge',
    help: 'Longest delay of the event loop in the last 15 seconds.',
    labels: [],
    join: 'max',
    read: true,
  },
  sluice_journal_bytes: {
    type: 'gauge',
    help: 'Bytes of records in the journal that the log store does not have.',
    labels: [],
    read: true,
  },
  sluice_records_dropped_total: {
    type: 'counter',
    help: 'Records given up because the journal could not take them.',
    labels: [],
    read: true,
  },
  sluice_log_lag_seconds: {
    type: 'gauge',
    help: 'Time for which records have waited in the journal and the log store has taken none.',
    labels: [],
    join: 'max',
    read: true,
  },
  sluice_metrics_overflow_total: {
    type: 'counter',
    help: 'Observations counted under other, because a process has too many series.',
    labels: [],
    read: true,
  },
  sluice_workers_answered: {
    type: 'gauge',
    help: 'Processes of this installation whose numbers are in this answer.',
    labels: [],
    read: true,
  },
  sluice_connections: {
    type: 'gauge',
    help: 'Open connections of clients.',
    labels: [],
    read: true,
  },
  process_start_time_seconds: {
    type: 'gauge',
    help: 'Start of the process, in seconds since the Unix epoch.',
    labels: [],
    join: 'min',
    read: true,
  },
  process_resident_memory_bytes: {
    type: 'gauge',
    help: 'Resident memory in bytes.',
    labels: [],
    read: true,
  },
  process_cpu_seconds_total: {
    type: 'counter',
    help: 'User and system CPU time in seconds.',
    labels: [],
    read: true,
  },
} as const satisfies Readonly<Record<string, FamilyDefinition>>;

export type FamilyName = keyof typeof FAMILIES;

/** Families whose number somebody is asked for when they are shown. */
export type ReadFamily = {
  [Name in FamilyName]: (typeof FAMILIES)[Name] extends { readonly read: true } ? Name : never;
}[FamilyName];

export const FAMILY_NAMES = Object.keys(FAMILIES) as FamilyName[];

/** Properties that a family leaves out read as absent. */
export const definitionOf = (name: FamilyName): FamilyDefinition => FAMILIES[name];
