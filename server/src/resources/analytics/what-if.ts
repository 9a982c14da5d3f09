/** `POST /analytics/what-if`: what the same requests would have cost with other models. */
import { z } from 'zod';
import { NO_TOKENS, type TokenUsage } from '../../operations/usage.ts';
import { costMicros } from '../../pricing/cost.ts';
import { type Price, priceOf } from '../../pricing/price.ts';
import type { LogGroup, LogGroups, LogMeasure } from '../../telemetry/log-query.ts';
import { isoDate, toMillis } from '../body-fields.ts';
import { tenantFields } from '../fields.ts';
import { KEPT_LOGS, reachOf } from '../logs/reach.ts';
import { action } from '../resource.ts';
import { afterCommit } from '../services.ts';
import { feedbackFilter } from './feedback-filter.ts';
import { checkBounds, checkRange, conditionsOf, filterFields, REAL, selectionOf } from './filters.ts';
import { centsOf, coverageFields, coverageOf, whole } from './numbers.ts';

const MOST_MAPPED = 50;
/** Groups of provider and model. */
const MOST_MODELS = 1_000;

/** The columns of each class of tokens. */
const CLASSES: readonly (readonly [keyof TokenUsage, string])[] = [
  ['input', 'tokens_in'],
  ['output', 'tokens_out'],
  ['cache_read', 'tokens_cache_read'],
  ['cache_write', 'tokens_cache_write'],
  ['reasoning', 'tokens_reasoning'],
  ['audio_input', 'tokens_audio_in'],
  ['audio_output', 'tokens_audio_out'],
];

const MEASURES: readonly LogMeasure[] = [
  { as: 'requests', of: 'count' },
  { as: 'micros', of: 'sum', column: 'cost_micros' },
  ...CLASSES.map(([name, column]): LogMeasure => ({ as: name, of: 'sum', column })),
];

const model = z
  .string()
  .regex(/^.{1,128}?__.{1,255}$/s, 'must be provider__model, such as openai__gpt-4o')
  .transform((value) => {
    const at = value.indexOf('__');
    return { provider: value.slice(0, at), model: value.slice(at + 2) };
  });

/** Filters are those of the query of a graph; in a body numbers may be numbers, and metadata an object. */
const filters = z.preprocess(
  (value) =>
    typeof value !== 'object' || value === null || Array.isArray(value)
      ? value
      : Object.fromEntries(
          Object.entries(value).map(([name, each]): [string, unknown] => [
            name,
            typeof each === 'number' ? String(each) : isPlain(each) ? JSON.stringify(each) : each,
          ]),
        ),
  z.strictObject(filterFields).superRefine(checkBounds),
);

const isPlain = (value: unknown): boolean => typeof value === 'object' && value !== null && !Array.isArray(value);

const body = z
  .strictObject({
    ...tenantFields,
    time_of_generation_min: isoDate.describe('From this time on, ISO 8601 with a zone.'),
    time_of_generation_max: isoDate.describe('Before this time.'),
    filters: filters.optional().describe('Which requests: the conditions of the graphs.'),
    map: z
      .array(z.strictObject({ from: model, to: model }))
      .min(1, 'must name at least one model')
      .max(MOST_MAPPED, `must name at most ${MOST_MAPPED} models`)
      .describe('Each model with the one in its place, as `provider__model`.'),
  })
  .superRefine(checkRange)
  .superRefine(({ map }, context) => {
    const seen = new Set<string>();
    for (const [at, { from }] of map.entries()) {
      const name = JSON.stringify(from);
      if (seen.has(name)) {
        context.addIssue({ code: 'custom', path: ['map', at, 'from'], message: 'must be named once', input: from });
      }
      seen.add(name);
    }
  });

const named = z.object({ provider: z.string(), model: z.string() });
const money = (what: string) => z.int().describe(`${what}, in cents, rounded half up.`);

export const whatIf = action({
  id: 'analytics.what-if',
  method: 'POST',
  path: '/analytics/what-if',
  summary: 'Ask what requests would have cost with other models',
  description:
    'Takes the tokens of stored requests and the published prices of other models. It is an estimate: models count tokens differently, and a model may not offer what a request used. Credentials that are bound to no workspace read the whole organisation unless `workspace_id` names one.',
  tag: 'Analytics',
  auth: 'key_or_login',
  scopes: ['analytics.view'],
  tenant: 'workspace_optional',
  workspace: 'past',
  params: null,
  query: null,
  body,
  response: z.object({
    object: z.literal('analytics-what-if'),
    exact: z.literal(false).describe('Always: tokens are those that the first model has counted.'),
    requests: z.int().describe('Requests of the mapped models that have tokens and a price on both sides.'),
    unpriced_requests: z.int().describe('Requests of the mapped models that have no price; they are in no sum.'),
    cost: money('What they have cost'),
    cost_micros: z.int(),
    would_cost: money('What they would have cost'),
    would_cost_micros: z.int(),
    saving: money('The difference; below 0 where the other models cost more'),
    saving_micros: z.int(),
    models: z.array(
      z.object({
        from: named,
        to: named,
        requests: z.int(),
        cost_micros: z.int(),
        would_cost_micros: z.int().nullable().describe('Null: the model in its place has no known price.'),
        saving_micros: z.int().nullable(),
      }),
    ),
    ...coverageFields,
  }),
  writes: false,
  readOnly: true,
  audit: null,
  run: async (call) => {
    const { body: asked, clock } = call;
    const reach = await reachOf(call, 'analytics.view');
    const chosen = asked.filters ?? {};
    const priced = { column: 'cost_micros', known: true } as const;
    const mapped = {
      anyOf: asked.map.map(({ from }) => [
        { column: 'provider', in: [from.provider] },
        { column: 'model', in: [from.model] },
      ]),
    };
    const from = toMillis(asked.time_of_generation_min);
    const own = [REAL, mapped, ...(await feedbackFilter(call, reach, chosen, from))];
    const selection = selectionOf(reach, asked, conditionsOf(chosen), own);
    const now = clock.now();
    return afterCommit({ logs: KEPT_LOGS }, async ({ logs }) => {
      const found = await logs.store.groups(selection, {
        by: [{ column: 'provider' }, { column: 'model' }],
        measures: [
          ...MEASURES.map((measure) => ({ ...measure, where: [priced] })),
          { as: 'all', of: 'count', where: [{ column: 'tokens_total', known: true }] },
        ],
        limit: MOST_MODELS,
      });
      return answerOf(found, asked.map, now);
    });
  },
});

type Mapped = z.output<typeof body>['map'];

function answerOf(found: LogGroups, map: Mapped, now: number) {
  const groups = new Map(found.groups.map((group) => [JSON.stringify(group.keys), group]));
  const models = map.map(({ from, to }) => {
    const group = groups.get(JSON.stringify([from.provider, from.model]));
    const price = priceOf(to.provider, to.model, now);
    const micros = whole(group?.values.micros);
    const would = price === null || group === undefined ? null : costOf(price, group);
    return {
      all: whole(group?.values.all),
      from,
      to,
      requests: whole(group?.values.requests),
      cost_micros: micros,
      would_cost_micros: price === null ? null : (would ?? 0),
      saving_micros: price === null ? null : micros - (would ?? 0),
    };
  });
  const compared = models.filter(({ would_cost_micros: would }) => would !== null);
  const sum = (of: (one: (typeof models)[number]) => number | null) =>
    compared.reduce((all, one) => all + (of(one) ?? 0), 0);
  const [cost, would] = [sum((one) => one.cost_micros), sum((one) => one.would_cost_micros)];
  const requests = sum((one) => one.requests);
  return {
    object: 'analytics-what-if' as const,
    exact: false as const,
    requests,
    unpriced_requests: Math.max(0, models.reduce((all, one) => all + one.all, 0) - requests),
    cost: centsOf(cost),
    cost_micros: cost,
    would_cost: centsOf(would),
    would_cost_micros: would,
    saving: centsOf(cost - would),
    saving_micros: cost - would,
    models: models.map(({ all: _all, ...shown }) => shown),
    ...coverageOf(found),
  };
}

const ATTO_PER_MICRO = 10n ** 12n;

/** Micro-dollars of all requests of a group: the price of a long input is that of the average one. */
function costOf(price: Price, { values }: LogGroup): number {
  const requests = whole(values.requests);
  if (requests === 0) return 0;
  const usage: TokenUsage = {
    ...NO_TOKENS,
    ...Object.fromEntries(CLASSES.map(([name]) => [name, whole(values[name])])),
  };
  const average = usage.input / requests;
  const tier = price.tiers.findLast(({ above }) => average > above) ?? price.tiers[0];
  const fees = Number((tier.request * BigInt(requests - 1)) / ATTO_PER_MICRO);
  return costMicros({ ...price, tiers: [tier] }, usage).micros + fees;
}
