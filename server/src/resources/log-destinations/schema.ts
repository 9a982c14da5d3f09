/** Bodies and answers of log destinations. */
import { z } from 'zod';
import { DESTINATION_FIELDS } from '../../telemetry/destination-fields.ts';
import { DESTINATION_KINDS } from '../../telemetry/log-destination.ts';
import { customHeaders, isoDate, name, secretText, text } from '../body-fields.ts';
import { tenantFields } from '../fields.ts';
import { recordFilters } from '../logs/exports/filters.ts';

const url = text(2048, 1);
const headers = customHeaders.describe(
  'Sent with every call; values are shown as masks. A mask that is sent back keeps its value, absent headers keep all.',
);

const otlp = z
  .strictObject({
    url: url
      .optional()
      .describe('Whole address of the calls with spans: `https://host/v1/traces`. Shown without its path.'),
    headers: headers.optional(),
    protocol: z.enum(['http/protobuf', 'http/json']).optional().meta({ default: 'http/protobuf' }),
    conventions: z
      .enum(['v1.41', 'latest'])
      .optional()
      .meta({ default: 'v1.41' })
      .describe('Names of attributes: OpenTelemetry’s conventions of generative AI.'),
    resource: z
      .record(text(128, 1), text(256))
      .refine((given) => Object.keys(given).length <= 32, 'must have at most 32 attributes')
      .optional()
      .describe('Attributes of the resource; `service.name` is `sluice` when absent.'),
  })
  .meta({ title: 'OtlpDestination' });

const webhook = z
  .strictObject({
    url: url.optional().describe('Gets batches of requests as JSON. Shown without its path.'),
    headers: headers.optional(),
  })
  .meta({ title: 'WebhookDestination' });

const s3 = z
  .strictObject({
    bucket: text(255, 1).regex(/^[a-z0-9][a-z0-9.-]+$/, 'must be the name of a bucket'),
    region: text(64, 1).regex(/^[a-z0-9-]+$/, 'must be the name of a region, such as eu-central-1'),
    endpoint: url.optional().describe('Of a service that is not AWS: `https://host`.'),
    path_style: z
      .boolean()
      .optional()
      .describe('`true`: the bucket is a part of the path. Default where there is an endpoint.'),
    prefix: text(512)
      .refine(
        (value) => !value.startsWith('/') && !value.split('/').includes('..'),
        'must be a path without / at its begin',
      )
      .optional()
      .describe('Names of objects begin with it; a slash is added.'),
    access_key_id: secretText.optional(),
    secret_access_key: secretText.optional(),
    session_token: secretText.optional(),
    format: z
      .enum(['jsonl', 'parquet'])
      .optional()
      .meta({ default: 'jsonl' })
      .describe('`parquet`: a column for each field, compressed by zstd. `compression` is for `jsonl`.'),
    compression: z.enum(['gzip', 'zstd']).optional().meta({ default: 'gzip' }),
    partition: z
      .enum(['day', 'hour'])
      .optional()
      .meta({ default: 'hour' })
      .describe('Folders: `date=…/` or `date=…/hour=…/`.'),
    interval_seconds: z
      .int()
      .min(5)
      .max(3600)
      .optional()
      .meta({ default: 60 })
      .describe('An object has the requests of so many seconds.'),
  })
  .meta({ title: 'S3Destination' });

/** Under the name of the kind. */
const targets = { otlp: otlp.optional(), webhook: webhook.optional(), s3: s3.optional() };

const fields = z
  .array(z.enum(DESTINATION_FIELDS))
  .min(1, 'must name at least one field')
  .max(DESTINATION_FIELDS.length)
  .superRefine((list, context) => {
    for (const [at, field] of list.entries()) {
      if (list.indexOf(field) !== at) context.addIssue({ code: 'custom', path: [at], message: `repeats ${field}` });
    }
  })
  .describe(
    'Fields that are sent; all when absent or null. Fields that export_settings.deniedFields lists are never sent.',
  );

const sample = z
  .number()
  .min(0)
  .max(1)
  .describe('The part of the traces that is sent: all requests of a trace, or none.');

const choices = {
  enabled: z.boolean().optional().describe('`false`: nothing is sent, and requests wait.'),
  filters: recordFilters
    .optional()
    .describe('Which requests are sent: conditions as of GET /logs, all of which must hold.'),
  fields: fields.nullable().optional(),
  bodies: z
    .boolean()
    .optional()
    .describe('`true`: with prompts and answers, where they are kept, as guardrails have left them.'),
  sample: sample.optional().meta({ default: 1 }),
} as const;

interface Kinds {
  readonly kind?: string | undefined;
  readonly otlp?: unknown;
  readonly webhook?: unknown;
  readonly s3?: unknown;
}

function checkKind(body: Kinds, context: z.core.$RefinementCtx): void {
  for (const kind of DESTINATION_KINDS) {
    const issue = (message: string) => context.addIssue({ code: 'custom', path: [kind], message });
    if (kind === body.kind && body[kind] === undefined) issue(`is required for a destination of the kind ${kind}`);
    if (kind !== body.kind && body[kind] !== undefined) issue(`is for destinations of the kind ${kind}`);
  }
}

export const createBody = z
  .strictObject({
    ...tenantFields,
    name,
    kind: z.enum(DESTINATION_KINDS),
    ...targets,
    ...choices,
    start_at: isoDate
      .optional()
      .describe('Stored requests from this time on are sent, too, oldest first. Absent: those from now on.'),
  })
  .superRefine(checkKind);
export type CreateBody = z.output<typeof createBody>;

export const updateBody = z.strictObject({ ...tenantFields, name: name.optional(), ...targets, ...choices });
export type UpdateBody = z.output<typeof updateBody>;

export type TargetBody = Pick<CreateBody, 'otlp' | 'webhook' | 's3'>;

const shown = z.record(z.string(), z.unknown());

const common = {
  id: z.string(),
  name: z.string(),
  organisation_id: z.string(),
  workspace_id: z.string().nullable(),
  kind: z.enum(DESTINATION_KINDS),
  enabled: z.boolean(),
  otlp: shown.optional().describe('Its settings, secrets as masks.'),
  webhook: shown.optional(),
  s3: shown.optional(),
  filters: shown,
  fields: z.array(z.string()).nullable(),
  bodies: z.boolean(),
  sample: z.number(),
  start_at: z.string(),
  created_by: z.string().nullable(),
  updated_by: z.string().nullable(),
  created_at: z.string(),
  last_updated_at: z.string(),
  object: z.literal('log-destination'),
};

const stateFields = z
  .object({
    status: z
      .enum(['off', 'starting', 'ok', 'failing'])
      .describe('`starting`: no node has said anything of it yet. `failing`: the last call was not accepted.'),
    last_delivery_at: z.string().nullable(),
    lag_seconds: z
      .number()
      .describe('Since the end of the oldest request that could not be sent yet; 0 while none waits.'),
    delivered: z.int().describe('Requests that were accepted, sent again after a crash among them.'),
    failed: z.int().describe('Requests that the far side refused; they are not sent again.'),
    lost: z.int().describe('Requests that waited too long, or for which there was no room.'),
    waiting: z.int(),
    backfilling: z.boolean().describe('Stored requests are being sent.'),
    last_error: z.string().nullable(),
    nodes: z.int().describe('Nodes that feed it.'),
  })
  .meta({ title: 'LogDestinationState' });

export const item = z.object(common);
export const detail = z.object({ ...common, state: stateFields });
export const created = z.object({ id: z.string(), object: z.literal('log-destination') });
export const updated = created;

export const tested = z.object({
  object: z.literal('log-destination-test'),
  delivered: z.boolean(),
  status: z.int().nullable().describe('Of the answer; null where there was none.'),
  answer: z.string().describe('The begin of what the far side answered.'),
  message: z.string().nullable().describe('Why it was not delivered.'),
  latency_ms: z.int(),
});
