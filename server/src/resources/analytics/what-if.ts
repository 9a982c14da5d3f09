/** `POST /analytics/what-if`: what the same requests would have cost with other models. */
import { z } from 'zod';
import { OPERATIONS, type OperationId } from '../../operations/operation.ts';
import { NO_TOKENS, type TokenUsage } from '../../operations/usage.ts';
import { costMicros } from '../../pricing/cost.ts';
import { contextWindowOf } from '../../pricing/library.ts';
import { type Price, priceOf } from '../../pricing/price.ts';
import { bindingFor } from '../../providers/binding.ts';
import { providerById } from '../../providers/catalog.ts';
import type { LogCoverage, LogFilter, LogGroup, LogGroups, LogMeasure } from '../../telemetry/log-query.ts';
import { isoDate, toMillis } from '../body-fields.ts';
import { tenantFields } from '../fields.ts';
import { KEPT_LOGS, reachOf } from '../logs/reach.ts';
import { action } from '../resource.ts';
import { afterCommit } from '../services.ts';
import { feedbackFilter } from './feedback-filter.ts';
import { checkBounds, checkRange, conditionsOf, filterFields, REAL, selectionOf } from './filters.ts';
import { centsOf, coverageFields, coverageOf, whole } from './numbers.ts';

const MOST_MAPPED = 50;
/** Groups of provider, model and operation. */
const MOST_GROUPS = 1_000;

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
    'Takes the tokens of stored requests and the published prices of other models. It is an estimate: models count tokens differently, and a model may not offer what a request used. Answers of the cache are left out: they cost nothing. Credentials that are bound to no workspace read the whole organisation unless `workspace_id` names one.',
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
    unserved_requests: z
      .int()
      .describe(
        'Requests that the model in their place cannot serve, as far as is known: its provider has no such operation, or they are longer than its context. They are in no sum.',
      ),
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
        unserved_requests: z.int(),
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
    const from = toMillis(asked.time_of_generation_min);
    const own = [REAL, NOT_CACHED, ...(await feedbackFilter(call, reach, chosen, from))];
    const now = clock.now();
    const targets = asked.map.map(({ from, to }) => targetOf(from, to, now));
    return afterCommit({ logs: KEPT_LOGS }, async ({ logs }) => {
      const answers: Answered[] = [];
      for (const alike of Map.groupBy(targets, ({ asks }) => asks).values()) {
        const selection = selectionOf(reach, asked, conditionsOf(chosen), [...own, modelsOf(alike)]);
        const found = await logs.store.groups(selection, {
          by: [{ column: 'provider' }, { column: 'model' }, { column: 'operation' }],
          measures: alike[0]?.measures ?? [],
          limit: MOST_GROUPS,
        });
        for (const target of alike) answers.push({ target, found, sums: sumsOf(target, found) });
      }
      return answerOf(targets, answers);
    });
  },
});

type Mapped = z.output<typeof body>['map'][number];

/** A model with the one in its place, and what must be asked of the records to price it. */
interface Target extends Mapped {
  /** Null: the model in its place has no known price. */
  readonly price: Price | null;
  /** The same model: what it costs is known. */
  readonly same: boolean;
  readonly measures: readonly LogMeasure[];
  /** Targets of which this is the same are asked for together. */
  readonly asks: string;
}

/** Sums of one target. Amounts in micro-dollars. */
interface Sums {
  readonly requests: number;
  readonly unserved: number;
  readonly unpriced: number;
  readonly cost: number;
  readonly would: number | null;
}

interface Answered {
  readonly target: Target;
  readonly found: LogGroups;
  readonly sums: Sums;
}

/** An answer of the cache has cost nothing, and would not with another model. */
const NOT_CACHED: LogFilter = { column: 'saved_micros', known: false };
const PRICED: LogFilter = { column: 'cost_micros', known: true };

function targetOf(from: Mapped['from'], to: Mapped['to'], now: number): Target {
  const same = from.provider === to.provider && from.model === to.model;
  const price = priceOf(to.provider, to.model, now);
  const window = same ? null : contextWindowOf(to.provider, to.model);
  const above = price?.tiers.map((tier) => tier.above) ?? [0];
  return { from, to, price, same, measures: measuresOf(above, window), asks: JSON.stringify([above, window]) };
}

/**
 * Sums for each tier of a price, of the requests that the context of the model holds: a request is charged by the tier that its
 * whole input falls into.
 */
function measuresOf(above: readonly number[], window: number | null): LogMeasure[] {
  const fits: LogFilter[] = window === null ? [] : [{ column: 'tokens_total', max: window }];
  const tiers = above.flatMap((start, tier): LogMeasure[] => {
    const next = above[tier + 1];
    const min = start === 0 ? {} : { min: start + 1 };
    const max = next === undefined ? {} : { max: next };
    const inside: LogFilter[] = above.length === 1 ? [] : [{ column: 'tokens_in', ...min, ...max }];
    const where = [PRICED, ...fits, ...inside];
    return [
      { as: `requests ${tier}`, of: 'count', where },
      { as: `micros ${tier}`, of: 'sum', column: 'cost_micros', where },
      ...CLASSES.map(([name, column]): LogMeasure => ({ as: `${name} ${tier}`, of: 'sum', column, where })),
    ];
  });
  return [
    ...tiers,
    { as: 'priced', of: 'count', where: [PRICED] },
    ...(window === null
      ? []
      : [{ as: 'beyond', of: 'count', where: [PRICED, { column: 'tokens_total', min: window + 1 }] } as const]),
    { as: 'all', of: 'count', where: [{ column: 'tokens_total', known: true }] },
  ];
}

const modelsOf = (targets: readonly Target[]): LogFilter => ({
  anyOf: targets.map(({ from }) => [
    { column: 'provider', in: [from.provider] },
    { column: 'model', in: [from.model] },
  ]),
});

function sumsOf(target: Target, { groups }: LogGroups): Sums {
  const { from, to, price, same } = target;
  const own = groups.filter(({ keys }) => keys[0] === from.provider && keys[1] === from.model);
  let [requests, unserved, all, cost, would] = [0, 0, 0, 0, 0];
  for (const { keys, values } of own) {
    all += Math.max(whole(values.all), whole(values.priced));
    if (!same && !isServed(to, keys[2])) {
      unserved += whole(values.priced);
      continue;
    }
    unserved += whole(values.beyond);
    for (const [tier] of (price?.tiers ?? [0]).entries()) {
      const micros = whole(values[`micros ${tier}`]);
      requests += whole(values[`requests ${tier}`]);
      cost += micros;
      if (same) would += micros;
      else if (price !== null) would += costOf(price, tier, values);
    }
  }
  const unpriced = Math.max(0, all - requests - unserved);
  return { requests, unserved, unpriced, cost, would: price === null && !same ? null : would };
}

/** Whether the provider has the operation; an unknown operation or provider counts as served. */
function isServed(to: Mapped['to'], operation: string | number | null | undefined): boolean {
  const provider = providerById(to.provider);
  if (provider === undefined || typeof operation !== 'string' || !Object.hasOwn(OPERATIONS, operation)) return true;
  return bindingFor(provider, operation as OperationId, to.model) !== null;
}

function answerOf(targets: readonly Target[], answers: readonly Answered[]) {
  const models = targets.flatMap((target) => answers.filter((one) => one.target === target));
  const compared = models.filter(({ sums }) => sums.would !== null);
  const sum = (some: readonly Answered[], of: (sums: Sums) => number) =>
    some.reduce((all, { sums }) => all + of(sums), 0);
  const [cost, would] = [sum(compared, (one) => one.cost), sum(compared, (one) => one.would ?? 0)];
  const lost = sum(models, ({ would: known, requests }) => (known === null ? requests : 0));
  return {
    object: 'analytics-what-if' as const,
    exact: false as const,
    requests: sum(compared, (one) => one.requests),
    unpriced_requests: lost + sum(models, (one) => one.unpriced),
    unserved_requests: sum(models, (one) => one.unserved),
    cost: centsOf(cost),
    cost_micros: cost,
    would_cost: centsOf(would),
    would_cost_micros: would,
    saving: centsOf(cost - would),
    saving_micros: cost - would,
    models: models.map(({ target: { from, to }, sums }) => ({
      from,
      to,
      requests: sums.requests,
      unserved_requests: sums.unserved,
      cost_micros: sums.cost,
      would_cost_micros: sums.would,
      saving_micros: sums.would === null ? null : sums.cost - sums.would,
    })),
    ...coverageOf(coveredBy(models.map(({ found }) => found))),
  };
}

/** What all answers say of themselves. */
function coveredBy(answers: readonly LogCoverage[]): LogCoverage {
  const incomplete = new Map(answers.flatMap((one) => one.incomplete).map((range) => [JSON.stringify(range), range]));
  return { completeTo: Math.min(...answers.map((one) => one.completeTo)), incomplete: [...incomplete.values()] };
}

const ATTO_PER_MICRO = 10n ** 12n;

/** Micro-dollars of all requests of a group in one tier. */
function costOf({ source, rates, tiers }: Price, at: number, values: LogGroup['values']): number {
  const requests = whole(values[`requests ${at}`]);
  const tier = tiers[at];
  if (requests === 0 || tier === undefined) return 0;
  const usage: TokenUsage = {
    ...NO_TOKENS,
    ...Object.fromEntries(CLASSES.map(([name]) => [name, whole(values[`${name} ${at}`])])),
  };
  const fees = Number((tier.request * BigInt(requests - 1)) / ATTO_PER_MICRO);
  return costMicros({ source, rates, tiers: [tier] }, usage).micros + fees;
}
