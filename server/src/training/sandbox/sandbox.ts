import type { TrainingAdapter } from '../../providers/training.ts';
import type { TenantContext } from '../../store/ports.ts';
import { type BatchData, sandboxBatches } from './batches.ts';
import { type FileData, sandboxFiles } from './files.ts';
import { sandboxJobs } from './jobs.ts';
import type { JobData } from './life.ts';
import { Objects } from './objects.ts';
import type { SandboxParts } from './parts.ts';

/**
 * Files, batches and fine-tuning of the provider that answers inside the process, for one workspace: the whole
 * life-cycle offline, in seconds of the context's clock. How long a job takes is part of the model name
 * (`echo?train_ms=60000`), so is it for a batch that names a model (`echo?batch_ms=60000`); one that does not says it in
 * its metadata (`sandbox_batch_ms`). Every object says `"system_fingerprint": "sandbox"`; the same request over the same
 * file has the same loss, tokens and answers. Bytes are in the blob store under the file's id.
 */
export function sandboxTraining({ tables, ...shared }: SandboxParts, tenant: TenantContext): TrainingAdapter {
  const files = new Objects<FileData>(tables, tenant, 'file');
  const jobs = new Objects<JobData>(tables, tenant, 'job');
  const batches = new Objects<BatchData>(tables, tenant, 'batch');
  const parts = { ...shared, tenant, files, jobs };
  return { files: sandboxFiles(parts), jobs: sandboxJobs(parts), batches: sandboxBatches({ ...parts, batches }) };
}
