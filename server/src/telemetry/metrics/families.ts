/**
 * Every family of metrics, as data: its name in the text format, its kind, its labels, its help. The guide has the same
 * table. Buckets are those of OpenTelemetry's conventions of generative AI; durations are seconds.
 */

import { V1_41 } from '../conventions/v1-41.ts';

/** Prometheus takes no dots. */
const labelOf = (attribute: string): string => attribute.replaceAll('.', '_');

const { attributes, metrics } = V1_41;
const OPERATION = labelOf(attributes.operation);
const PROVIDER = labelOf(attributes.provider);
const MODEL = labelOf(attributes.requestModel);
const ERROR = labelOf(attributes.errorType);

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
    labels: [OPERATION, PROVIDER, MODEL, labelOf(attributes.tokenType)],
    buckets: metrics.gen_ai_client_token_usage.buckets,
  },
  gen_ai_client_operation_duration_seconds: {
    type: 'histogram',
    help: 'Time of one call of a provider; a request with retries has several.',
    labels: [OPERATION, PROVIDER, MODEL, ERROR],
    buckets: metrics.gen_ai_client_operation_duration_seconds.buckets,
  },
  gen_ai_server_request_duration_seconds: {
    type: 'histogram',
    help: 'Time of a request at Sluice, from its arrival to the end of its answer.',
    labels: [OPERATION, PROVIDER, MODEL, ERROR],
    buckets: metrics.gen_ai_server_request_duration_seconds.buckets,
  },
  gen_ai_server_time_to_first_token_seconds: {
    type: 'histogram',
    help: 'Time from the arrival of a request to the first content of its stream.',
    labels: [OPERATION, PROVIDER, MODEL],
    buckets: metrics.gen_ai_server_time_to_first_token_seconds.buckets,
  },
  gen_ai_server_time_per_output_token_seconds: {
    type: 'histogram',
    help: 'Time of an output token of a stream, after the first.',
    labels: [OPERATION, PROVIDER, MODEL],
    buckets: metrics.gen_ai_server_time_per_output_token_seconds.buckets,
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
    help: 'Bytes of records in the journal that are in no log file yet.',
    labels: [],
    read: true,
  },
  sluice_records_dropped_total: {
    type: 'counter',
    help: 'Records given up because the journal could not take them.',
    labels: [],
    read: true,
  },
  sluice_body_journal_bytes: {
    type: 'gauge',
    help: 'Bytes of kept bodies in their journal, as far as they were not packed.',
    labels: [],
    read: true,
  },
  sluice_body_frames_dropped_total: {
    type: 'counter',
    help: 'Pieces of bodies dropped because there was no room for them.',
    labels: [],
    read: true,
  },
  sluice_log_lag_seconds: {
    type: 'gauge',
    help: 'Time for which records have waited in the journal and none came into log files.',
    labels: [],
    join: 'max',
    read: true,
  },
  sluice_log_gap_records: {
    type: 'gauge',
    help: 'Records that the log keeper missed in the sequences of the processes, since the start.',
    labels: [],
    read: true,
  },
  sluice_keeper_restarts_total: {
    type: 'counter',
    help: 'Deaths of the log keeper, after which it is started again.',
    labels: [],
    read: true,
  },
  sluice_destination_delivered_total: {
    type: 'counter',
    help: 'Records that log destinations have accepted.',
    labels: [],
    read: true,
  },
  sluice_destination_failed_total: {
    type: 'counter',
    help: 'Records that log destinations have refused.',
    labels: [],
    read: true,
  },
  sluice_destination_lost_total: {
    type: 'counter',
    help: 'Records that waited too long for a log destination, or for which there was no room.',
    labels: [],
    read: true,
  },
  sluice_destination_waiting: {
    type: 'gauge',
    help: 'Records that wait for log destinations.',
    labels: [],
    read: true,
  },
  sluice_destination_failing: {
    type: 'gauge',
    help: 'Log destinations whose last call was not accepted.',
    labels: [],
    read: true,
  },
  sluice_destination_lag_seconds: {
    type: 'gauge',
    help: 'Age of the oldest record that a log destination has not accepted yet.',
    labels: [],
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
