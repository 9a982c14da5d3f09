/** The states of a gateway-managed batch, wherever they are changed. */
import { type BatchStatus, FINAL_BATCH } from './training.ts';

/** When a status was entered, by the name of its field. */
export const BATCH_STAMPS: Readonly<Partial<Record<BatchStatus, string>>> = {
  in_progress: 'in_progress_at',
  finalizing: 'finalizing_at',
  completed: 'completed_at',
  failed: 'failed_at',
  file_upload_failed: 'failed_at',
  batch_start_failed: 'failed_at',
  expired: 'expired_at',
  cancelling: 'cancelling_at',
  cancelled: 'cancelled_at',
};

export const BATCH_STATUSES: readonly [BatchStatus, ...BatchStatus[]] = [
  'validating',
  'in_progress',
  'finalizing',
  'processing_post_request_guardrails',
  'completed',
  'failed',
  'expired',
  'cancelling',
  'cancelled',
  'file_upload_failed',
  'batch_start_failed',
];

const ALWAYS: readonly BatchStatus[] = ['cancelling'];
/** Any state that is not final may be cancelled. */
const NEXT: Readonly<Partial<Record<BatchStatus, readonly BatchStatus[]>>> = {
  validating: ['in_progress', 'failed', 'file_upload_failed', 'batch_start_failed', 'expired'],
  in_progress: ['finalizing', 'processing_post_request_guardrails', 'completed', 'failed', 'expired'],
  finalizing: ['processing_post_request_guardrails', 'completed', 'failed', 'expired'],
  processing_post_request_guardrails: ['completed', 'failed'],
  cancelling: ['cancelled', 'failed'],
};

/** States never go back, and a final one stays. */
export function mayBecome(from: BatchStatus, to: BatchStatus): boolean {
  if (FINAL_BATCH.has(from)) return false;
  return from === to || ALWAYS.includes(to) || (NEXT[from] ?? []).includes(to);
}
