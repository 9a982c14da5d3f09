/**
 * What the dispatcher (`training/handler.ts`) asks of Sluice's own files, jobs and batches. Each method answers one
 * operation; ids in `call.params` are already decoded, queries are still to be read (`training/paging.ts`).
 */
import type { ObjectAnswer, ObjectCall } from '../../runtime/object-call.ts';

type Answers = (call: ObjectCall) => Promise<ObjectAnswer>;

export interface ManagedFilesPort {
  /** `training/upload.ts` reads the body. */
  upload: Answers;
  list: Answers;
  retrieve: Answers;
  remove: Answers;
  content: Answers;
}

export interface ManagedJobsPort {
  /** `training/requests.ts` reads and checks the body, `training/options.ts` finds the account. */
  create: Answers;
  list: Answers;
  retrieve: Answers;
  cancel: Answers;
  events: Answers;
  checkpoints: Answers;
}

export interface ManagedBatchesPort {
  create: Answers;
  list: Answers;
  retrieve: Answers;
  cancel: Answers;
  output: Answers;
}
