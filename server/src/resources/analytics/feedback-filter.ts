/** The filter by weighted feedback, which lies in the control store: it becomes a list of traces. */
import type { LogFilter } from '../../telemetry/log-query.ts';
import { refuse } from '../common.ts';
import type { Reach } from '../logs/reach.ts';
import type { Call } from '../resource.ts';
import type { Filters } from './filters.ts';

/** The condition that only requests with such feedback meet; none where the query does not ask for it. */
export async function feedbackFilter(
  _call: Pick<Call, 'tx'>,
  _reach: Reach,
  asked: Pick<Filters, 'weighted_feedback_min' | 'weighted_feedback_max'>,
): Promise<readonly LogFilter[]> {
  const { weighted_feedback_min: min, weighted_feedback_max: max } = asked;
  if (min === undefined && max === undefined) return [];
  throw refuse(min === undefined ? 'weighted_feedback_max' : 'weighted_feedback_min', 'cannot be asked for yet');
}
