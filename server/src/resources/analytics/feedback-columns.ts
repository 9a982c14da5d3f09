/** What groups of requests tell of the feedback on them: it lies in the control store, and its requests in the log store. */
import { z } from 'zod';
import { averageOf } from '../../telemetry/buckets.ts';
import { MICROS } from '../../telemetry/feedback.ts';
import type { LogGroup, LogGroupKey, LogSelection, LogStore } from '../../telemetry/log-query.ts';
import { ofTraces, type TraceFeedback } from './feedback-filter.ts';

/** Names of `columns`. Nothing is ordered by them. */
export const FEEDBACK_COLUMNS = ['avg_weighted_feedback', 'requests_with_feedback'] as const;
export type FeedbackColumn = (typeof FEEDBACK_COLUMNS)[number];

/** More pairs of a group and a trace are not looked at. */
const MOST_PAIRS = 10_000;

export const feedbackFields = {
  avg_weighted_feedback: z
    .int()
    .optional()
    .describe('Of value times weight of the feedback, as a whole number; 0 where there is none.'),
  avg_weighted_feedback_exact: z.number().nullable().optional().describe('The same with decimals; null without any.'),
  requests_with_feedback: z.int().optional().describe('Requests whose trace has feedback.'),
} as const;

interface Sum {
  requests: number;
  given: number;
  weightedMicros: number;
}

const NOTHING: Readonly<Sum> = { requests: 0, given: 0, weightedMicros: 0 };

/** The feedback on the requests of a selection. */
export interface GroupFeedback {
  of(group: Pick<LogGroup, 'keys'>): Readonly<Sum>;
  readonly whole: Readonly<Sum>;
  /** False where there is more than was looked at. */
  readonly exact: boolean;
}

/** @param traces those that have feedback, and what it comes to */
export async function feedbackOfGroups(
  store: Pick<LogStore, 'groups'>,
  selection: LogSelection,
  keys: readonly LogGroupKey[],
  traces: readonly TraceFeedback[],
): Promise<GroupFeedback> {
  if (traces.length === 0) return { of: () => NOTHING, whole: NOTHING, exact: true };
  const found = await store.groups(
    { ...selection, where: [...selection.where, ofTraces(traces)] },
    {
      by: [...keys, { column: 'workspace_id' }, { column: 'trace_id' }],
      measures: [{ as: 'requests', of: 'count' }],
      order: { by: 'requests', descending: true },
      limit: MOST_PAIRS,
    },
  );
  const given = new Map(traces.map((trace) => [nameOf([trace.workspaceId, trace.traceId]), trace]));
  const sums = new Map<string, Sum>();
  const seen = new Set<TraceFeedback>();
  for (const { keys: values, values: measured } of found.groups) {
    const trace = given.get(nameOf(values.slice(keys.length)));
    if (trace === undefined) continue;
    const group = nameOf(values.slice(0, keys.length));
    const sum = sums.get(group) ?? { ...NOTHING };
    sums.set(group, sum);
    sum.requests += measured.requests ?? 0;
    add(sum, trace);
    seen.add(trace);
  }
  const whole = { ...NOTHING, requests: found.summary.requests ?? 0 };
  for (const trace of seen) add(whole, trace);
  const of = (group: Pick<LogGroup, 'keys'>) => sums.get(nameOf(group.keys)) ?? NOTHING;
  return { of, whole, exact: found.total <= MOST_PAIRS };
}

const nameOf = (values: readonly unknown[]): string => JSON.stringify(values);

function add(sum: Sum, { count, weightedMicros }: TraceFeedback): void {
  sum.given += count;
  sum.weightedMicros += weightedMicros;
}

/** The fields of these columns. */
export function feedbackShown(columns: readonly FeedbackColumn[], { requests, given, weightedMicros }: Readonly<Sum>) {
  const { rounded, exact } = averageOf(weightedMicros / MICROS, given);
  return {
    ...(columns.includes('avg_weighted_feedback')
      ? { avg_weighted_feedback: rounded, avg_weighted_feedback_exact: exact }
      : {}),
    ...(columns.includes('requests_with_feedback') ? { requests_with_feedback: requests } : {}),
  };
}
