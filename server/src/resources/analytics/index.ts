/** Analytics of stored requests: `/analytics/*`. */
import type { Resource } from '../define.ts';
import { feedbackGraphs } from './feedback-graphs.ts';
import { graphs } from './graph-routes.ts';
import { analyticsGroups } from './groups.ts';
import { cacheSummary } from './summary.ts';
import { whatIf } from './what-if.ts';

export const analytics: Resource = {
  actions: [...graphs, ...feedbackGraphs, cacheSummary, whatIf, ...analyticsGroups],
};
