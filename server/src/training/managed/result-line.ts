import { createHash } from 'node:crypto';
import type { ResultLine } from '../../providers/batch-lines.ts';

/** Follows from batch and line, so that a line done twice is reported as one. */
export function resultId(batchId: string, line: number): string {
  return `batch_req_${createHash('sha256').update(`${batchId} ${line}`).digest('hex').slice(0, 24)}`;
}

/** Whether a result belongs in the output file; all others go to the error file. */
export function isSuccess(line: ResultLine): boolean {
  return line.error === null && line.response !== null && line.response.status_code < 400;
}
