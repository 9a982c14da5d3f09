/** `GET /analytics/groups/…` and `/logs/groups/…`: requests by one or two of their properties. */
import { z } from 'zod';
import type { LogFilter, LogGroup, LogGroupKey, LogGroups } from '../../telemetry/log-query.ts';
import { toMillis } from '../body-fields.ts';
import { queryBoolean, queryInteger, queryList } from '../fields.ts';
import { pageFields, pageOf } from '../kinds/lists.ts';
import { type Names, namesOf } from '../logs/names.ts';
import { checkMetadataSeen, KEPT_LOGS, type Reach, reachOf, type Unnamed } from '../logs/reach.ts';
import { type AnyAction, action, type Call } from '../resource.ts';
import { withServices } from '../services.ts';
import {
  COLUMN_NAMES,
  COLUMNS,
  type ColumnName,
  columnFields,
  DIMENSIONS,
  type DimensionName,
  dimensionOf,
  fieldsOf,
  measuresOf,
  ORDERS,
} from './columns.ts';
import {
  FEEDBACK_COLUMNS,
  type FeedbackColumn,
  feedbackFields,
  feedbackOfGroups,
  feedbackShown,
  type GroupFeedback,
} from './feedback-columns.ts';
import { feedbackFilter, feedbackWhere, tracesWith } from './feedback-filter.ts';
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
import { approximateField, coverageFields, coverageOf } from './numbers.ts';
import { optionalRangeFields, rangeOf } from './range.ts';

const MOST_GROUPS = 1_000;
const DEFAULT_GROUPS = 50;
const METADATA = 'metadata.';
const VALUE = 'metadata_value';
/** Where both properties are keys of the metadata. */
const SECOND_VALUE = 'and_metadata_value';

const dimensionNames = Object.keys(DIMENSIONS) as [DimensionName, ...DimensionName[]];

/** The second property: a name, or a key of the metadata. */
const second = z
  .string()
  .refine(
    (name) => Object.hasOwn(DIMENSIONS, name) || (name.startsWith(METADATA) && isKey(name.slice(METADATA.length))),
    `must be metadata.<key> or one of ${dimensionNames.join(', ')}`,
  )
  .optional()
  .describe('A second property: groups are then of both values. Also `metadata.<key>`.');

const isKey = (key: string): boolean => key.length > 0 && key.length <= 128;

const groupFields = {
  ...placeFields,
  ...wholeField,
  ...filterFields,
  ...pageFields(MOST_GROUPS),
  page_size: queryInteger(1, MOST_GROUPS).optional().describe(`Default ${DEFAULT_GROUPS}.`),
  order_by: z.enum(ORDERS).optional().describe('A column; `requests` when absent.'),
  order_by_type: z.enum(['asc', 'desc']).optional().describe('`desc` when absent.'),
  columns: queryList(z.enum([...COLUMN_NAMES, ...FEEDBACK_COLUMNS]), COLUMN_NAMES.length + FEEDBACK_COLUMNS.length)
    .optional()
    .describe('Figures of each group, comma-separated; `requests` is always there.'),
  and: second,
  includeTotal: queryBoolean.optional().describe('`false`: the answer has no `total`.'),
  include_total: queryBoolean.optional().describe('The same as includeTotal.'),
} as const;

const analyticsQuery = z
  .strictObject({ ...groupFields, ...rangeFields })
  .superRefine(checkRange)
  .superRefine(checkBounds);
const logsQuery = z
  .strictObject({ ...groupFields, ...optionalRangeFields })
  .superRefine(checkRange)
  .superRefine(checkBounds);
type GroupQuery = z.output<typeof logsQuery>;

const text = z.string().nullable();
const dimensionFields: z.ZodRawShape = {
  ...Object.fromEntries(
    Object.values(DIMENSIONS).flatMap((each) => {
      const { field, kind, also, names } = each as ReturnType<typeof dimensionOf>;
      const schema = (kind === 'integer' ? z.int() : z.string()).nullable().optional();
      const entries: [string, z.ZodType][] = [[field, schema]];
      if (also !== undefined) entries.push([also, schema]);
      if (names !== undefined)
        entries.push([`${names}_name`, text.optional().describe('As it is now; null when it is gone.')]);
      return entries;
    }),
  ),
  workspace_slug: text.optional(),
  [VALUE]: text.optional(),
  [SECOND_VALUE]: text
    .optional()
    .describe('Of the key in `and`, where the first property is a key of the metadata, too.'),
  value: text.optional(),
};

/** `users` and the like write some numbers as texts. */
function answerOf(texts: readonly string[], total: boolean) {
  const asText = Object.fromEntries(texts.map((name) => [name, z.string()]));
  const second = Object.fromEntries(Object.entries(dimensionFields).map(([name, schema]) => [name, schema]));
  return z.object({
    object: z.literal('list'),
    total: total
      ? z.int().min(0)
      : z.int().min(0).optional().describe('Number of groups; absent with `includeTotal=false`.'),
    data: z.array(
      z.object({ ...second, ...columnFields, ...feedbackFields, ...asText, object: z.literal('analytics-group') }),
    ),
    summary: z.object({ ...columnFields, ...feedbackFields }).describe('The same figures over all requests.'),
    ...coverageFields,
    ...approximateField,
  });
}

/** One list of groups. */
interface List {
  readonly id: string;
  readonly path: string;
  readonly title: string;
  readonly by: 'groupBy' | 'metadataKey' | DimensionName;
  readonly columns: readonly (ColumnName | FeedbackColumn)[];
  /** Numbers that are written as texts. */
  readonly texts?: readonly string[];
  /** Requests without the property are left out. */
  readonly known?: true;
  readonly unnamed?: Unnamed;
  /** The field of a value of metadata. */
  readonly field?: 'metadata_value' | 'value';
}

const BY_METADATA = { by: 'metadataKey', known: true } as const;
const LISTS: readonly List[] = [
  {
    id: 'users',
    path: 'groups/users',
    title: 'Group requests by user',
    by: 'users',
    columns: ['cost'],
    texts: ['requests', 'cost'],
    known: true,
  },
  {
    id: 'ai-models',
    path: 'groups/ai-models',
    title: 'Group requests by model',
    by: 'ai-models',
    columns: [],
    texts: ['requests'],
    known: true,
  },
  {
    id: 'provider',
    path: 'groups/provider',
    title: 'Group requests by provider',
    by: 'provider',
    columns: [],
    texts: ['requests'],
    known: true,
  },
  {
    id: 'workspaces',
    path: 'groups/workspaces',
    title: 'Group requests by workspace',
    by: 'workspace',
    columns: ['cost', 'total_tokens'],
    unnamed: 'whole organisation',
  },
  {
    id: 'metadata',
    path: 'groups/metadata/:metadataKey',
    title: 'Group requests by a key of their metadata',
    columns: ['cost', 'avg_tokens', ...FEEDBACK_COLUMNS, 'last_seen'],
    field: 'metadata_value',
    ...BY_METADATA,
  },
  { id: 'by', path: 'groups/:groupBy', title: 'Group requests by a property', by: 'groupBy', columns: [] },
  {
    id: 'values',
    path: 'metadata/:metadataKey',
    title: 'List the values of a key of the metadata',
    columns: [],
    field: 'value',
    ...BY_METADATA,
  },
];

const DESCRIPTION =
  'Groups of requests, those with most requests first. `columns` adds figures, `and` a second property. Money is in cents, with micro-dollars beside it.';

/** What `ahead` has asked. */
interface Asked {
  readonly found: LogGroups;
  readonly feedback: GroupFeedback | null;
}

function listAction(list: List, area: 'analytics' | 'logs'): AnyAction {
  const params =
    list.by === 'groupBy'
      ? z.strictObject({ groupBy: z.enum(dimensionNames) })
      : list.by === 'metadataKey'
        ? z.strictObject({ metadataKey: z.string().refine(isKey, 'must have 1 to 128 characters') })
        : null;
  const right = area === 'logs' ? 'logs.view' : 'analytics.view';
  const reach = (call: Call<unknown, GroupQuery>) => {
    const whole = area === 'logs' || call.query.all_workspaces === true || isByWorkspace(list, call.params);
    return reachOf(call, right, whole ? 'whole organisation' : (list.unnamed ?? 'default workspace'));
  };
  return action<unknown, GroupQuery, unknown, Record<string, unknown>, Asked>({
    id: `${area}.groups.${list.id}`,
    method: 'GET',
    path: `/${area}/${list.path}`,
    summary: list.title,
    description: DESCRIPTION,
    tag: area === 'logs' ? 'Logs' : 'Analytics',
    auth: 'key_or_login',
    scopes: area === 'logs' ? ['logs.list', 'logs.view'] : ['analytics.view'],
    tenant: 'workspace_optional',
    workspace: 'past',
    params: params as z.ZodType<unknown>,
    query: (area === 'logs' ? logsQuery : analyticsQuery) as z.ZodType<GroupQuery>,
    body: null,
    response: answerOf(list.texts ?? [], false) as z.ZodType<unknown, Record<string, unknown>>,
    writes: false,
    audit: null,
    ahead: async (call) => {
      const { query, params } = call;
      const own = await reach(call);
      const keys = keysOf(list, params, query, own);
      const known = list.known === true ? keys.slice(0, 1).flatMap(isKnown) : [];
      const range = rangeOf(query, call.clock.now());
      const from = toMillis(range.time_of_generation_min);
      const where = [REAL, ...(await feedbackFilter(call, own, query, from)), ...known];
      const selection = selectionOf(own, range, conditionsOf(query), where);
      const wanted = feedbackColumnsOf(list, query).length > 0;
      const given = wanted ? await tracesWith(call, feedbackWhere(own, { from }, {})) : null;
      const order = query.order_by ?? 'requests';
      const { limit = DEFAULT_GROUPS, offset = 0 } = pageOf(query, DEFAULT_GROUPS);
      return withServices({ logs: KEPT_LOGS }, async ({ logs: { store } }) => {
        const found = await store.groups(selection, {
          by: keys,
          measures: measuresOf([...columnsOf(list, query), order]),
          order: { by: COLUMNS[order].order, descending: query.order_by_type !== 'asc' },
          limit,
          offset,
        });
        if (given === null) return { found, feedback: null };
        const feedback = await feedbackOfGroups(store, selection, keys, given.traces);
        return { found, feedback: { ...feedback, exact: feedback.exact && given.all } };
      });
    },
    run: async (call) => {
      const { asked, query, params, tx } = call;
      if (asked === null) throw new Error('the groups were asked for before');
      const { found, feedback } = asked;
      const feedbackColumns = feedbackColumnsOf(list, query);
      const approximate = [...found.approximate, ...(feedback?.exact === false ? feedbackColumns : [])];
      const shown = partsOf(list, params, query);
      const names = await namesOf(tx, idsOf(shown, found.groups));
      const columns = columnsOf(list, query);
      const counts = query.includeTotal !== false && query.include_total !== false;
      return {
        object: 'list',
        ...(counts ? { total: found.total } : {}),
        data: found.groups.map(({ keys, values }) => ({
          ...Object.assign({}, ...shown.map((part, index) => keyFields(part, keys[index] ?? null, names))),
          // Of the two forms that the paths below `/logs` have, this one has both fields.
          ...(area === 'logs' && list.field === 'metadata_value' ? { value: keys[0] } : {}),
          ...asTexts(list.texts ?? [], fieldsOf(columns, values)),
          ...(feedback === null ? {} : feedbackShown(feedbackColumns, feedback.of({ keys }))),
          object: 'analytics-group',
        })),
        summary: {
          ...fieldsOf(columns, found.summary),
          ...(feedback === null ? {} : feedbackShown(feedbackColumns, feedback.whole)),
        },
        ...coverageOf(found),
        ...(approximate.length === 0 ? {} : { approximate }),
      };
    },
  });
}

const isByWorkspace = (list: List, params: unknown): boolean =>
  list.by === 'workspace' || (list.by === 'groupBy' && (params as { groupBy?: string }).groupBy === 'workspace');

/** A property that groups are of. */
type Part = { readonly dimension: DimensionName } | { readonly metadata: string; readonly field: string };

function partsOf(list: List, params: unknown, query: GroupQuery): Part[] {
  const { groupBy, metadataKey = '' } = params as { groupBy?: DimensionName; metadataKey?: string };
  const first: Part =
    list.by === 'metadataKey'
      ? { metadata: metadataKey, field: list.field ?? 'metadata_value' }
      : { dimension: list.by === 'groupBy' ? (groupBy ?? 'model') : list.by };
  if (query.and === undefined) return [first];
  const key = query.and.startsWith(METADATA) ? query.and.slice(METADATA.length) : null;
  if (key === null) return [first, { dimension: query.and as DimensionName }];
  return [first, { metadata: key, field: 'field' in first && first.field === VALUE ? SECOND_VALUE : VALUE }];
}

function keysOf(list: List, params: unknown, query: GroupQuery, { sight }: Reach): LogGroupKey[] {
  return partsOf(list, params, query).map((part) => {
    if ('metadata' in part) {
      checkMetadataSeen(sight, null);
      return { metadata: part.metadata };
    }
    const dimension = dimensionOf(part.dimension);
    if (dimension.metadata === true) checkMetadataSeen(sight, null);
    return { column: dimension.column };
  });
}

const isKnown = (key: LogGroupKey): LogFilter[] => ('bounds' in key ? [] : [{ ...key, known: true }]);

const isFeedback = (name: ColumnName | FeedbackColumn): name is FeedbackColumn =>
  (FEEDBACK_COLUMNS as readonly string[]).includes(name);

const allColumnsOf = (list: List, { columns = [] }: GroupQuery) => [
  ...new Set<ColumnName | FeedbackColumn>(['requests', ...list.columns, ...columns]),
];

const columnsOf = (list: List, query: GroupQuery): ColumnName[] =>
  allColumnsOf(list, query).filter((name) => !isFeedback(name));

const feedbackColumnsOf = (list: List, query: GroupQuery): FeedbackColumn[] =>
  allColumnsOf(list, query).filter(isFeedback);

function idsOf(parts: readonly Part[], groups: readonly LogGroup[]) {
  const ids = { api_key: [] as string[], workspace: [] as string[], user: [] as string[] };
  for (const [index, part] of parts.entries()) {
    const names = 'dimension' in part ? dimensionOf(part.dimension).names : undefined;
    if (names === undefined) continue;
    for (const { keys } of groups) if (typeof keys[index] === 'string') ids[names].push(keys[index]);
  }
  return ids;
}

function keyFields(part: Part, key: string | number | null, names: Names): Record<string, unknown> {
  if ('metadata' in part) return { [part.field]: key };
  const { field, also, names: kind } = dimensionOf(part.dimension);
  const named = kind === undefined ? undefined : names[kind].get(String(key));
  return {
    [field]: key,
    ...(also === undefined ? {} : { [also]: key }),
    ...(kind === undefined ? {} : { [`${kind}_name`]: named?.name ?? null }),
    ...(kind === 'workspace' ? { workspace_slug: named?.slug ?? null } : {}),
  };
}

function asTexts(texts: readonly string[], fields: Record<string, unknown>): Record<string, unknown> {
  for (const name of texts) if (name in fields) fields[name] = String(fields[name]);
  return fields;
}

/** Those below `/analytics` and those below `/logs`. */
export const analyticsGroups: readonly AnyAction[] = LISTS.map((list) => listAction(list, 'analytics'));
export const logGroups: readonly AnyAction[] = LISTS.map((list) => listAction(list, 'logs'));
