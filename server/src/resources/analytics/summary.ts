/** `GET /analytics/summary/cache`. */
import { z } from 'zod';
import { toMillis } from '../body-fields.ts';
import { KEPT_LOGS, reachOf } from '../logs/reach.ts';
import { action } from '../resource.ts';
import { afterCommit } from '../services.ts';
import { feedbackFilter } from './feedback-filter.ts';
import {
  checkBounds,
  checkRange,
  conditionsOf,
  filterFields,
  placeFields,
  REAL,
  rangeFields,
  selectionOf,
  wholeField,
} from './filters.ts';
import { IS_HIT } from './graphs.ts';
import { centsOf, coverageFields, coverageOf, millisOf, whole } from './numbers.ts';

const MISS = { column: 'cache_status', in: ['MISS', 'SEMANTIC MISS', 'REFRESH'] } as const;

export const cacheSummary = action({
  id: 'analytics.summary.cache',
  method: 'GET',
  path: '/analytics/summary/cache',
  summary: 'Sum up the cache',
  description:
    'Hits of the cache, how long they took, and how much faster they were than the requests that the cache did not answer.',
  tag: 'Analytics',
  auth: 'key_or_login',
  scopes: ['analytics.view'],
  tenant: 'workspace_optional',
  workspace: 'past',
  params: null,
  query: z
    .strictObject({ ...placeFields, ...wholeField, ...rangeFields, ...filterFields })
    .superRefine(checkRange)
    .superRefine(checkBounds),
  body: null,
  response: z.object({
    object: z.literal('analytics-summary'),
    summary: z.object({
      hits: z.int(),
      avg_latency: z.int().describe('Milliseconds of a hit.'),
      total_requests: z.int(),
      cache_speedup: z.int().describe('Percent of the time that a hit saves; 0 where there is nothing to compare.'),
      saved: z.int().describe('Cents that the hits have saved, rounded half up.'),
      saved_micros: z.int().describe('Micro-dollars.'),
    }),
    ...coverageFields,
  }),
  writes: false,
  audit: null,
  run: async (call) => {
    const { query } = call;
    const unnamed = query.all_workspaces === true ? 'whole organisation' : 'default workspace';
    const reach = await reachOf(call, 'analytics.view', unnamed);
    const from = toMillis(query.time_of_generation_min);
    const own = [REAL, ...(await feedbackFilter(call, reach, query, from))];
    const selection = selectionOf(reach, query, conditionsOf(query), own);
    return afterCommit({ logs: KEPT_LOGS }, async ({ logs }) => {
      const found = await logs.store.groups(selection, {
        by: [],
        measures: [
          { as: 'requests', of: 'count' },
          { as: 'hits', of: 'count', where: [IS_HIT] },
          { as: 'hit_us', of: 'avg', column: 'latency_us', where: [IS_HIT] },
          { as: 'miss_us', of: 'avg', column: 'latency_us', where: [MISS] },
          { as: 'saved', of: 'sum', column: 'saved_micros', where: [IS_HIT] },
        ],
      });
      const { requests, hits, hit_us, miss_us, saved } = found.summary;
      return {
        object: 'analytics-summary' as const,
        summary: {
          hits: whole(hits),
          avg_latency: millisOf(hit_us),
          total_requests: whole(requests),
          cache_speedup: hit_us == null || !miss_us ? 0 : whole((1 - hit_us / miss_us) * 100),
          saved: centsOf(saved),
          saved_micros: whole(saved),
        },
        ...coverageOf(found),
      };
    });
  },
});
