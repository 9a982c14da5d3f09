/** Requests and their feedback, which lies in the control store: filters by it become lists of traces. */
import type { Where } from '../../store/ports.ts';
import { MICROS } from '../../telemetry/feedback.ts';
import type { LogFilter } from '../../telemetry/log-query.ts';
import { refuse } from '../common.ts';
import type { Reach } from '../logs/reach.ts';
import type { Call } from '../resource.ts';
import type { Filters } from './filters.ts';

/** Traces of one question. */
const MOST_TRACES = 10_000;

type Weighted = Pick<Filters, 'weighted_feedback_min' | 'weighted_feedback_max'>;

/** Milliseconds since the epoch: from the first, before the second. */
interface Times {
  readonly from: number;
  readonly to?: number;
}

/** The feedback of a trace, added up. */
export interface TraceFeedback {
  readonly workspaceId: string;
  readonly traceId: string;
  readonly count: number;
  /** Value times weight, in millionths. */
  readonly weightedMicros: number;
}

/** The feedback that the caller may read, as a condition on its table. */
export function feedbackWhere(
  { scope }: Reach,
  { from, to }: Times,
  { weighted_feedback_min: min, weighted_feedback_max: max }: Weighted,
): Where<'feedback'> {
  const weighted = {
    ...(min === undefined ? {} : { gte: Math.round(min * MICROS) }),
    ...(max === undefined ? {} : { lte: Math.round(max * MICROS) }),
  };
  const [only, ...more] = scope.workspaceIds ?? [];
  return {
    ...(scope.workspaceIds === null
      ? {}
      : { workspace_id: only !== undefined && more.length === 0 ? only : { in: scope.workspaceIds } }),
    ...(scope.userId === null ? {} : { user_id: scope.userId }),
    created_at: { gte: Math.max(from, scope.keptSince), ...(to === undefined ? {} : { lt: to }) },
    ...(Object.keys(weighted).length === 0 ? {} : { weighted_micros: weighted }),
  };
}

/** The traces with feedback, those with most of it first where there are more than `MOST_TRACES`. */
export async function tracesWith(
  { tx }: Pick<Call, 'tx'>,
  where: Where<'feedback'>,
): Promise<{ readonly traces: readonly TraceFeedback[]; readonly all: boolean }> {
  const found = await tx.totals('feedback', {
    where,
    by: ['workspace_id', 'trace_id'],
    sums: ['weighted_micros'],
    most: MOST_TRACES + 1,
  });
  const traces = found.slice(0, MOST_TRACES).map(({ by, count, sums }) => ({
    workspaceId: String(by.workspace_id),
    traceId: String(by.trace_id),
    count,
    weightedMicros: sums.weighted_micros ?? 0,
  }));
  return { traces, all: found.length <= MOST_TRACES };
}

/** Only requests of these traces. A trace is of its workspace: another may have one of the same name. */
export function ofTraces(traces: readonly Pick<TraceFeedback, 'workspaceId' | 'traceId'>[]): LogFilter {
  const ids = new Map<string, string[]>();
  for (const { workspaceId, traceId } of traces) {
    const known = ids.get(workspaceId);
    if (known === undefined) ids.set(workspaceId, [traceId]);
    else known.push(traceId);
  }
  return {
    anyOf: [...ids].map(([workspace, of]) => [
      { column: 'workspace_id', in: [workspace] },
      { column: 'trace_id', in: of },
    ]),
  };
}

/**
 * The condition that only requests with such feedback meet; none where the query does not ask for it. Feedback comes after its
 * request: that which was given before the range is about none of it.
 *
 * @param from begin of the range, milliseconds since the epoch
 * @throws `validation` where more than `MOST_TRACES` traces have such feedback
 */
export async function feedbackFilter(
  call: Pick<Call, 'tx'>,
  reach: Reach,
  asked: Weighted & Pick<Filters, 'trace_id'>,
  from: number,
): Promise<readonly LogFilter[]> {
  const { weighted_feedback_min: min, weighted_feedback_max: max, trace_id } = asked;
  if (min === undefined && max === undefined) return [];
  const { traces, all } = await tracesWith(call, {
    ...feedbackWhere(reach, { from }, asked),
    ...(trace_id === undefined ? {} : { trace_id: { in: trace_id } }),
  });
  if (!all) {
    throw refuse(
      min === undefined ? 'weighted_feedback_max' : 'weighted_feedback_min',
      `is met by more than ${MOST_TRACES} traces: ask for narrower bounds, or for a later time_of_generation_min`,
    );
  }
  return [ofTraces(traces)];
}
