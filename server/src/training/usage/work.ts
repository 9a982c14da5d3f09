/**
 * One turn at a row of `object_usage`: looks whether a provider's batch or job has ended, books what it used and writes
 * its one record. Any node may do it, one at a time; a node that is killed anywhere is followed by another.
 */

import type { Readable } from 'node:stream';
import { systemTenant } from '../../auth/tenant.ts';
import { adapterContext } from '../../gateway/account-access.ts';
import { recordOf } from '../../gateway/record.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import { linesOf } from '../../kernel/lines.ts';
import { errorStatus } from '../../operations/dialects/errors.ts';
import { responsesUsage } from '../../operations/shapes/responses/usage.ts';
import { type Batch, FINAL_BATCH, FINAL_JOB } from '../../operations/training.ts';
import { costMicros } from '../../pricing/cost.ts';
import type { ResultLine } from '../../providers/batch-lines.ts';
import type { AdapterContext, BatchesAdapter } from '../../providers/training.ts';
import type { SystemTx } from '../../store/ports.ts';
import type { RecordDraft } from '../../telemetry/recorder.ts';
import { accountOfStored, adapterOf } from '../account.ts';
import { cleaned, isMissing } from '../errors.ts';
import type { TrainingServices } from '../services.ts';
import { aboutOf, booked, type UsageRow, type UsageStep, useOf } from './rows.ts';
import { BatchMeter, jobUse, NOTHING_USED, type ObjectUse, type Priced, unknownUse } from './use.ts';

export type UsageServices = Pick<
  TrainingServices,
  'tables' | 'clock' | 'log' | 'runtime' | 'egress' | 'fetcher' | 'tokens' | 'local' | 'pricer' | 'recordOnce'
>;

/** A row that a worker holds, as the scheduler gives it (`jobs/claim.ts`). */
export interface UsageClaim {
  readonly row: UsageRow;
  readonly signal: AbortSignal;
  write(change: (tx: SystemTx, row: UsageRow, now: number) => Promise<Partial<UsageRow>>): Promise<UsageRow>;
}

export type Turn = { readonly again: number } | 'done';

const NOW: Turn = { again: 0 };
/** Between two looks at an object: at first, and at most. */
const POLL_MS = [30_000, 10 * 60_000] as const;
const LONGEST_LINE = 64 * 1024 * 1024;

/** First look at a new object, milliseconds after it was made. */
export const FIRST_LOOK_MS = POLL_MS[0];
/** How long the answer to a creation may take before its object counts as one that nobody knows. */
export const CREATION_MS = 15 * 60_000;

export async function runUsageTurn(claim: UsageClaim, services: UsageServices): Promise<Turn> {
  switch (claim.row.step as UsageStep) {
    case 'wait':
      return wait(claim, services);
    case 'watch':
      return watch(claim, services);
    case 'record':
      await services.recordOnce(`usage-${claim.row.id}`, draftOf(claim.row));
      return 'done';
    case 'done':
      return 'done';
    default:
      throw new SluiceError('internal', `A usage row has the unknown step ${JSON.stringify(claim.row.step)}.`);
  }
}

async function close(claim: UsageClaim, services: UsageServices, use: ObjectUse): Promise<Turn> {
  if (use.note !== null) {
    const { id, kind, object_id: object } = claim.row;
    services.log.warn('what a provider ran is not wholly counted', { usage: id, kind, object, note: use.note });
  }
  await claim.write((tx, row, now) => booked(tx, row, use, services.clock, now));
  return NOW;
}

/** Sluice's own object should have ended by now, and told; somebody else may have ended it. */
async function wait(claim: UsageClaim, services: UsageServices): Promise<Turn> {
  const { id, kind } = claim.row;
  const found = await services.tables.systemRead(async (tx) => {
    const own = kind === 'batch' ? await tx.find('batches', { id }) : await tx.find('training_jobs', { id });
    return own ?? null;
  });
  if (found !== null && found.step !== 'done') return { again: POLL_MS[1] };
  const upstream = found?.upstream_id ?? null;
  if (upstream === null) return close(claim, services, NOTHING_USED);
  await claim.write(async () => ({ step: 'watch' satisfies UsageStep, object_id: upstream }));
  return NOW;
}

async function watch(claim: UsageClaim, services: UsageServices): Promise<Turn> {
  const { row } = claim;
  const { clock } = services;
  if (row.object_id === '') {
    const note = 'The provider was asked for it and the answer is not known; it may run there.';
    return close(claim, services, unknownUse(note));
  }
  let secrets: readonly string[] = [];
  try {
    const snapshot = await services.runtime.workspace(row.organisation_id, row.workspace_id);
    const account = await accountOfStored(services, snapshot, row.provider_slug);
    secrets = account.secrets;
    const { headers, model, endpoint } = aboutOf(row);
    const context = adapterContext(services, account, {
      organisationId: row.organisation_id,
      header: (name) => (Object.hasOwn(headers, name) ? headers[name] : undefined),
      signal: claim.signal,
    });
    const adapter = adapterOf(services, account, systemTenant(row.organisation_id, row.workspace_id));
    const priced: Priced = { account, pricer: services.pricer, at: clock.now() };
    if (row.kind === 'job') {
      if (adapter.jobs === undefined) throw gone();
      const job = await adapter.jobs.retrieve(row.object_id, context);
      if (!FINAL_JOB.has(job.status)) return pause(claim, services);
      const began = job.status !== 'failed';
      return close(claim, services, jobUse(job, model ?? job.model, priced, { began, expected: null }));
    }
    if (adapter.batches === undefined) throw gone();
    const batch = await adapter.batches.retrieve(row.object_id, context);
    if (!FINAL_BATCH.has(batch.status)) return pause(claim, services);
    const meter = new BatchMeter(priced, endpoint ?? batch.endpoint, model);
    return close(claim, services, await batchUse(batch, meter, priced, model, adapter.batches, context));
  } catch (error) {
    if (claim.signal.aborted) throw error;
    const seen = cleaned(error, secrets);
    const missing = isMissing(error);
    if (!missing && clock.now() < aboutOf(row).until) throw seen;
    const why = missing ? 'The provider does not know it any more.' : 'The provider could not be asked for too long.';
    return close(claim, services, unknownUse(why));
  }
}

const gone = () => new SluiceError('out_of_service', 'The provider does not run such objects any more.');

async function pause(claim: UsageClaim, services: UsageServices): Promise<Turn> {
  const { row } = claim;
  const now = services.clock.now();
  if (now >= aboutOf(row).until) {
    return close(claim, services, unknownUse('The provider has not said that it has ended.'));
  }
  return { again: Math.min(POLL_MS[1], Math.max(POLL_MS[0], (now - row.created_at) / 10)) };
}

/** Reads the output of a batch that has ended, a line at a time. */
async function batchUse(
  batch: Batch,
  meter: BatchMeter,
  priced: Priced,
  asked: string | null,
  batches: BatchesAdapter,
  context: AdapterContext,
): Promise<ObjectUse> {
  let output: Readable;
  try {
    output = await batches.output(batch.id, context);
  } catch (error) {
    const status = error instanceof SluiceError ? errorStatus(error) : 0;
    const final = status >= 400 && status < 500 && status !== 429;
    if (!final) throw error;
    return useWithoutOutput(batch, priced, asked);
  }
  for await (const line of resultLines(output)) meter.add(line);
  return meter.total();
}

/** What a batch used that has ended and whose output cannot be read. */
export function useWithoutOutput(batch: Batch, priced: Priced, asked: string | null): ObjectUse {
  const ran = batch.request_counts?.completed;
  if (ran === 0 || (ran === undefined && batch.status !== 'completed')) return NOTHING_USED;
  return totalOf(batch, priced, asked) ?? unknownUse('The output of the batch cannot be read.');
}

/** The lines of an output. */
export async function* resultLines(output: Readable): AsyncGenerator<ResultLine> {
  for await (const line of linesOf(output, LONGEST_LINE)) {
    const text = line.toString('utf8').trim();
    if (text === '') continue;
    const value = parseExact(text);
    if (!isObject(value)) throw new SluiceError('upstream_invalid', 'A line of the batch output is no JSON object.');
    yield value as unknown as ResultLine;
  }
}

/** The provider's own total, where it tells one beside the batch. */
function totalOf(batch: Batch, priced: Priced, asked: string | null): ObjectUse | null {
  const told = batch.usage as JsonObject | null | undefined;
  const usage = isObject(told) ? responsesUsage.read(told) : null;
  if (usage === null) return null;
  const { account, pricer, at } = priced;
  const requests = batch.request_counts?.completed ?? 0;
  const price = asked === null ? null : pricer.price(account.provider.id, null, asked, account.stored, at);
  const use = { ...NOTHING_USED, usage, requests };
  if (price === null) return { ...use, unpriced: 1, note: 'No price of the model is known.' };
  // No single request was that long: the first tier is theirs.
  const { micros, carry, rates } = costMicros({ ...price, tiers: [price.tiers[0]] }, usage);
  return { ...use, cost: micros, carry, price: { source: price.source, rates } };
}

const PICO = 1_000_000;

/** The record of what an object used; the request that made it has its own. */
function draftOf(row: UsageRow): RecordDraft {
  const about = aboutOf(row);
  const use = useOf(row) ?? NOTHING_USED;
  const priced = use.unpriced === 0 || use.cost > 0;
  const path = about.operation === 'batch_create' ? '/v1/batches' : '/v1/fine_tuning/jobs';
  return recordOf(
    {
      id: row.id,
      time: row.last_updated_at,
      organisation_id: row.organisation_id,
      workspace_id: row.workspace_id,
      api_key_id: about.keyId,
      user_id: about.userId,
      trace_id: row.object_id === '' ? about.requestId : row.object_id,
      span_id: row.id,
      parent_span_id: null,
      status: 200,
      outcome: 'ok',
      error_code: use.note === null ? null : 'usage_unknown',
      error_message: use.note,
      cost_micros: priced ? use.cost + Math.round(use.carry / PICO) : null,
      latency_ms: 0,
      bytes_in: 0,
      bytes_out: 0,
      metadata: about.metadata,
    },
    {
      operation: about.operation,
      method: 'POST',
      path: `${path}/${encodeURIComponent(row.object_id)}`,
      provider: about.provider,
      provider_slug: row.provider_slug,
      model_requested: about.model,
      model_answered: use.model,
      usage: use.usage,
      usage_estimated: use.estimated,
      price: use.price,
    },
  );
}
