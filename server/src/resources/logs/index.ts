/** What is told of single requests: `GET /logs/{id}/decision`. */
import { z } from 'zod';
import type { StoredLog } from '../../store/ports.ts';
import { notFound } from '../define.ts';
import { tenantFields } from '../fields.ts';
import type { AnyAction, Call } from '../resource.ts';
import { toIso } from '../shapes.ts';

const object = z.record(z.string(), z.unknown());
const ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

const answer = z.object({
  object: z.literal('decision'),
  request_id: z.string(),
  created_at: z.string(),
  operation: z.string(),
  caller: z.object({
    workspace_id: z.string().nullable(),
    api_key_id: z.string().nullable(),
    user_id: z.string().nullable(),
  }),
  model: z.object({ requested: z.string().nullable(), answered: z.string().nullable() }),
  config: z
    .object({ slug: z.string().nullable(), version_id: z.string().nullable() })
    .nullable()
    .describe('Null without a config; `slug` is null for one that came with the request.'),
  route: z
    .array(z.object({ path: z.string(), mode: z.string(), chosen: z.string(), why: z.string() }))
    .describe('What the strategies of the config decided, in order.'),
  target: z
    .object({ path: z.string().nullable(), provider: z.string(), provider_slug: z.string().nullable() })
    .nullable()
    .describe('Whose answer was given; null where nothing was to be called.'),
  attempts: z.array(
    z.looseObject({
      target: z.string(),
      provider: z.string(),
      status: z.number().nullable(),
      error: z.string().nullable(),
      duration_ms: z.number(),
    }),
  ),
  limits: object.nullable().describe('What was reserved and used under limits, and which of them refused.'),
  guardrails: z.array(object),
  cache: z.looseObject({ status: z.string() }),
  fields_changed: z
    .array(z.string())
    .nullable()
    .describe('Top-level fields of the body that were not sent as they came; null where that is not kept.'),
  converted_to: z.string().nullable(),
  price: z
    .object({ source: z.string(), rates: z.record(z.string(), z.number()) })
    .nullable()
    .describe('Dollars per million units.'),
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
});
type Decision = z.output<typeof answer>;

/** What a record says of how its request was decided. */
function decisionOf(record: StoredLog): Decision {
  const of = <T>(name: string): T => (record[name] ?? null) as T;
  const decision = of<Record<string, unknown> | null>('decision');
  const provider = of<string | null>('provider');
  const slug = of<string | null>('config_slug');
  return {
    object: 'decision',
    request_id: record.id,
    created_at: toIso(record.time),
    operation: of('operation'),
    caller: { workspace_id: of('workspace_id'), api_key_id: of('api_key_id'), user_id: of('user_id') },
    model: { requested: of('model_requested'), answered: of('model_answered') },
    config:
      slug === null && decision === null
        ? null
        : { slug, version_id: (decision?.config_version ?? null) as string | null },
    route: (decision?.route ?? []) as Decision['route'],
    target:
      provider === null
        ? null
        : { path: (decision?.target ?? null) as string | null, provider, provider_slug: of('provider_slug') },
    attempts: of<Decision['attempts'] | null>('attempts') ?? [],
    limits: of('limits'),
    guardrails: of<Decision['guardrails'] | null>('guardrails') ?? [],
    cache: { status: of('cache_status'), ...of<object | null>('cache') },
    fields_changed: (decision?.changed ?? null) as string[] | null,
    converted_to: (decision?.converted ?? null) as string | null,
    price: of('price'),
    usage: of('usage'),
    cost_micros: of('cost_micros'),
    outcome: {
      status: of('status'),
      outcome: of('outcome'),
      error_code: of('error_code'),
      error_message: of('error_message'),
      latency_ms: of('latency_ms'),
      ttft_ms: of('ttft_ms'),
    },
  };
}

const decision: AnyAction = {
  id: 'logs.decision',
  method: 'GET',
  path: '/logs/:logId/decision',
  summary: 'Tell how a request was decided',
  description:
    'What was considered, tried, changed, charged and refused for one request, as its record tells it. A record is there a moment after the answer.',
  tag: 'Logs',
  auth: 'key_or_login',
  scopes: ['logs.view'],
  tenant: 'workspace_optional',
  params: z.strictObject({ logId: z.string() }),
  query: z.strictObject({ ...tenantFields }),
  body: null,
  response: answer,
  writes: false,
  audit: null,
  run: async (call: Call<{ logId: string }, never, never>) => {
    const id = call.params.logId.toLowerCase();
    if (!ID.test(id)) throw notFound();
    const { tenant } = call;
    return call.later(async ({ records }) => {
      const record = await records.find(tenant, id);
      if (record === null) throw notFound();
      return decisionOf(record);
    });
  },
};

export const logs: readonly AnyAction[] = [decision];
