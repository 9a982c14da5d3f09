/**
 * One turn at a gateway-managed batch. The row's `step` says what comes next, so whoever claims the row after a restart
 * goes on where the last one stopped; every step may be repeated.
 *
 *     validate ─ lines ──▶ run ⟲ ─────────────────────────▶ write ──▶ done
 *              ╰ provider ▶ upload ──▶ start ──▶ poll ⟲ ──▶ collect ▶ done
 */

import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { reserveDeferred } from '../../limits/ledger/job-usage.ts';
import { estimateTokens } from '../../operations/tokens.ts';
import { type BatchStatus, FINAL_BATCH } from '../../operations/training.ts';
import { NO_TOKENS } from '../../operations/usage.ts';
import { costMicros } from '../../pricing/cost.ts';
import type { SystemTx } from '../../store/ports.ts';
import { endObject, limitSpecsOf, placeOf } from '../usage/rows.ts';
import { NOTHING_USED, type ObjectUse, unknownUse } from '../usage/use.ts';
import { allResults, finish, GONE, nameFiles, openInput, rulesOf, writeFiles } from './batch-files.ts';
import { type BatchFault, type BatchReport, checkBatchInput } from './batch-input.ts';
import { conclude, runLines } from './batch-lines.ts';
import { collect, poll, start, upload } from './batch-provider.ts';
import { type BatchClaim, type BatchRow, changed, progressOf, publicOf, type Turn, workOf } from './batch-row.ts';
import type { BatchServices, TurnServices } from './batch-services.ts';

export type BatchStep = 'validate' | 'run' | 'write' | 'upload' | 'start' | 'poll' | 'collect' | 'done';

/** Somebody else ended the batch while it was being worked on. */
class Ended extends Error {}

/** A final state stays: what a worker would write after it is void. */
function untilItsEnd(claim: BatchClaim, clock: Clock): BatchClaim {
  return {
    get row() {
      return claim.row;
    },
    signal: claim.signal,
    cancelled: claim.cancelled,
    write: (change) =>
      claim.write(async (tx, row, now) => {
        if (FINAL_BATCH.has(row.status as BatchStatus)) throw new Ended();
        const patch = await change(tx, row, now);
        const after = { ...row, ...patch };
        if (FINAL_BATCH.has(after.status as BatchStatus)) await endObject(tx, row.id, usedBy(after), clock, now);
        return patch;
      }),
  };
}

/** What the provider's batch used as far as that is known when ours ends. */
function usedBy(row: BatchRow): ObjectUse {
  const { used, begun } = progressOf(row);
  if (used !== undefined) return used;
  if (row.upstream_id === null && begun !== 'start') return NOTHING_USED;
  return unknownUse('The usage of the batch at the provider could not be read.');
}

/** Does what the row's step says and notes what comes next. Throws what may pass, to be tried again later. */
export async function runBatchTurn(given: BatchClaim, services: TurnServices): Promise<Turn> {
  const claim = untilItsEnd(given, services.clock);
  try {
    return await turn(claim, services);
  } catch (error) {
    if (error instanceof Ended) return 'done';
    if (claim.signal.aborted || !(error instanceof SluiceError) || error.reason !== GONE) throw error;
    const fault: BatchFault = { code: GONE, message: error.message, param: 'input_file_id', line: null };
    if (claim.row.step !== 'run' && claim.row.step !== 'write') return fail(claim, 'failed', [fault], 1);
    return conclude(claim, { status: 'failed', unrun: { code: 'batch_failed', message: error.message }, fault });
  }
}

function turn(claim: BatchClaim, services: TurnServices): Promise<Turn> {
  switch (claim.row.step as BatchStep) {
    case 'validate':
      return validate(claim, services);
    case 'run':
      return runLines(claim, services);
    case 'write':
      return write(claim, services);
    case 'upload':
      return upload(claim, services);
    case 'start':
      return start(claim, services);
    case 'poll':
      return poll(claim, services);
    case 'collect':
      return collect(claim, services);
    case 'done':
      return Promise.resolve('done');
    default:
      throw new SluiceError('internal', `A batch has the unknown step ${JSON.stringify(claim.row.step)}.`);
  }
}

/** Reads the whole input file before anything is sent. */
async function validate(claim: BatchClaim, services: BatchServices): Promise<Turn> {
  const { row } = claim;
  const { mode } = workOf(row);
  if (row.cancel_requested && mode === 'provider') return fail(claim, 'cancelled', [], 0);
  const input = await openInput(services, row);
  if (input === null) {
    const message = 'The input file was deleted before it was read.';
    return fail(claim, 'failed', [{ code: GONE, message, param: 'input_file_id', line: null }], 1);
  }
  const stop = () => input.destroy(new Error('the claim has ended'));
  claim.signal.addEventListener('abort', stop, { once: true });
  const report = await checkBatchInput(input, rulesOf(row, services)).finally(() =>
    claim.signal.removeEventListener('abort', stop),
  );
  if (report.errorCount > 0) return fail(claim, 'failed', report.errors, report.errorCount);
  const reserve = mode === 'provider' ? await estimated(row, report, services) : null;
  const begun = claim.write(async (tx, latest, now) => {
    await reserve?.(tx, now);
    const counts = { request_counts: { total: report.total, completed: 0, failed: 0 } };
    const status: BatchStatus = latest.status === 'cancelling' ? 'cancelling' : 'in_progress';
    return mode === 'lines'
      ? { step: 'run', ...changed(latest, status, now, counts) }
      : { step: 'upload', ...changed(latest, latest.status as BatchStatus, now, counts) };
  });
  try {
    await begun;
    return { again: 0 };
  } catch (error) {
    if (!(error instanceof SluiceError) || error.kind !== 'usage_limit_exceeded') throw error;
    return fail(claim, 'failed', [{ code: error.kind, message: error.message, param: null, line: null }], 1);
  }
}

/** How much longer than the batch its reservation lasts: the provider's last word may come late. */
const LATE_MS = 24 * 60 * 60_000;

/** Reserves what the batch will use at most or most likely, before the provider hears of it. */
async function estimated(row: BatchRow, report: BatchReport, services: BatchServices) {
  const { pricer, clock } = services;
  const { id } = row;
  const { model } = workOf(row).batch;
  const snapshot = await services.runtime.workspace(row.organisation_id, row.workspace_id);
  const stored = snapshot.providers.get(row.provider_slug) ?? null;
  const usage = { ...NO_TOKENS, input: estimateTokens(report.bytes), output: report.output };
  const price =
    model === null || stored?.provider == null
      ? null
      : pricer.price(stored.provider.id, null, model, stored, clock.now());
  // No single request is that long: the first tier is theirs.
  const cost = price === null ? 0 : costMicros({ ...price, tiers: [price.tiers[0]] }, usage).micros;
  const estimate = { cost, tokens: usage.input + usage.output, requests: report.total };
  return async (tx: SystemTx, now: number): Promise<void> => {
    const counted = await tx.find('object_usage', { id });
    if (counted === undefined) return;
    const { expiresAt } = progressOf(row);
    await reserveDeferred(tx, placeOf(counted), limitSpecsOf(counted), estimate, expiresAt + LATE_MS, clock, now);
  };
}

/** Ends a batch that leaves no files. */
export async function fail(
  claim: BatchClaim,
  status: BatchStatus,
  faults: readonly BatchFault[],
  total: number,
): Promise<Turn> {
  await claim.write(async (_tx, row, now) => ({
    step: 'done',
    ...changed(row, status, now, faults.length === 0 ? {} : { errors: { object: 'list', data: faults, total } }),
  }));
  return 'done';
}

async function write(claim: BatchClaim, services: BatchServices): Promise<Turn> {
  const { end } = progressOf(claim.row);
  if (end === null) throw new SluiceError('internal', 'A batch is to be written whose end is not decided.');
  await nameFiles(claim, services);
  const written = await writeFiles(services, claim.row, allResults(services, claim.row), claim.signal);
  // A cancellation that came after the last request finds nothing to cancel but the writing.
  const status = publicOf(claim.row).status === 'cancelling' && end.status === 'completed' ? 'cancelled' : end.status;
  const errors = end.fault === null ? {} : { errors: { object: 'list', data: [end.fault], total: 1 } };
  await finish(claim, services, written, status, errors);
  return 'done';
}

/** Columns of a new row. */
export function firstStep(): Pick<BatchRow, 'step'> {
  return { step: 'validate' satisfies BatchStep };
}
