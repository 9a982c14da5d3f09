/**
 * Files, batches and fine-tuning jobs: which part answers an operation. Sluice's own (`managed/`) when the headers, the
 * id or a file the body names say so, else the provider's (`provider-backed/`).
 */
import { SluiceError } from '../kernel/errors.ts';
import { OPERATIONS, type OperationOf } from '../operations/operation.ts';
import type { ObjectAnswer, ObjectCall, ObjectHandler } from '../runtime/object-call.ts';
import type { ManagedBatchesPort, ManagedFilesPort, ManagedJobsPort } from './managed/ports.ts';
import { ProviderBatches } from './provider-backed/batches.ts';
import { ProviderFiles } from './provider-backed/files.ts';
import { ProviderJobs } from './provider-backed/jobs.ts';
import { bodyOf, readBatch, readJob } from './requests.ts';
import type { TrainingServices } from './services.ts';

type Answer = (call: ObjectCall) => Promise<ObjectAnswer>;

const OWN_FILE = 'gw_file_';

/** Sluice's own files, jobs and batches; an absent part answers 501. */
export interface Managed {
  readonly files?: ManagedFilesPort;
  readonly jobs?: ManagedJobsPort;
  readonly batches?: ManagedBatchesPort;
}

export function createTraining(services: TrainingServices, managed: Managed = {}): ObjectHandler {
  const files = new ProviderFiles(services);
  const jobs = new ProviderJobs(services);
  const batches = new ProviderBatches(services);
  const own = managed;

  const table: Readonly<Record<OperationOf<'job'>, Answer>> = {
    files_upload: (call) => (call.managed ? must(own.files, call).upload(call) : files.upload(call)),
    files: (call) => (call.managed ? must(own.files, call).list(call) : files.list(call)),
    file: (call) => (call.managed ? must(own.files, call).retrieve(call) : files.retrieve(call)),
    file_delete: (call) => (call.managed ? must(own.files, call).remove(call) : files.remove(call)),
    file_content: (call) => (call.managed ? must(own.files, call).content(call) : files.content(call)),

    finetune_create: (call) => {
      const read = readJob(bodyOf(call), call.dropParams);
      const { training_file, validation_file } = read.job;
      const kept = training_file.startsWith(OWN_FILE) || validation_file?.startsWith(OWN_FILE) === true;
      return call.managed || kept ? must(own.jobs, call).create(call) : jobs.create(call, read);
    },
    finetune_jobs: (call) => (call.managed ? must(own.jobs, call).list(call) : jobs.list(call)),
    finetune_job: (call) => (call.managed ? must(own.jobs, call).retrieve(call) : jobs.retrieve(call)),
    finetune_cancel: (call) => (call.managed ? must(own.jobs, call).cancel(call) : jobs.cancel(call)),
    finetune_events: (call) => (call.managed ? must(own.jobs, call).events(call) : jobs.events(call)),
    finetune_checkpoints: (call) => (call.managed ? must(own.jobs, call).checkpoints(call) : jobs.checkpoints(call)),
    finetune_pause: (call) => (call.managed ? Promise.reject(noSuchOperation('paused')) : jobs.pause(call)),
    finetune_resume: (call) => (call.managed ? Promise.reject(noSuchOperation('resumed')) : jobs.resume(call)),

    batch_create: (call) => {
      const read = readBatch(bodyOf(call), call.dropParams);
      const kept = read.batch.input_file_id.startsWith(OWN_FILE);
      return call.managed || kept ? must(own.batches, call).create(call) : batches.create(call, read);
    },
    batches: (call) => (call.managed ? must(own.batches, call).list(call) : batches.list(call)),
    batch: (call) => (call.managed ? must(own.batches, call).retrieve(call) : batches.retrieve(call)),
    batch_cancel: (call) => (call.managed ? must(own.batches, call).cancel(call) : batches.cancel(call)),
    batch_output: (call) => (call.managed ? must(own.batches, call).output(call) : batches.output(call)),
  };

  const answers: Readonly<Record<string, Answer | undefined>> = table;
  return {
    async handle(call) {
      const answer = answers[call.operation];
      if (answer === undefined) throw new SluiceError('not_found', 'There is no such route.');
      if (call.dryRun && !OPERATIONS[call.operation].beginsWork) {
        throw new SluiceError(
          'invalid_request',
          'x-gateway-dry-run works for creating a fine-tuning job or a batch only; remove the header.',
          { param: 'x-gateway-dry-run' },
        );
      }
      return answer(call);
    },
  };
}

/** The same for every id, so that it tells nothing about which there are. */
function noSuchOperation(what: string): SluiceError {
  return new SluiceError('not_found', `Fine-tuning jobs that Sluice runs cannot be ${what}; they can be cancelled.`);
}

function must<T>(port: T | undefined, call: ObjectCall): T {
  if (port !== undefined) return port;
  throw new SluiceError('unsupported_operation', `Sluice does not run the operation ${call.operation} itself yet.`);
}
