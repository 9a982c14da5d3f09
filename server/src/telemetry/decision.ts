/** How a request was decided, in the one shape in which a record tells it afterwards and a dry run beforehand. */
import { z } from 'zod';
import type { DecisionFacts } from './decision-facts.ts';
import type { GuardrailFacts } from './guardrail-facts.ts';
import type { AttemptRecord, LogRecord } from './record.ts';

const object = z.record(z.string(), z.unknown());
const millis = z.number().nullable();
const price = z.object({ source: z.string(), rates: z.record(z.string(), z.number()) });

const cause = z.object({
  kind: z
    .enum([
      'status',
      'answer_error',
      'connection',
      'invalid_answer',
      'timeout',
      'limit',
      'guardrail',
      'target',
      'hedge_lost',
      'caller_left',
      'gateway',
    ])
    .describe(
      '`status`: the provider refused; `answer_error`: an error inside an answer that began well; `connection`: refused, reset or cut; `target`: it cannot be called at all; `hedge_lost`: another call answered first.',
    ),
  code: z.string().nullable().describe("The provider's own code, or which limit on time or use it was."),
  message: z.string(),
});

const attempt = z.object({
  target: z.string(),
  provider: z.string(),
  status: z.number().nullable(),
  error: z.string().nullable(),
  cause: cause.nullable().describe('Why it failed; null where it did not.'),
  began_ms: millis.describe('From the arrival of the request.'),
  queued_ms: millis.describe('Until there was a connection that was free, or began to be made; signing in included.'),
  connect_ms: millis.describe('For making the connection; 0 where one was open.'),
  first_byte_ms: millis.describe('From the begin of the attempt, as all that follow.'),
  first_content_ms: millis.describe('Of streams: the first text, reasoning or tool call.'),
  duration_ms: z.number(),
});

const scored = z.object({
  path: z.string(),
  provider: z.string().nullable(),
  provider_slug: z.string().nullable(),
  model: z.string().nullable(),
  weight: z.number(),
  order: z.number().nullable().describe('In which turn it would be tried, from 1; null: not at all.'),
  why: z.string().nullable().describe('Why not: `breaker_open`, `not_drawn`, `condition_not_met`.'),
  breaker: z
    .object({ state: z.string(), failures: z.number(), requests: z.number() })
    .nullable()
    .describe('Null without a circuit breaker; counts of its window, of this process.'),
  problem: z.string().nullable().describe('Why it cannot be called, where that was found out.'),
});

const route = z.object({
  path: z.string(),
  mode: z.string(),
  chosen: z.string(),
  why: z.string(),
  stopped: z.string().nullable().describe('Why no further target was tried after a failure.'),
  left_out: z.array(z.string()).describe('Targets whose circuit was open.'),
});

const paths = z.array(z.string());

export const decisionSchema = z.object({
  object: z.literal('decision'),
  dry_run: z.boolean().describe('Nothing was called or charged: this is what would have been done.'),
  request_id: z.string(),
  created_at: z.string(),
  operation: z.string(),
  caller: z.object({
    workspace_id: z.string().nullable(),
    api_key_id: z.string().nullable(),
    user_id: z.string().nullable(),
  }),
  model: z.object({ requested: z.string().nullable(), sent: z.string().nullable(), answered: z.string().nullable() }),
  config: z
    .object({ slug: z.string().nullable(), version_id: z.string().nullable() })
    .nullable()
    .describe('Null without a config; `slug` is null for one that came with the request.'),
  rules: z
    .array(
      z.object({ kind: z.string(), id: z.string(), outcome: z.enum(['passed', 'failed', 'refused', 'not_asked']) }),
    )
    .describe(
      'Limits (`rate_limit` or `usage_limit`, with an id such as `policy:<id>`; of requests under a config) and guardrails that were considered.',
    ),
  route: z.array(route).describe('Decisions of the config’s strategies, in order.'),
  targets: z
    .array(scored)
    .describe(
      'Targets as they stood when it was decided, those to be tried first; 50 of them at most, and none without a weight.',
    ),
  targets_total: z.number(),
  target: z
    .object({
      path: z.string().nullable(),
      provider: z.string(),
      provider_slug: z.string().nullable(),
      model: z.string().nullable(),
    })
    .nullable()
    .describe('The target whose answer was returned; null when none was called.'),
  attempts: z.array(attempt),
  limits: object.nullable().describe('Amounts reserved and used under each limit, and the limit that refused.'),
  guardrails: z.object({ input: paths, output: paths, verdicts: z.array(object) }),
  cache: z.looseObject({ status: z.string() }),
  fields_changed: z
    .object({ added: paths, dropped: paths, overridden: paths })
    .nullable()
    .describe('Fields of the body that were not sent as they came, by path; null where that is not kept.'),
  converted_to: z.string().nullable(),
  price: price.nullable().describe('Dollars per million units.'),
  usage: object.nullable(),
  cost_micros: z.number().nullable().describe('Micro-dollars; null where no price is known.'),
  outcome: z.object({
    status: z.number(),
    outcome: z.string(),
    error_code: z.string().nullable(),
    error_message: z.string().nullable(),
    latency_ms: z.number(),
    ttft_ms: z.number().nullable(),
  }),
  request: z
    .object({ method: z.string(), url: z.string(), headers: z.record(z.string(), z.string()), body: z.unknown() })
    .nullable()
    .describe('Of a dry run: what would be sent, without credentials. Records hold no bodies.'),
  estimate: z.object({ input_tokens: z.number(), price: price.nullable() }).nullable().describe('Of a dry run.'),
});
export type Decision = z.output<typeof decisionSchema>;

/** What a record says of how its request was decided. Older records lack what was not kept yet. */
export function decisionOf(
  record: { readonly id: string; readonly time: number } & Readonly<Record<string, unknown>>,
): Decision {
  const of = <K extends keyof LogRecord>(name: K): LogRecord[K] | null => (record[name] ?? null) as LogRecord[K] | null;
  const decision = of('decision') ?? null;
  const provider = of('provider');
  const slug = of('config_slug');
  const sent = of('model_sent') ?? of('model_requested');
  const target =
    provider === null
      ? null
      : { path: decision?.target ?? null, provider, provider_slug: of('provider_slug'), model: sent };
  const targets = decision?.targets?.map((one) => ({ ...one, problem: one.problem ?? null })) ?? only(target);
  return {
    object: 'decision',
    dry_run: of('dry_run') ?? false,
    request_id: record.id,
    created_at: new Date(record.time).toISOString(),
    operation: of('operation') ?? '',
    caller: { workspace_id: of('workspace_id'), api_key_id: of('api_key_id'), user_id: of('user_id') },
    model: { requested: of('model_requested'), sent, answered: of('model_answered') },
    config: slug === null && decision === null ? null : { slug, version_id: decision?.config_version ?? null },
    rules: rulesOf(
      decision,
      of('guards') ?? null,
      of('guardrails') ?? [],
      of('limits')?.refused ?? null,
      of('dry_run') === true,
    ),
    route: (decision?.route ?? []).map((one) => ({
      ...one,
      stopped: one.stopped ?? null,
      left_out: [...(one.left_out ?? [])],
    })),
    targets,
    targets_total: decision?.targets_total ?? targets.length,
    target,
    attempts: (of('attempts') ?? []).map(attemptOf),
    limits: of('limits') as Record<string, unknown> | null,
    guardrails: {
      input: [...(of('guards')?.input ?? [])],
      output: [...(of('guards')?.output ?? [])],
      verdicts: (of('guardrails') ?? []) as unknown as Record<string, unknown>[],
    },
    cache: { status: of('cache_status') ?? 'DISABLED', ...of('cache') },
    fields_changed: changesOf(decision),
    converted_to: decision?.converted ?? null,
    price: of('price') as Decision['price'],
    usage: of('usage') as Record<string, unknown> | null,
    cost_micros: of('cost_micros'),
    outcome: {
      status: of('status') ?? 0,
      outcome: of('outcome') ?? '',
      error_code: of('error_code'),
      error_message: of('error_message'),
      latency_ms: of('latency_ms') ?? 0,
      ttft_ms: of('ttft_ms'),
    },
    request: null,
    estimate: null,
  };
}

/** A request with one target has it without a choice. */
function only(target: Decision['target']): Decision['targets'] {
  return target === null
    ? []
    : [
        {
          ...target,
          path: target.path ?? 'config',
          weight: 1,
          order: 1,
          why: null,
          breaker: null,
          problem: null,
        },
      ];
}

function attemptOf(one: AttemptRecord): Decision['attempts'][number] {
  const { cause = null, began_ms, queued_ms, connect_ms, first_byte_ms, first_content_ms } = one;
  return {
    ...one,
    cause,
    began_ms: began_ms ?? null,
    queued_ms: queued_ms ?? null,
    connect_ms: connect_ms ?? null,
    first_byte_ms: first_byte_ms ?? null,
    first_content_ms: first_content_ms ?? null,
  };
}

function changesOf(decision: DecisionFacts | null): Decision['fields_changed'] {
  const changed = decision?.changed ?? null;
  if (changed === null) return null;
  const { added, dropped, overridden } = changed;
  return { added: [...added], dropped: [...dropped], overridden: [...overridden] };
}

function rulesOf(
  decision: DecisionFacts | null,
  guards: LogRecord['guards'] | null,
  said: readonly GuardrailFacts[],
  refused: { readonly limit: string; readonly kind: string; readonly id: string } | null,
  dryRun: boolean,
): Decision['rules'] {
  const rules: Decision['rules'] = [];
  const refusal = refused === null ? null : `${refused.limit}_limit ${refused.kind}:${refused.id}`;
  for (const limit of decision?.limits ?? []) {
    const [kind = '', id = ''] = limit.split(' ', 2);
    rules.push({ kind, id, outcome: dryRun ? 'not_asked' : limit === refusal ? 'refused' : 'passed' });
  }
  for (const phase of ['input', 'output'] as const) {
    for (const id of guards?.[phase] ?? []) {
      const found = said.find((one) => one.slug === id && (one.phase === phase || one.phase === null));
      const outcome =
        found === undefined || found.skipped
          ? 'not_asked'
          : found.verdict
            ? 'passed'
            : found.deny
              ? 'refused'
              : 'failed';
      rules.push({ kind: `${phase}_guardrail`, id, outcome });
    }
  }
  return rules;
}
