/** `GET /logs/tail`: requests as they are recorded. */
import { z } from 'zod';
import type { LogArrivals } from '../../telemetry/log-query.ts';
import { checkBounds, conditionsOf, type Filters, selectionOf } from '../analytics/filters.ts';
import { toIso } from '../body-fields.ts';
import { action } from '../resource.ts';
import { withServices } from '../services.ts';
import { dryRunCondition, logFilterFields } from './list.ts';
import { namesOf } from './names.ts';
import { KEPT_LOGS, type Reach, reachOf } from './reach.ts';
import { idsOf, LIST_COLUMNS, listedLog, listedOf } from './rows.ts';

const EVERY_MS = 1_000;
/** Of one turn. */
const MOST = 200;
const DAY_MS = 86_400_000;

const { weighted_feedback_min: _min, weighted_feedback_max: _max, ...fields } = logFilterFields;

/** What `ahead` has asked. */
interface Asked {
  readonly came: LogArrivals;
  readonly reach: Reach;
}

export const logTail = action({
  id: 'logs.tail',
  method: 'GET',
  path: '/logs/tail',
  summary: 'Follow requests as they are recorded',
  description: `Server-sent events. \`log\` is a request as \`GET /logs\` lists it, a second after it ended at the latest. Of one second at most ${MOST} are sent; \`dropped\` says how many more there were, null for an unknown number. \`error\` is the last event when the credential or its rights are gone, with the body of the refusal. Of several nodes with one Redis it follows all: of each other node at most 50 requests a second, a second or two later. \`incomplete\` names nodes whose requests are missing from now on, null for all others, and an empty list when they come again. Filters are those of the list, without feedback, which comes later. A process serves 20 such answers, and 10 of them to one organisation; more are refused with 429.`,
  tag: 'Logs',
  auth: 'key_or_login',
  scopes: ['logs.list', 'logs.view'],
  tenant: 'workspace_optional',
  workspace: 'past',
  params: null,
  query: z.strictObject(fields).superRefine(checkBounds),
  body: null,
  answers: { as: 'events', everyMs: EVERY_MS },
  response: z.object({
    events: z.array(
      z.union([
        z.object({ event: z.literal('log'), data: listedLog }),
        z.object({ event: z.literal('incomplete'), data: z.object({ nodes: z.array(z.string()).nullable() }) }),
        z.object({ event: z.literal('dropped'), data: z.object({ requests: z.int().nullable() }) }),
      ]),
    ),
    next: z.string(),
  }),
  writes: false,
  audit: null,
  ahead: async (call) => {
    const { clock, since } = call;
    const query: Filters & { readonly dry_run?: boolean | undefined } = call.query;
    const reach = await reachOf(call, 'logs.view');
    // By their arrival, whatever their times are.
    const range = { time_of_generation_min: toIso(0), time_of_generation_max: toIso(clock.now() + DAY_MS) };
    const selection = selectionOf(reach, range, conditionsOf(query), dryRunCondition(query));
    return withServices({ logs: KEPT_LOGS }, async ({ logs: { store } }): Promise<Asked> => {
      return { came: await store.arrived(selection, { columns: LIST_COLUMNS, since, limit: MOST }), reach };
    });
  },
  run: async ({ asked, tx }) => {
    if (asked === null) throw new Error('the records were asked for before');
    const { came, reach } = asked;
    const names = await namesOf(tx, idsOf(came.rows));
    return {
      events: [
        ...came.rows.map((row) => ({ event: 'log' as const, data: listedOf(row, names, reach.sight) })),
        ...(came.incomplete === undefined
          ? []
          : [
              { event: 'incomplete' as const, data: { nodes: came.incomplete === null ? null : [...came.incomplete] } },
            ]),
        ...(came.left === 0 ? [] : [{ event: 'dropped' as const, data: { requests: came.left } }]),
      ],
      next: came.next,
    };
  },
});
