/**
 * Batches of the sandbox as a provider: how far one is follows from the clock, like a job. Its requests are asked of the
 * sandbox when somebody first looks at the completed batch, all at the time it completed, so that every reader gets the
 * same bytes.
 */
import { Readable } from 'node:stream';
import { SluiceError } from '../../kernel/errors.ts';
import type { Batch, BatchRequest, BatchStatus } from '../../operations/training.ts';
import { FINAL_BATCH } from '../../operations/training.ts';
import { needsOutput, type ResultLine } from '../../providers/batch-lines.ts';
import type { AdapterContext, BatchesAdapter } from '../../providers/training.ts';
import { type BatchFault, checkBatchInput, isFault, readBatchLine } from '../managed/batch-input.ts';
import { isBlank, linesOf } from '../managed/lines.ts';
import { isSuccess, resultId } from '../managed/result-line.ts';
import type { FileData, FileParts } from './files.ts';
import { MARK, type Objects, type Stored, seconds, shortId } from './objects.ts';
import { millisecondsOf, prepared, refuseFields, timedModel } from './refuse.ts';
import { localRunner } from './run.ts';

/** From `created_at` to the end, unless the batch's model (`echo?batch_ms=60000`) or its metadata says otherwise. */
const BATCH_MS = 4_000;
const MAX_LINE_BYTES = 32 * 1024 * 1024;
const STARTED = 0.1;
const FINALIZING = 0.8;
/** How long a cancelled batch stays in `cancelling`, as a share. */
const CANCELLING = 0.1;

interface Outcome {
  readonly completed: number;
  readonly failed: number;
  readonly output: string | null;
  readonly errors: string | null;
}

export interface BatchData {
  readonly input_file_id: string;
  readonly endpoint: string;
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly model: string | null;
  readonly batchMs: number;
  readonly total: number;
  readonly faults: readonly BatchFault[];
  readonly cancelledAt: number | null;
  /** Set once the requests were asked. */
  readonly outcome: Outcome | null;
}

type StoredBatch = Stored<BatchData>;

function statusAt(batch: StoredBatch, now: number): BatchStatus {
  const { createdAt, data } = batch;
  const at = (share: number) => createdAt + Math.round(data.batchMs * share);
  if (data.cancelledAt !== null) {
    return now < data.cancelledAt + data.batchMs * CANCELLING ? 'cancelling' : 'cancelled';
  }
  if (now < at(STARTED)) return 'validating';
  if (data.faults.length > 0) return 'failed';
  if (now < at(FINALIZING)) return 'in_progress';
  return now < at(1) ? 'finalizing' : 'completed';
}

function batchAt(batch: StoredBatch, now: number): Batch {
  const { createdAt, data, id } = batch;
  const status = statusAt(batch, now);
  const at = (share: number) => createdAt + Math.round(data.batchMs * share);
  /** The time of a stage that has begun; a cancelled batch never begins another. */
  const since = (ms: number) =>
    now >= ms && (data.cancelledAt === null || ms <= data.cancelledAt) ? seconds(ms) : null;
  const good = data.faults.length === 0;
  const outcome = status === 'completed' ? data.outcome : null;
  return {
    id,
    object: 'batch',
    endpoint: data.endpoint,
    errors: status === 'failed' ? { object: 'list', data: data.faults } : null,
    input_file_id: data.input_file_id,
    completion_window: '24h',
    status,
    output_file_id: outcome?.output ?? null,
    error_file_id: outcome?.errors ?? null,
    created_at: seconds(createdAt),
    in_progress_at: good ? since(at(STARTED)) : null,
    expires_at: seconds(createdAt + 86_400_000),
    finalizing_at: good ? since(at(FINALIZING)) : null,
    completed_at: good ? since(at(1)) : null,
    failed_at: good ? null : since(at(STARTED)),
    expired_at: null,
    cancelling_at: data.cancelledAt === null ? null : seconds(data.cancelledAt),
    cancelled_at: status === 'cancelled' ? seconds((data.cancelledAt ?? 0) + data.batchMs * CANCELLING) : null,
    request_counts: { total: good ? data.total : 0, completed: outcome?.completed ?? 0, failed: outcome?.failed ?? 0 },
    metadata: data.metadata,
    ...(data.model === null ? {} : { model: data.model }),
    ...MARK,
  };
}

function check(batch: BatchRequest, context: AdapterContext): number {
  refuseFields(
    {
      job_name: batch.job_name,
      role_arn: batch.role_arn,
      output_data_config: batch.output_data_config,
      ...batch.extra,
    },
    context,
  );
  if (batch.completion_window !== '24h') {
    throw new SluiceError('invalid_request', 'completion_window must be "24h" for a batch that the provider runs.', {
      param: 'completion_window',
    });
  }
  const name = 'sandbox_batch_ms';
  const named = batch.model === null ? undefined : timedModel(batch.model, 'batch_ms').ms;
  return named ?? millisecondsOf(batch.metadata?.[name], name, `metadata.${name}`) ?? BATCH_MS;
}

export function sandboxBatches(parts: FileParts & { readonly batches: Objects<BatchData> }): BatchesAdapter {
  const { blobs, tenant, files, batches } = parts;

  async function input(id: string): Promise<Readable> {
    const file = await files.find(id);
    const stream = file === null ? null : await blobs.get(tenant, id);
    if (file === null || stream === null) {
      throw new SluiceError(
        'unknown_reference',
        `No file ${JSON.stringify(id.slice(0, 100))} exists in this sandbox.`,
        {
          param: 'input_file_id',
        },
      );
    }
    if (file.data.purpose !== 'batch') {
      stream.destroy();
      throw new SluiceError('invalid_request', 'input_file_id must be a file with the purpose batch.', {
        param: 'input_file_id',
      });
    }
    return stream;
  }

  /** Results in the order of the input file. */
  async function* results(batch: StoredBatch): AsyncGenerator<ResultLine> {
    const { data } = batch;
    const ask = localRunner(tenant.organisationId, batch.createdAt + data.batchMs);
    const rules = { endpoint: data.endpoint, model: data.model, maxLineBytes: MAX_LINE_BYTES };
    const stream = await blobs.get(tenant, data.input_file_id);
    if (stream === null) {
      throw new SluiceError('not_found', 'The input file of the batch was deleted before its requests were asked.');
    }
    for await (const line of linesOf(stream, MAX_LINE_BYTES)) {
      if (isBlank(line)) continue;
      const read = readBatchLine(line, rules);
      if (isFault(read)) continue;
      const model = typeof read.body.model === 'string' ? read.body.model : data.model;
      const body = model === null ? read.body : { ...read.body, model: timedModel(model, 'batch_ms').base };
      const answer = await ask(data.endpoint, Buffer.from(JSON.stringify(body)));
      const { status: status_code, requestId: request_id } = answer;
      yield {
        id: resultId(batch.id, line.number),
        custom_id: read.custom_id,
        response: { status_code, request_id, body: answer.body },
        error: null,
      };
    }
  }

  async function write(batch: StoredBatch, ok: boolean): Promise<{ lines: number; id: string | null }> {
    const id = `file-${ok ? 'output' : 'errors'}-${batch.id.slice('batch_'.length)}`;
    let lines = 0;
    async function* texts() {
      for await (const line of results(batch)) {
        if (isSuccess(line) !== ok) continue;
        lines += 1;
        yield Buffer.from(`${JSON.stringify(line)}\n`);
      }
    }
    const { bytes } = await blobs.put(tenant, id, Readable.from(texts(), { objectMode: false }));
    if (lines === 0) {
      await blobs.delete(tenant, id);
      return { lines, id: null };
    }
    const filename = `${batch.id}_${ok ? 'output' : 'error'}.jsonl`;
    const data: FileData = { filename, purpose: 'batch_output', contentType: 'application/jsonl', bytes };
    // Another reader who looked at the same moment wrote the same.
    await files.add(id, data, batch.createdAt + batch.data.batchMs);
    return { lines, id };
  }

  /** The batch with its requests asked, when it is time. */
  async function settled(batch: StoredBatch, now: number): Promise<StoredBatch> {
    if (statusAt(batch, now) !== 'completed' || batch.data.outcome !== null) return batch;
    const output = await write(batch, true);
    const errors = await write(batch, false);
    const outcome: Outcome = { completed: output.lines, failed: errors.lines, output: output.id, errors: errors.id };
    return batches.change(batch.id, (found) => (found.data.outcome === null ? { ...found.data, outcome } : found.data));
  }

  return {
    prepare(batch, context) {
      check(batch, context);
      return prepared('/batches', batch.body);
    },

    async create(batch, context) {
      const batchMs = check(batch, context);
      const { endpoint, metadata, model, input_file_id } = batch;
      const report = await checkBatchInput(await input(input_file_id), {
        endpoint,
        model,
        maxLineBytes: MAX_LINE_BYTES,
      });
      const data: BatchData = {
        input_file_id,
        endpoint,
        metadata,
        model,
        batchMs,
        total: report.total,
        faults: report.errors,
        cancelledAt: null,
        outcome: null,
      };
      return batchAt(await batches.add(`batch_${shortId(context)}`, data, context.now()), context.now());
    },

    async list(page, context) {
      const found = await batches.page(page);
      const data: Batch[] = [];
      for (const batch of found.data) data.push(batchAt(await settled(batch, context.now()), context.now()));
      return { data, has_more: found.has_more };
    },

    async retrieve(id, context) {
      return batchAt(await settled(await batches.get(id), context.now()), context.now());
    },

    async cancel(id, context) {
      const now = context.now();
      const batch = await batches.change(id, (found) => {
        const status = statusAt(found, now);
        if (FINAL_BATCH.has(status)) {
          throw new SluiceError('validation', `The batch is ${status} and cannot be cancelled any more.`);
        }
        return status === 'cancelling' ? found.data : { ...found.data, cancelledAt: now };
      });
      return batchAt(batch, now);
    },

    async output(id, context) {
      const batch = await settled(await batches.get(id), context.now());
      needsOutput(batchAt(batch, context.now()), []);
      async function* whole() {
        for (const file of [batch.data.outcome?.output, batch.data.outcome?.errors]) {
          const stream = file == null ? null : await blobs.get(tenant, file);
          if (stream !== null) yield* stream as AsyncIterable<Buffer>;
        }
      }
      return Readable.from(whole(), { objectMode: false });
    },
  };
}
