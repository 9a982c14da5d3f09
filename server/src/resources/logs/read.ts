/** `GET /logs/{id}`: one stored request, in the shape of the contract. */
import { z } from 'zod';
import type { Sight } from '../../auth/scopes.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonValue } from '../../kernel/json.ts';
import { type KeptRequest, timeOf } from '../../telemetry/bodies/chunk.ts';
import type { BodyPart } from '../../telemetry/bodies/frame.ts';
import { absence, type BodyAbsence, presentPart } from '../../telemetry/bodies/presented.ts';
import { recordOfRow } from '../../telemetry/log-columns.ts';
import type { LogRow } from '../../telemetry/log-query.ts';
import { toIso } from '../body-fields.ts';
import { tenantFields } from '../fields.ts';
import { notFound } from '../look-up.ts';
import { action } from '../resource.ts';
import { withServices } from '../services.ts';
import { bodySettings } from '../settings/settings.ts';
import { type BodyReader, KEPT_BODIES, noBodies, presentBodies, shownBodies, shownBody, shownPart } from './bodies.ts';
import { type Names, namesOf } from './names.ts';
import { KEPT_LOGS, type Reach, reachOf } from './reach.ts';
import { columns, idsOf, metadataOf } from './rows.ts';
import { withoutMetadata } from './sight.ts';

const ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

const optional = {
  text: z.string().optional(),
  int: z.int().optional(),
  number: z.number().optional(),
} as const;
const { text, int, number } = optional;

const metrics = z.object({
  id: text,
  organisation_id: text,
  organisation_name: text,
  prompt_slug: text,
  prompt_version_id: text,
  created_at: text,
  is_success: z.boolean().optional(),
  ai_org: text,
  ai_model: text,
  req_units: int,
  res_units: int,
  total_units: int,
  cost: number.describe('Cents, with their fractions; absent when the price is not known.'),
  cost_micros: int.describe('Micro-dollars.'),
  cost_currency: text,
  request_url: text,
  request_method: text,
  response_status_code: int,
  response_time: int.describe('Milliseconds, as all times here.'),
  is_proxy_call: z.boolean().optional(),
  cache_status: text,
  cache_type: text,
  stream_mode: int,
  retry_success_count: int,
  trace_id: text,
  span_id: text,
  span_name: text,
  parent_span_id: text,
  mode: text,
  virtual_key: text,
  source: text.describe('`gateway`, `mcp`, `a2a`, or `proxy` for what `POST /logs` has brought.'),
  runtime: text,
  runtime_version: text,
  sdk_version: text,
  config: text,
  config_version_id: text,
  internal_trace_id: text,
  last_used_option_index: int.describe('Place of the target among those of its config; absent without several.'),
  workspace_slug: z.string().nullable().optional(),
  'metadata.key': z.array(z.string()).optional(),
  'metadata.value': z.array(z.string()).optional(),
  api_key_id: text,
  request_parsing_time: int,
  pre_processing_time: int,
  cache_processing_time: int,
  response_parsing_time: int,
  gateway_processing_time: int,
  upstream_response_time: int,
});

const response = z.object({
  object: z.literal('log'),
  _id: z.string(),
  request: z.object({
    url: z.string(),
    method: z.string(),
    gatewayHeaders: z.record(z.string(), z.string()),
    ...shownBody,
  }),
  response: z.object({
    status: z.int(),
    responseTime: z.int().describe('Milliseconds.'),
    lastUsedOptionJsonPath: z.string().describe('Path of the target that answered, in its config; empty without one.'),
    ...shownBody,
  }),
  finalUntransformedRequest: shownPart,
  transformedRequest: shownPart,
  originalResponse: shownPart,
  bodies: shownBodies,
  organisation_id: z.string().nullable(),
  created_at: z.string(),
  metrics,
  log_format: z.string(),
});

/** What `ahead` has found. */
interface Asked {
  readonly row: LogRow;
  readonly reach: Reach;
  /** Its bodies, where there are some, and why none is shown otherwise. */
  readonly kept: KeptRequest | BodyAbsence;
  readonly days: number;
}

export const readLog = action({
  id: 'logs.read',
  method: 'GET',
  path: '/logs/:logId',
  summary: 'Read a request',
  description:
    'One stored request with its figures, and with its bodies and headers where they are kept (`debug_log`). Of a key without the scope `logs.view`, only the bodies of the requests that it has made are shown. A request is found a moment after its answer; `x-gateway-request-id` of the answer is its id.',
  tag: 'Logs',
  auth: 'key_or_login',
  scopes: ['logs.view', 'logs.write', 'completions.write', 'logs.read'],
  tenant: 'workspace_optional',
  workspace: 'past',
  params: z.strictObject({ logId: z.string() }),
  query: z.strictObject({ ...tenantFields }),
  body: null,
  response,
  writes: false,
  audit: null,
  ahead: async (call) => {
    const id = call.params.logId.toLowerCase();
    if (!ID.test(id)) throw notFound();
    const reach = await reachOf(call, 'logs.view');
    const { principal } = call;
    const reader = call.service(KEPT_BODIES);
    return withServices({ logs: KEPT_LOGS }, async ({ logs }): Promise<Asked> => {
      const row = await logs.store.find(reach.scope, id);
      if (row === null) throw notFound();
      const own = principal.keyId !== null && columns.text(row, 'api_key_id') === principal.keyId;
      const may = own || principal.scopes.has('logs.view');
      return {
        row,
        reach,
        kept: may ? await bodiesOf(reader, row, call.clock.now()) : 'hidden',
        days: reader?.days ?? 0,
      };
    });
  },
  run: async ({ asked, tx, publicUrl, clock }) => {
    if (asked === null) throw new Error('the record was asked for before');
    const { row, reach, kept, days } = asked;
    const names = await namesOf(tx, idsOf([row]));
    const organisation = await tx.organisation();
    const workspace = await tx.find('workspaces', { id: columns.text(row, 'workspace_id') ?? '' });
    const most = Math.min(days, bodySettings(organisation, workspace ?? null).days ?? days);
    const over = typeof kept !== 'string' && Number(row.time) < clock.now() - most * DAY_MS;
    const shown = shownOf(row, reach.sight, names, organisation.name, publicUrl);
    const bodies = shownBodiesOf(over ? 'expired' : kept, reach.sight, publicUrl);
    return withoutMetadata(reach.sight, row, {
      ...shown,
      ...bodies,
      request: { ...shown.request, ...bodies.request },
      response: { ...shown.response, ...bodies.response },
    });
  },
});

const DAY_MS = 86_400_000;

/** A chunk is packed, and then every node reads it. */
const PACKED_MS = 120_000;

async function bodiesOf(reader: BodyReader | null, row: LogRow, now: number): Promise<Asked['kept']> {
  const chunk = columns.text(row, 'body_chunk');
  const slot = columns.number(row, 'body_slot');
  const organisationId = columns.text(row, 'organisation_id');
  const none = absence(columns.number(row, 'body_flags'), chunk);
  if (none !== null || chunk === null || slot === null || organisationId === null) return none ?? 'off';
  if (reader === null) throw new SluiceError('unavailable', 'This node has no store of kept bodies.');
  const found = await reader.find({ organisationId, chunk, slot, id: String(row.id) });
  return found ?? (now - timeOf(chunk) < PACKED_MS ? 'pending' : 'expired');
}

function shownBodiesOf(kept: Asked['kept'], { noMetadata }: Sight, origin: string) {
  if (typeof kept === 'string') return { bodies: noBodies(kept), request: {}, response: {} };
  const part = (name: BodyPart) => presentPart(kept, name, noMetadata !== null, origin);
  const [request, answer] = [part('request'), part('answer')];
  const only = (shown: typeof request) => {
    const { headers, body } = shown ?? {};
    return { ...(headers === undefined ? {} : { headers }), ...(body === undefined ? {} : { body }) };
  };
  return {
    bodies: presentBodies(kept),
    request: only(request),
    response: only(answer),
    finalUntransformedRequest: request,
    transformedRequest: part('sent'),
    originalResponse: part('came'),
  };
}

type Shown = Omit<z.input<typeof response>, 'bodies'>;

const MICROS_PER_CENT = 10_000;
const SOURCES: Readonly<Record<string, string>> = { llm: 'gateway', custom: 'proxy' };

/** The first index of a path such as `config.targets[1]`. */
function indexOf(option: string | null): number | undefined {
  const index = /\[([0-9]+)\]/.exec(option ?? '')?.[1];
  return index === undefined ? undefined : Number(index);
}

function shownOf(row: LogRow, sight: Sight, names: Names, organisation: string, publicUrl: string): Shown {
  const texts = (name: string) => columns.text(row, name) ?? undefined;
  const ints = (name: string) => columns.number(row, name) ?? undefined;
  const millis = (name: string) => {
    const micros = columns.number(row, name);
    return micros === null ? undefined : Math.round(micros / 1_000);
  };
  const facts = (recordOfRow(row).client ?? null) as JsonValue;
  const client = (name: 'runtime' | 'runtime_version' | 'sdk_version') => {
    const told = isObject(facts) ? facts[name] : undefined;
    return typeof told === 'string' ? told : undefined;
  };
  const metadata = metadataOf(row, sight);
  const path = columns.text(row, 'path') ?? '';
  const url = /^https?:\/\//.test(path) ? path : `${publicUrl}${path}`;
  const status = columns.number(row, 'status') ?? 0;
  const cost = columns.number(row, 'cost_micros');
  const source = columns.text(row, 'source') ?? 'llm';
  const stream = columns.flag(row, 'stream');
  const time = toIso(Number(row.time));
  const workspace = columns.text(row, 'workspace_id');
  return {
    object: 'log',
    _id: String(row.id),
    request: { url, method: columns.text(row, 'method') ?? 'POST', gatewayHeaders: gatewayHeaders(row, metadata) },
    response: {
      status,
      responseTime: millis('latency_us') ?? 0,
      lastUsedOptionJsonPath: columns.text(row, 'option') ?? '',
    },
    organisation_id: columns.text(row, 'organisation_id'),
    created_at: time,
    metrics: {
      id: String(row.id),
      organisation_id: texts('organisation_id'),
      organisation_name: organisation,
      prompt_slug: texts('prompt_slug'),
      prompt_version_id: texts('prompt_version'),
      created_at: time,
      is_success: status < 400,
      ai_org: texts('provider'),
      ai_model: texts('model'),
      req_units: ints('tokens_in'),
      res_units: ints('tokens_out'),
      total_units: ints('tokens_total'),
      cost: cost === null ? undefined : cost / MICROS_PER_CENT,
      cost_micros: cost ?? undefined,
      cost_currency: 'USD',
      request_url: url,
      request_method: texts('method'),
      response_status_code: status,
      response_time: millis('latency_us'),
      is_proxy_call: source === 'custom',
      cache_status: texts('cache_status'),
      cache_type: texts('cache_type'),
      stream_mode: stream === null ? undefined : Number(stream),
      retry_success_count: status < 400 ? ints('retries') : 0,
      trace_id: texts('trace_id'),
      span_id: texts('span_id'),
      span_name: texts('span_name'),
      parent_span_id: texts('parent_span_id'),
      mode: texts('mode'),
      virtual_key: texts('provider_slug'),
      source: SOURCES[source] ?? source,
      runtime: client('runtime'),
      runtime_version: client('runtime_version'),
      sdk_version: client('sdk_version'),
      config: texts('config_slug'),
      config_version_id: texts('config_version'),
      internal_trace_id: String(row.id),
      last_used_option_index: indexOf(columns.text(row, 'option')),
      workspace_slug: workspace === null ? null : (names.workspace.get(workspace)?.slug ?? null),
      ...(metadata === null
        ? {}
        : { 'metadata.key': Object.keys(metadata), 'metadata.value': Object.values(metadata) }),
      api_key_id: texts('api_key_id'),
      request_parsing_time: millis('parse_us'),
      pre_processing_time: millis('pre_us'),
      cache_processing_time: millis('cache_us'),
      response_parsing_time: millis('post_us'),
      gateway_processing_time: millis('gateway_us'),
      upstream_response_time: millis('upstream_us'),
    },
    log_format: 'v1',
  };
}

/** The gateway headers that a record tells of. */
function gatewayHeaders(row: LogRow, metadata: Readonly<Record<string, string>> | null): Record<string, string> {
  const slug = columns.text(row, 'provider_slug');
  const told: Readonly<Record<string, string | null>> = {
    'x-gateway-trace-id': columns.text(row, 'trace_id'),
    'x-gateway-span-id': columns.text(row, 'span_id'),
    'x-gateway-parent-span-id': columns.text(row, 'parent_span_id'),
    'x-gateway-provider': slug === null ? columns.text(row, 'provider') : `@${slug}`,
    'x-gateway-config': columns.text(row, 'config_slug'),
    'x-gateway-metadata': metadata === null ? null : JSON.stringify(metadata),
  };
  return Object.fromEntries(Object.entries(told).filter((entry): entry is [string, string] => entry[1] !== null));
}
