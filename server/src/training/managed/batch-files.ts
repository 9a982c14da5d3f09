/** The files of a gateway-managed batch: its input, read by line, and the two it leaves. */
import { once } from 'node:events';
import { PassThrough, type Readable } from 'node:stream';
import { systemTenant } from '../../auth/tenant.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { BatchStatus } from '../../operations/training.ts';
import type { ResultLine } from '../../providers/batch-lines.ts';
import type { TenantContext } from '../../store/ports.ts';
import type { ObjectUse } from '../usage/use.ts';
import { type BatchLine, type BatchRules, isFault, readBatchLine } from './batch-input.ts';
import { type BatchClaim, type BatchRow, changed, progressOf, publicOf, stored, workOf } from './batch-row.ts';
import { type BatchServices, settingsOf } from './batch-services.ts';
import { addFile } from './file-rows.ts';
import { type FileLine, isBlank, linesOf } from './lines.ts';
import { isSuccess, resultId } from './result-line.ts';

export const tenantOfRow = (row: Pick<BatchRow, 'organisation_id' | 'workspace_id'>): TenantContext =>
  systemTenant(row.organisation_id, row.workspace_id);

export function rulesOf(row: BatchRow, services: Pick<BatchServices, 'settings'>): BatchRules {
  const { endpoint, model } = workOf(row).batch;
  return { endpoint, model, maxLineBytes: settingsOf(services).maxLineBytes };
}

/** Bytes of the input file from `offset`; null when it is gone. */
export function openInput(services: BatchServices, row: BatchRow, offset = 0): Promise<Readable | null> {
  const range = offset === 0 ? undefined : { start: offset };
  return services.blobs.get(tenantOfRow(row), workOf(row).batch.input_file_id, range);
}

export interface InputLine extends FileLine {
  readonly request: BatchLine;
}

/** Requests of the input file from a line on. The file was checked: what does not read now has changed or is gone. */
export async function* inputLines(
  services: BatchServices,
  row: BatchRow,
  from: { readonly line: number; readonly offset: number } = { line: 1, offset: 0 },
): AsyncGenerator<InputLine> {
  const stream = await openInput(services, row, from.offset);
  if (stream === null) throw goneInput();
  const rules = rulesOf(row, services);
  for await (const line of linesOf(stream, rules.maxLineBytes, { number: from.line, offset: from.offset })) {
    if (isBlank(line)) continue;
    const request = readBatchLine(line, rules);
    if (isFault(request)) throw goneInput();
    yield { ...line, request };
  }
}

/** Code of a batch whose input file is not there any more. */
export const GONE = 'input_file_missing';

export function goneInput(): SluiceError {
  return new SluiceError('not_found', 'The input file was deleted or changed before all of its requests were run.', {
    param: 'input_file_id',
    reason: GONE,
  });
}

/** Results that were written, by line, a page at a time. */
async function* storedResults(
  services: BatchServices,
  row: BatchRow,
): AsyncGenerator<{ line: number; result: string }> {
  const tenant = tenantOfRow(row);
  let after = 0;
  for (;;) {
    const since = after;
    const page = await services.tables.read(tenant, (tx) =>
      tx.list('batch_results', {
        where: { batch_id: row.id, line: { gt: since } },
        orderBy: [['line', 'asc']],
        limit: 200,
      }),
    );
    yield* page;
    const last = page.at(-1);
    if (last === undefined || page.length < 200) return;
    after = last.line;
  }
}

/** Every line of the input with its one result, in the order of the file; a line without one gets the reason. */
export async function* allResults(services: BatchServices, row: BatchRow): AsyncGenerator<ResultLine> {
  const { end } = progressOf(row);
  const unrun = end?.unrun ?? { code: 'batch_failed', message: 'The request was not run.' };
  const results = storedResults(services, row);
  if (end?.fault?.code === GONE) {
    for await (const { result } of results) yield JSON.parse(result) as ResultLine;
    return;
  }
  let next = await results.next();
  for await (const line of inputLines(services, row)) {
    while (!next.done && next.value.line < line.number) next = await results.next();
    if (!next.done && next.value.line === line.number) {
      yield JSON.parse(next.value.result) as ResultLine;
      continue;
    }
    const { custom_id } = line.request;
    yield { id: resultId(row.id, line.number), custom_id, response: null, error: unrun };
  }
}

export interface Written {
  readonly completed: number;
  readonly failed: number;
  /** Bytes of the two files; a file without lines is not kept. */
  readonly outputBytes: number;
  readonly errorBytes: number;
}

/** Names the two files anew and removes what an earlier writing left. */
export async function nameFiles(claim: BatchClaim, services: BatchServices): Promise<void> {
  const old = progressOf(claim.row);
  const fresh = () => `gw_file_${uuidv7(services.clock)}`;
  const names = { output: fresh(), errors: fresh() };
  await claim.write(async (_tx, row) => ({ progress: stored({ ...progressOf(row), ...names }) }));
  const tenant = tenantOfRow(claim.row);
  for (const id of [old.output, old.errors]) if (id !== null) await services.blobs.delete(tenant, id);
}

function namesOf(row: BatchRow): { output: string; errors: string } {
  const { output, errors } = progressOf(row);
  if (output === null || errors === null) throw new SluiceError('internal', 'The files of a batch have no names yet.');
  return { output, errors };
}

/** Writes successes and failures into their two blobs in one pass; `nameFiles` comes first. */
export async function writeFiles(
  services: BatchServices,
  row: BatchRow,
  lines: AsyncIterable<ResultLine> | Iterable<ResultLine>,
  signal: AbortSignal,
): Promise<Written> {
  const { output, errors } = namesOf(row);
  const tenant = tenantOfRow(row);
  const streams = [new PassThrough(), new PassThrough()] as const;
  const puts = [
    services.blobs.put(tenant, output, streams[0]),
    services.blobs.put(tenant, errors, streams[1]),
  ] as const;
  // A stream that is given up tells its put, which tells us; no other part listens.
  for (const stream of streams) stream.on('error', () => undefined);
  // A put that failed must end the wait for its stream to drain.
  const broken = new AbortController();
  for (const put of puts) put.catch((error: unknown) => broken.abort(error));
  let completed = 0;
  let failed = 0;
  try {
    for await (const line of lines) {
      signal.throwIfAborted();
      broken.signal.throwIfAborted();
      const good = isSuccess(line);
      if (good) completed += 1;
      else failed += 1;
      const stream = streams[good ? 0 : 1];
      if (!stream.write(`${JSON.stringify(line)}\n`)) await once(stream, 'drain', { signal: broken.signal });
    }
    for (const stream of streams) stream.end();
    const [good, bad] = await Promise.all(puts);
    return { completed, failed, outputBytes: good.bytes, errorBytes: bad.bytes };
  } catch (error) {
    for (const stream of streams) stream.destroy(error instanceof Error ? error : undefined);
    await Promise.allSettled(puts);
    throw broken.signal.aborted ? broken.signal.reason : error;
  }
}

/**
 * The end of a batch with files: their rows, the final status and the removal of the stored results in one transaction,
 * so that the batch shows as ended exactly when its files can be read.
 */
export async function finish(
  claim: BatchClaim,
  services: BatchServices,
  written: Written,
  status: BatchStatus,
  more: object = {},
  used?: ObjectUse,
): Promise<void> {
  await claim.write(async (tx, row, now) => {
    const { output, errors } = namesOf(row);
    const kept: string[] = [];
    for (const [id, bytes, kind] of [
      [output, written.outputBytes, 'output'],
      [errors, written.errorBytes, 'error'],
    ] as const) {
      if (bytes === 0) continue;
      kept.push(id);
      await addFile(tx, {
        id,
        organisation_id: row.organisation_id,
        workspace_id: row.workspace_id,
        filename: `${row.id}_${kind}.jsonl`,
        purpose: 'batch_output',
        content_type: 'application/jsonl',
        bytes,
        status: 'processed',
        status_details: null,
        created_by: row.created_by,
        created_at: now,
      });
    }
    await tx.remove('batch_results', { batch_id: row.id });
    const { completed, failed } = written;
    return {
      ...changed(row, status, now, {
        output_file_id: kept.includes(output) ? output : null,
        error_file_id: kept.includes(errors) ? errors : null,
        request_counts: { total: publicOf(row).request_counts?.total ?? completed + failed, completed, failed },
        ...more,
      }),
      ...(used === undefined ? null : { progress: stored({ ...progressOf(row), used }) }),
      step: 'done',
    };
  });
  const tenant = tenantOfRow(claim.row);
  const { output, errors } = namesOf(claim.row);
  // Empty files nobody can name; a process killed here leaves them, some bytes of a folder entry.
  if (written.outputBytes === 0) await services.blobs.delete(tenant, output);
  if (written.errorBytes === 0) await services.blobs.delete(tenant, errors);
}
