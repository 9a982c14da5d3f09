/** One batch on its way to the far side of a destination, whatever its kind. */
import { createHash, randomUUID } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzip, zstdCompress } from 'node:zlib';
import { type Fetcher, readText } from '../../http/background-fetcher.ts';
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { retryHintMs } from '../../kernel/retry-hint.ts';
import { webhookHeaders } from '../../kernel/webhook-signature.ts';
import { ATTRIBUTES } from '../../telemetry/conventions/conventions.ts';
import { type DestinationField, destinationColumns, destinationObject } from '../../telemetry/destination-fields.ts';
import { messageAttributes } from '../../telemetry/gen-ai-messages.ts';
import type { DestinationHost, OtlpTarget, S3Target, Target, WebhookTarget } from '../../telemetry/log-destination.ts';
import type { LogBodies } from '../../telemetry/log-export.ts';
import type { LogRecord } from '../../telemetry/record.ts';
import { spansOf } from '../../telemetry/spans.ts';
import type { Delivery } from '../feed.ts';
import { CONTENT_TYPES, tracesBody } from '../otlp/requests.ts';

/** What is sent, of records without what is hidden. */
export interface Batch {
  readonly destinationId: string;
  readonly organisationId: string;
  readonly workspaceId: string | null;
  readonly records: readonly LogRecord[];
  readonly fields: readonly DestinationField[];
  /** Of those that have any. */
  readonly bodies: ReadonlyMap<LogRecord, LogBodies>;
  /** Of webhooks. */
  readonly secrets: readonly Uint8Array[];
  /** What paths of requests are behind. */
  readonly origin: string;
}

export interface SendParts {
  readonly fetcher: Fetcher;
  readonly clock: Clock;
  readonly version: string;
  readonly parquet: DestinationHost['parquet'];
}

/** What the far side made of it. `status` is null where it did not answer; `text` is the begin of its answer. */
export type Answer = Delivery & { readonly status: number | null; readonly text: string };

const TIMEOUT_MS = 10_000;
const UPLOAD_MS = 60_000;
const MOST_ANSWER = 65_536;
const MOST_TEXT = 500;
/** The batch is at fault, and would be again. */
const REFUSALS: ReadonlySet<number> = new Set([400, 413, 415, 422]);
const compress = { gzip: promisify(gzip), zstd: promisify(zstdCompress) };

/** Sends one batch once. Never rejects. */
export async function sendBatch(target: Target, batch: Batch, parts: SendParts): Promise<Answer> {
  try {
    switch (target.kind) {
      case 'otlp':
        return await sendSpans(target, batch, parts);
      case 'webhook':
        return await sendWebhook(target, batch, parts);
      case 's3':
        return await sendObjects(target, batch, parts);
    }
  } catch (error) {
    return { kind: 'later', why: reasonOf(error), afterMs: null, status: statusIn(error), text: '' };
  }
}

/** For the API: what tenants may see of a failed call. */
export function reasonOf(error: unknown): string {
  if (error instanceof SluiceError) {
    return error.kind === 'upstream_unreachable' ? 'The receiver could not be reached.' : error.message;
  }
  if (error instanceof Error && 'code' in error && typeof error.code === 'string' && statusIn(error) !== null) {
    return `The receiver answered ${statusIn(error)}${error.code === '' ? '' : ` ${error.code}`}.`;
  }
  return 'The call failed.';
}

function statusIn(error: unknown): number | null {
  return error instanceof Error && 'status' in error && typeof error.status === 'number' ? error.status : null;
}

interface Post {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly more: readonly string[];
  readonly body: Buffer;
}

async function post(batch: Batch, { fetcher, clock }: SendParts, { url, headers, more, body }: Post): Promise<Answer> {
  const ended = new AbortController();
  const late = () => ended.abort(new SluiceError('timeout', `No answer within ${TIMEOUT_MS / 1_000} seconds.`));
  const cancel = clock.after(TIMEOUT_MS, late);
  try {
    const {
      status,
      headers: answered,
      stream,
    } = await fetcher.send({
      method: 'POST',
      url: new URL(url),
      headers: [...Object.entries(headers).flat(), ...more, 'user-agent', 'Sluice'],
      body,
      organisationId: batch.organisationId,
      storedCredential: Object.keys(headers).length > 0,
      headersTimeoutMs: TIMEOUT_MS,
      idleMs: TIMEOUT_MS,
      signal: ended.signal,
    });
    const text = await readText(stream, MOST_ANSWER).then(
      (read) => read.text,
      () => '',
    );
    const seen = { status, text: shownText(text) };
    if (status >= 200 && status < 300) return { kind: 'accepted', ...seen };
    const redirected = status >= 300 && status < 400 ? '; redirects are not followed' : '';
    const why = `The receiver answered ${status}${redirected}.`;
    if (REFUSALS.has(status)) return { kind: 'refused', why, ...seen };
    return { kind: 'later', why, afterMs: retryHintMs((name) => answered[name], clock.now()), ...seen };
  } finally {
    cancel();
  }
}

/** One line, without what a terminal would take for a command. */
function shownText(text: string): string {
  return text
    .slice(0, MOST_TEXT)
    .replace(/[\p{Cc}\p{Cf}\s]+/gu, ' ')
    .trim();
}

async function sendSpans(target: OtlpTarget, batch: Batch, parts: SendParts): Promise<Answer> {
  const names = ATTRIBUTES[target.conventions];
  const spans = batch.records.flatMap((record) => {
    const of = spansOf(record, names);
    const bodies = batch.bodies.get(record);
    if (bodies === undefined) return of;
    // Where the answer came from: the last call of a provider, or the request itself where none was made.
    const at = of.findLastIndex(({ kind }) => kind === 'client');
    const added = messageAttributes(bodies);
    return of.map((span, i) =>
      i === Math.max(at, 0) ? { ...span, attributes: [...span.attributes, ...added] } : span,
    );
  });
  const resource = { 'service.name': 'sluice', 'service.version': parts.version, ...target.resource };
  const body = tracesBody(spans, { resource, version: parts.version }, target.protocol);
  return post(batch, parts, {
    url: target.url,
    headers: target.headers,
    more: ['content-type', CONTENT_TYPES[target.protocol], 'content-encoding', 'gzip'],
    body: await compress.gzip(body),
  });
}

/** The same batch has the same id however often it is sent. */
function idOf({ destinationId, records }: Batch): string {
  const hash = createHash('sha256').update(destinationId);
  for (const { span_id: span } of records) hash.update(span);
  return hash.digest('hex').slice(0, 32);
}

function objectsOf(batch: Batch, records: readonly LogRecord[]): object[] {
  return records.map((record) =>
    destinationObject(record, batch.fields, { origin: batch.origin, bodies: batch.bodies.get(record) ?? null }),
  );
}

async function sendWebhook(target: WebhookTarget, batch: Batch, parts: SendParts): Promise<Answer> {
  const now = parts.clock.now();
  const body = JSON.stringify({
    type: 'logs.batch',
    timestamp: new Date(now).toISOString(),
    data: {
      destination_id: batch.destinationId,
      organisation_id: batch.organisationId,
      workspace_id: batch.workspaceId,
      records: objectsOf(batch, batch.records),
    },
  });
  return post(batch, parts, {
    url: target.url,
    headers: target.headers,
    more: ['content-type', 'application/json', ...webhookHeaders(batch.secrets, idOf(batch), now, body)],
    body: Buffer.from(body),
  });
}

const CONTENT_TYPES_OF_FILES = {
  parquet: 'application/vnd.apache.parquet',
  'jsonl.gz': 'application/gzip',
  'jsonl.zst': 'application/zstd',
} as const;

/** By the log keeper, whose engine reads and writes files. */
async function parquetOf(lines: Buffer, { fields }: Batch, { parquet }: SendParts): Promise<Buffer> {
  const path = join(tmpdir(), `sluice-${randomUUID()}.ndjson`);
  try {
    await writeFile(path, lines, { mode: 0o600, flag: 'wx' });
    const written = await parquet(path, destinationColumns(fields));
    return await readFile(written).finally(() => rm(written, { force: true }));
  } finally {
    await rm(path, { force: true });
  }
}

/** `date=2026-05-01/hour=14/`, which engines read as columns. */
function folderOf(time: number, partition: S3Target['partition']): string {
  const iso = new Date(time).toISOString();
  return `date=${iso.slice(0, 10)}/${partition === 'hour' ? `hour=${iso.slice(11, 13)}/` : ''}`;
}

async function sendObjects(target: S3Target, batch: Batch, parts: SendParts): Promise<Answer> {
  const { S3Client } = await import('../../kernel/s3-client.ts');
  const { fetcher, clock } = parts;
  const { bucket, region, pathStyle, accessKeyId, secretAccessKey, sessionToken, compression, partition } = target;
  const client = new S3Client({
    bucket,
    region,
    pathStyle,
    endpoint: target.endpoint ?? `https://s3.${region}.amazonaws.com`,
    clock,
    keys: async () => ({ accessKeyId, secretAccessKey, ...(sessionToken === null ? {} : { sessionToken }) }),
    send: async ({ method, url, headers, body }) => {
      const answer = await fetcher.send({
        method,
        url,
        headers: Object.entries(headers).flat(),
        body,
        organisationId: batch.organisationId,
        storedCredential: true,
        headersTimeoutMs: UPLOAD_MS,
        idleMs: UPLOAD_MS,
      });
      return { status: answer.status, headers: answer.headers, body: answer.stream };
    },
  });
  const ending = target.format === 'parquet' ? 'parquet' : compression === 'gzip' ? 'jsonl.gz' : 'jsonl.zst';
  let status: number | null = null;
  for (const [folder, records] of Map.groupBy(batch.records, ({ time }) => folderOf(time, partition))) {
    const lines = objectsOf(batch, records).map((one) => `${JSON.stringify(one)}\n`);
    const first = new Date(Math.floor((records[0]?.time ?? 0) / 1_000) * 1_000)
      .toISOString()
      .replace(/[-:]|\.000/g, '');
    // The same records have the same name: what is sent twice is there once.
    const key = `${target.prefix}${folder}${first}-${idOf({ ...batch, records })}.${ending}`;
    const text = Buffer.from(lines.join(''));
    const body = target.format === 'parquet' ? await parquetOf(text, batch, parts) : await compress[compression](text);
    const headers = { 'content-type': CONTENT_TYPES_OF_FILES[ending] };
    status = (await client.done({ method: 'PUT', key, headers, body })).status;
  }
  return { kind: 'accepted', status, text: '' };
}
