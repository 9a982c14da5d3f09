/** `GET /logs` and `GET /logs/histogram`: the stored requests, newest first, and their number over time. */
import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import type { LogFilter, LogFoundPage, LogGroups, LogPage, LogSelection } from '../../telemetry/log-query.ts';
import { feedbackFilter } from '../analytics/feedback-filter.ts';
import {
  bucketKey,
  checkBounds,
  checkRange,
  conditionsOf,
  type Filters,
  filterFields,
  placeFields,
  type Range,
  selectionOf,
  zoneField,
} from '../analytics/filters.ts';
import { coverageFields, coverageOf, whole } from '../analytics/numbers.ts';
import { optionalRangeFields, rangeOf } from '../analytics/range.ts';
import { toIso } from '../body-fields.ts';
import { refuse } from '../common.ts';
import { queryBoolean, queryInteger } from '../fields.ts';
import { action, type Call } from '../resource.ts';
import { afterCommit, withServices } from '../services.ts';
import { bodySettings } from '../settings/settings.ts';
import { type BodyReader, KEPT_BODIES } from './bodies.ts';
import { cursorOf, questionDigest, readCursor } from './cursor.ts';
import { namesOf } from './names.ts';
import { KEPT_LOGS, type Reach, reachOf } from './reach.ts';
import { idsOf, LIST_COLUMNS, listedLog, listedOf } from './rows.ts';

const MOST = 200;
const DEFAULT = 50;
const MOST_COUNTED = 10_000;

/** What chooses the requests of a list. */
export const logFilterFields = {
  ...placeFields,
  ...filterFields,
  dry_run: queryBoolean.optional().describe('`true`: dry runs only; `false`: none. Both when absent.'),
} as const;

type LogFilters = Filters & { readonly dry_run?: boolean | undefined };

export function dryRunCondition({ dry_run: is }: Pick<LogFilters, 'dry_run'>): LogFilter[] {
  return is === undefined ? [] : [{ column: 'dry_run', is }];
}

/** The question of a list without its feedback, whose caller may not say what else is read. */
function questionOf(reach: Reach, query: LogFilters, range: Range): LogSelection {
  return selectionOf(reach, range, conditionsOf(query), dryRunCondition(query));
}

/** The same, of requests that have the feedback that is asked for. */
async function withFeedback(
  call: Pick<Call, 'tx'>,
  reach: Reach,
  query: LogFilters,
  question: LogSelection,
): Promise<LogSelection> {
  return { ...question, where: [...question.where, ...(await feedbackFilter(call, reach, query, question.from))] };
}

/** What `ahead` has asked. */
interface Asked {
  readonly page: LogPage;
  readonly total: number | null;
  readonly reach: Reach;
  readonly selection: LogSelection;
  readonly digest: string;
  readonly found: LogFoundPage | null;
}

const listQuery = z
  .strictObject({
    ...logFilterFields,
    ...optionalRangeFields,
    limit: queryInteger(1, MOST).optional().describe(`Default ${DEFAULT}.`),
    order: z.enum(['newest', 'oldest']).optional().describe('`newest` first when absent.'),
    cursor: z.string().max(1_000).optional().describe('`next_cursor` of the page before, with the same parameters.'),
    q: z
      .string()
      .min(2)
      .max(200)
      .optional()
      .describe(
        'A phrase in the kept bodies, in any case: requests and answers of one workspace are read for it, the newest first, for about a second. It needs `logs.view`.',
      ),
    total: queryBoolean.optional().describe(`\`true\`: counts the requests, to ${MOST_COUNTED + 1} at most.`),
  })
  .superRefine(checkRange)
  .superRefine(checkBounds)
  .superRefine(({ q, total }, context) => {
    if (q === undefined || total !== true) return;
    context.addIssue({ code: 'custom', path: ['total'], message: 'cannot be combined with q' });
  });

export const logList = action({
  id: 'logs.list',
  method: 'GET',
  path: '/logs',
  summary: 'List requests',
  description:
    'The stored requests that the credential may see, newest first. Pages follow each other by `next_cursor`: requests that arrive meanwhile are not in them. Without a workspace, organisation-wide credentials read the whole organisation.',
  tag: 'Logs',
  auth: 'key_or_login',
  scopes: ['logs.list', 'logs.view'],
  tenant: 'workspace_optional',
  workspace: 'past',
  params: null,
  query: listQuery,
  body: null,
  response: z.object({
    object: z.literal('list'),
    data: z.array(listedLog),
    next_cursor: z.string().nullable().describe('Null: there are no more.'),
    total: z
      .int()
      .optional()
      .describe(`With \`total=true\`; ${MOST_COUNTED + 1} means more than ${MOST_COUNTED}.`),
    search: z
      .object({
        complete: z
          .boolean()
          .describe('`false`: the time was over before the page was full. `next_cursor` searches on from there.'),
        searched: z.int().describe('Requests whose bodies were looked at.'),
        unread: z.int().describe('Of these, requests whose bodies could not be read.'),
      })
      .optional()
      .describe('With `q`.'),
    ...coverageFields,
  }),
  writes: false,
  audit: null,
  ahead: async (call) => {
    const { query, vault, clock } = call;
    const reach = await reachOf(call, 'logs.view');
    const first = questionOf(reach, query, rangeOf(query, clock.now()));
    const order = query.order ?? 'newest';
    // Of feedback what was asked for, and not what it comes to: more of it may come between two pages.
    const { time_of_generation_min, time_of_generation_max, weighted_feedback_min, weighted_feedback_max } = query;
    const { q } = query;
    const bodies = q === undefined ? null : await bodiesToSearch(call, reach);
    const bounds = [time_of_generation_min, time_of_generation_max, weighted_feedback_min, weighted_feedback_max];
    const digest = questionDigest(first, JSON.stringify([order, ...bounds, ...(q === undefined ? [] : [q])]));
    const on = query.cursor === undefined ? null : readCursor(vault, query.cursor, digest);
    const asked = on === null ? first : { ...first, from: on.from, to: on.to };
    const selection = await withFeedback(call, reach, query, asked);
    return withServices({ logs: KEPT_LOGS }, async ({ logs: { store } }): Promise<Asked> => {
      const { limit = DEFAULT } = query;
      const wanted = { columns: LIST_COLUMNS, order, limit, behind: on?.behind ?? null } as const;
      if (bodies !== null && q !== undefined) {
        // The page of the records says what of them is missing here.
        const [page, found] = await Promise.all([
          store.page(selection, { ...wanted, columns: ['id'], limit: 1 }),
          bodies.search(selection, { ...wanted, ...bodies.rules, phrase: q }),
        ]);
        const { rows, next } = found;
        return { page: { ...page, rows, next }, total: null, reach, selection, digest, found };
      }
      const [page, total] = await Promise.all([
        store.page(selection, wanted),
        query.total === true ? store.count(selection, MOST_COUNTED) : null,
      ]);
      return { page, total, reach, selection, digest, found: null };
    });
  },
  run: async ({ asked, tx, vault }) => {
    if (asked === null) throw new Error('the page was asked for before');
    const { page, total, reach, selection, digest, found } = asked;
    const names = await namesOf(tx, idsOf(page.rows));
    const { from, to } = selection;
    return {
      object: 'list' as const,
      data: page.rows.map((row) => listedOf(row, names, reach.sight)),
      next_cursor: page.next === null ? null : cursorOf(vault, { behind: page.next, from, to }, digest),
      ...(total === null ? {} : { total }),
      ...(found === null ? {} : { search: searchOf(found) }),
      ...coverageOf(page),
    };
  },
});

const searchOf = ({ complete, searched, unread }: LogFoundPage) => ({ complete, searched, unread });

/** The bodies of one workspace, as far as the caller may read them. */
async function bodiesToSearch(call: Pick<Call, 'principal' | 'tx' | 'clock' | 'service'>, { scope, sight }: Reach) {
  if (!call.principal.scopes.has('logs.view')) {
    throw new SluiceError('forbidden', 'A search in bodies (q) needs the scope logs.view.', { param: 'q' });
  }
  const [id, ...more] = scope.workspaceIds ?? [];
  if (id === undefined || more.length > 0) {
    throw refuse('q', 'searches the bodies of one workspace: name it with workspace_slug or workspace_id');
  }
  const reader = call.service(KEPT_BODIES);
  if (reader === null) throw new SluiceError('unavailable', 'This node has no store of kept bodies.');
  const { days } = bodySettings(await call.tx.organisation(), (await call.tx.find('workspaces', { id })) ?? null);
  const since = call.clock.now() - Math.min(days ?? reader.days, reader.days) * DAY_MS;
  const search: BodyReader['search'] = (...asked) => reader.search(...asked);
  return { search, rules: { since, noMetadata: sight.noMetadata !== null } };
}

const DAY_MS = 86_400_000;
const OUTCOMES = ['ok', 'refused', 'failed', 'aborted'] as const;
const counts = { total: z.int(), ok: z.int(), refused: z.int(), failed: z.int(), aborted: z.int() };

export const logHistogram = action({
  id: 'logs.histogram',
  method: 'GET',
  path: '/logs/histogram',
  summary: 'Count requests over time by outcome',
  description: 'The number of requests of a list in each bucket of time, by what became of them.',
  tag: 'Logs',
  auth: 'key_or_login',
  scopes: ['logs.list', 'logs.view'],
  tenant: 'workspace_optional',
  workspace: 'past',
  params: null,
  query: z
    .strictObject({ ...logFilterFields, ...optionalRangeFields, ...zoneField })
    .superRefine(checkRange)
    .superRefine(checkBounds),
  body: null,
  response: z.object({
    object: z.literal('log-histogram'),
    summary: z.object(counts),
    data_points: z.array(z.object({ timestamp: z.string(), ...counts })),
    bucket: z.enum(['minute', 'hour', 'day', 'week']),
    zone: z.string(),
    ...coverageFields,
  }),
  writes: false,
  audit: null,
  run: async (call) => {
    const { query, clock } = call;
    const reach = await reachOf(call, 'logs.view');
    const range = rangeOf(query, clock.now());
    const selection = await withFeedback(call, reach, query, questionOf(reach, query, range));
    const zone = query.zone ?? 'UTC';
    const { buckets, key } = bucketKey(range, zone);
    return afterCommit({ logs: KEPT_LOGS }, async ({ logs }) => {
      const measures = [
        { as: 'total', of: 'count' as const },
        ...OUTCOMES.map((outcome) => ({
          as: outcome,
          of: 'count' as const,
          where: [{ column: 'outcome', in: [outcome] }],
        })),
      ];
      const found = await logs.store.groups(selection, { by: [key], measures });
      const points = new Map(found.groups.map(({ keys, values }) => [keys[0], values]));
      return {
        object: 'log-histogram' as const,
        summary: countsOf(found.summary),
        data_points: buckets.starts.map((start, at) => ({
          timestamp: toIso(start),
          ...countsOf(points.get(at) ?? {}),
        })),
        bucket: buckets.width,
        zone,
        ...coverageOf(found),
      };
    });
  },
});

function countsOf(values: LogGroups['summary']) {
  return {
    total: whole(values.total),
    ok: whole(values.ok),
    refused: whole(values.refused),
    failed: whole(values.failed),
    aborted: whole(values.aborted),
  };
}
