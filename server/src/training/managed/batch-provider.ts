/**
 * A gateway-managed batch that the provider runs: the input is converted and uploaded, the batch created once, watched,
 * and its output copied to Sluice's own files.
 *
 * A process that is killed between an upload or a submission and the note of it leaves `begun` set. The next one looks
 * for what is there already: the file by its name, the batch by `findByName` or by the file it reads. A provider that
 * lists neither gets a second upload, never a second batch of the same file.
 */

import { Readable } from 'node:stream';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { errorStatus, recordedAs } from '../../operations/dialects/errors.ts';
import { type Batch, type BatchStatus, FINAL_BATCH } from '../../operations/training.ts';
import type { ResultLine } from '../../providers/batch-lines.ts';
import type { BatchesAdapter, FilesAdapter } from '../../providers/training.ts';
import { cleaned } from '../errors.ts';
import { LineObjects } from '../line-objects.ts';
import { BatchMeter } from '../usage/use.ts';
import { resultLines, useWithoutOutput } from '../usage/work.ts';
import { finish, inputLines, nameFiles, writeFiles } from './batch-files.ts';
import {
  type BatchClaim,
  type BatchProgress,
  type BatchRow,
  changed,
  progressOf,
  publicOf,
  requestOf,
  stored,
  type Turn,
  workOf,
} from './batch-row.ts';
import { type BatchServices, inputName, type OpenAccount, openAccount, settingsOf } from './batch-services.ts';
import { mayStillBegin } from './rights.ts';

/** Pages of the provider's batches that are searched for one that may exist already. */
const SEARCHED = { pages: 3, limit: 100 };

interface Opened extends OpenAccount {
  readonly batches: BatchesAdapter;
}

async function open(claim: BatchClaim, services: BatchServices): Promise<Opened> {
  const { row } = claim;
  const account = await openAccount(services, row, claim.signal);
  const { batches } = account.adapter;
  if (batches === undefined) {
    throw new SluiceError('unsupported_operation', `Provider ${row.provider_slug} runs no batches.`);
  }
  return { ...account, batches };
}

const note = (claim: BatchClaim, patch: Partial<BatchProgress>, more: Partial<BatchRow> = {}) =>
  claim.write(async (_tx, row) => ({ progress: stored({ ...progressOf(row), ...patch }), ...more }));

/** The caller's mistakes do not pass with time; everything else may. */
function isFinalFault(error: unknown): error is SluiceError {
  if (!(error instanceof SluiceError)) return false;
  const status = errorStatus(error);
  return (status >= 400 && status < 500 && ![408, 409, 425, 429, 499].includes(status)) || status === 501;
}

/** Ends the batch when a step can never work, or has been tried often enough; else throws, to be tried again. */
async function giveUp(
  claim: BatchClaim,
  services: BatchServices,
  secrets: readonly string[],
  thrown: unknown,
  status: 'file_upload_failed' | 'batch_start_failed',
): Promise<Turn> {
  if (claim.signal.aborted) throw thrown;
  const error = cleaned(thrown, secrets);
  const often = claim.row.failures + 1 >= settingsOf(services).attempts;
  if (!(error instanceof SluiceError) || (!isFinalFault(error) && !often)) throw error;
  const code = recordedAs(error);
  const fault = { code, message: error.message, param: error.param, line: null };
  await claim.write(async (_tx, row, now) => ({
    step: 'done',
    ...changed(row, status, now, { errors: { object: 'list', data: [fault], total: 1 } }),
  }));
  return 'done';
}

/** A batch that never reached the provider is cancelled at once. */
async function cancelledEarly(claim: BatchClaim): Promise<Turn> {
  await claim.write(async (_tx, row, now) => ({ step: 'done', ...changed(row, 'cancelled', now) }));
  return 'done';
}

/** The input as the provider takes it. */
async function* providerLines(
  services: BatchServices,
  row: BatchRow,
  convert: BatchesAdapter['inputLine'],
  objects: LineObjects | null = null,
): AsyncGenerator<JsonObject> {
  const request = requestOf(row, '');
  for await (const line of inputLines(services, row)) {
    const { custom_id, url, body } = line.request;
    const given: JsonObject = {
      custom_id,
      method: 'POST',
      url,
      body: request.model === null ? body : { ...body, model: request.model },
    };
    let sent: JsonObject;
    try {
      sent = convert === undefined ? given : convert(given, request);
    } catch (error) {
      if (!(error instanceof SluiceError)) throw error;
      throw error.reworded(`Line ${line.number}: ${error.message}`);
    }
    await objects?.line(line.number, sent);
    yield sent;
  }
  await objects?.settle();
}

async function* texts(lines: AsyncIterable<JsonObject>): AsyncGenerator<Buffer> {
  for await (const line of lines) yield Buffer.from(`${JSON.stringify(line)}\n`);
}

export async function upload(claim: BatchClaim, services: BatchServices): Promise<Turn> {
  const { row } = claim;
  if (row.cancel_requested) return cancelledEarly(claim);
  let secrets: readonly string[] = [];
  try {
    const opened = await open(claim, services);
    const { adapter, context, batches, ledger } = opened;
    secrets = opened.secrets;
    await mayStillBegin(services, row, workOf(row), true);
    const objects = ledger?.shared === true ? new LineObjects(ledger, 'input_file_id') : null;
    if (batches.createFromLines !== undefined) {
      if (objects !== null) for await (const _line of providerLines(services, row, undefined, objects));
      await note(claim, {}, { step: 'start' });
      return { again: 0 };
    }
    const { files } = adapter;
    if (files === undefined) {
      throw new SluiceError('unsupported_operation', `Provider ${row.provider_slug} keeps no files for its batches.`);
    }
    let uploaded: string | null = null;
    if (progressOf(row).begun === 'upload') {
      await files.abandon?.(inputName(row.id), context);
      // An upload to its own place replaces what is there.
      if (files.plannedId === undefined) uploaded = await uploadedBefore(files, row, context);
    } else {
      await note(claim, { begun: 'upload' });
    }
    if (uploaded === null) {
      // Twice through the input: what a line cannot hold and the size must be known before the first byte goes out.
      let bytes = 0;
      for await (const text of texts(providerLines(services, row, batches.inputLine, objects))) bytes += text.length;
      const stream = Readable.from(texts(providerLines(services, row, batches.inputLine)), { objectMode: false });
      const file = await files.upload(
        { filename: inputName(row.id), purpose: 'batch', contentType: 'application/jsonl', stream, bytes },
        context,
      );
      uploaded = file.id;
    }
    // In a bucket that workspaces share, nobody else may name it as theirs.
    await ledger?.claim('file', [uploaded]);
    await note(claim, { begun: null, uploaded }, { step: 'start' });
    return { again: 0 };
  } catch (error) {
    return giveUp(claim, services, secrets, error, 'file_upload_failed');
  }
}

async function uploadedBefore(
  files: FilesAdapter,
  row: BatchRow,
  context: OpenAccount['context'],
): Promise<string | null> {
  const found = (await files.list('batch', context)).find((file) => file.filename === inputName(row.id));
  return found?.id ?? null;
}

export async function start(claim: BatchClaim, services: BatchServices): Promise<Turn> {
  const { row } = claim;
  const { uploaded, begun } = progressOf(row);
  if (row.cancel_requested && begun === null) return cancelledEarly(claim);
  let secrets: readonly string[] = [];
  try {
    const opened = await open(claim, services);
    const { context, batches } = opened;
    secrets = opened.secrets;
    const request = requestOf(row, uploaded ?? '');
    let made: Batch | null = null;
    if (begun === 'start') {
      made = await startedBefore(batches, request, uploaded, context);
    } else {
      await mayStillBegin(services, row, workOf(row), true);
      await note(claim, { begun: 'start' });
    }
    if (made === null) {
      const lines = () => providerLines(services, row, undefined);
      made =
        batches.createFromLines === undefined
          ? await batches.create(request, context)
          : await batches.createFromLines(request, lines, context);
    }
    const { id } = made;
    await claim.write(async (_tx, latest, now) => ({
      step: 'poll',
      upstream_id: id,
      progress: stored({ ...progressOf(latest), begun: null }),
      ...changed(latest, latest.status === 'cancelling' ? 'cancelling' : 'in_progress', now),
    }));
    return { again: 0 };
  } catch (error) {
    return giveUp(claim, services, secrets, error, 'batch_start_failed');
  }
}

async function startedBefore(
  batches: BatchesAdapter,
  request: ReturnType<typeof requestOf>,
  uploaded: string | null,
  context: OpenAccount['context'],
): Promise<Batch | null> {
  if (batches.findByName !== undefined) return batches.findByName(request, context);
  if (uploaded === null) return null;
  // The input was uploaded for this batch alone, so whatever reads it is this batch.
  let after: string | null = null;
  for (let page = 0; page < SEARCHED.pages; page++) {
    const found = await batches.list({ after, limit: SEARCHED.limit }, context);
    const same = found.data.find((batch) => batch.input_file_id === uploaded);
    if (same !== undefined) return same;
    after = found.data.at(-1)?.id ?? null;
    if (!found.has_more || after === null) return null;
  }
  return null;
}

/** Grows from the first to the longest wait with the age of the batch. */
function pause(row: BatchRow, services: BatchServices): number {
  const [first, most] = settingsOf(services).pollMs;
  return Math.min(most, Math.max(first, (services.clock.now() - row.created_at) / 10));
}

/** How long a provider may take to confirm a cancellation, and to tell the end of an expired batch. */
const CANCELLING_MS = 10 * 60_000;
const GRACE_MS = 6 * 60 * 60_000;

/** Ends a batch whose provider does not tell its end. */
async function overdue(claim: BatchClaim, services: BatchServices): Promise<boolean> {
  const { row } = claim;
  const now = services.clock.now();
  const { cancelling_at: since } = publicOf(row);
  const unconfirmed = typeof since === 'number' && now >= since * 1000 + CANCELLING_MS;
  if (!unconfirmed && now < progressOf(row).expiresAt + GRACE_MS) return false;
  const status = unconfirmed ? 'cancelled' : 'expired';
  const message = `The provider did not say in time that its batch has ended; look at its batch ${row.upstream_id ?? ''}.`;
  const fault = { code: 'unconfirmed', message, param: null, line: null };
  await claim.write(async (_tx, latest, at) => ({
    step: 'done',
    ...changed(latest, status, at, { errors: { object: 'list', data: [fault], total: 1 } }),
  }));
  return true;
}

export async function poll(claim: BatchClaim, services: BatchServices): Promise<Turn> {
  if (await overdue(claim, services)) return 'done';
  const { row } = claim;
  const id = row.upstream_id ?? '';
  const { context, batches } = await open(claim, services);
  if (row.cancel_requested && !progressOf(row).told) {
    try {
      await batches.cancel(id, context);
    } catch (error) {
      // It ended before the call came, or the provider cannot cancel: what it says next decides.
      if (!isFinalFault(error)) throw error;
    }
    await note(claim, { told: true });
  }
  const seen = await batches.retrieve(id, context);
  if (FINAL_BATCH.has(seen.status)) {
    await claim.write(async (_tx, latest, now) => ({
      step: 'collect',
      ...changed(latest, following(latest, 'finalizing'), now, aboutOf(seen)),
    }));
    return { again: 0 };
  }
  await claim.write(async (_tx, latest, now) => changed(latest, following(latest, seen.status), now, aboutOf(seen)));
  return { again: pause(row, services) };
}

/** What the provider's batch tells about ours; counts it does not give stay as they are. */
function aboutOf(seen: Batch): object {
  const counts = seen.request_counts;
  return {
    ...(counts === undefined || counts.total === 0 ? {} : { request_counts: counts }),
    ...(seen.errors == null ? {} : { errors: seen.errors }),
  };
}

/** The provider's state as ours, which never goes back. */
function following(row: BatchRow, seen: BatchStatus): BatchStatus {
  const now = publicOf(row).status;
  if (now === 'cancelling' || now === 'finalizing') return now;
  return seen === 'finalizing' ? 'finalizing' : now;
}

/** Copies what the provider has into Sluice's own files; a batch that ended early may have part of it. */
export async function collect(claim: BatchClaim, services: BatchServices): Promise<Turn> {
  if (await overdue(claim, services)) return 'done';
  const { row } = claim;
  const { account, context, batches } = await open(claim, services);
  const seen = await batches.retrieve(row.upstream_id ?? '', context);
  if (!FINAL_BATCH.has(seen.status)) {
    await note(claim, {}, { step: 'poll' });
    return { again: pause(row, services) };
  }
  let output: Readable | null = null;
  try {
    output = await batches.output(row.upstream_id ?? '', context);
  } catch (error) {
    // Only of a completed batch is an output owed.
    if (seen.status === 'completed' || !isFinalFault(error)) throw error;
  }
  await nameFiles(claim, services);
  const { endpoint, model } = workOf(row).batch;
  const priced = { account, pricer: services.pricer, at: services.clock.now() };
  const meter = new BatchMeter(priced, endpoint, model);
  const lines = output === null ? [] : counted(resultLines(output), meter);
  const written = await writeFiles(services, claim.row, lines, claim.signal);
  const used = output === null ? useWithoutOutput(seen, priced, model) : meter.total();
  const counts = seen.request_counts;
  const total = publicOf(claim.row).request_counts?.total ?? counts?.total ?? written.completed + written.failed;
  const late = seen.status === 'completed' && publicOf(claim.row).status === 'cancelling';
  await finish(
    claim,
    services,
    written,
    late ? 'cancelled' : seen.status,
    {
      ...aboutOf(seen),
      request_counts: { total, completed: written.completed, failed: written.failed },
    },
    used,
  );
  return 'done';
}

async function* counted(lines: AsyncIterable<ResultLine>, meter: BatchMeter): AsyncGenerator<ResultLine> {
  for await (const line of lines) {
    meter.add(line);
    yield line;
  }
}
