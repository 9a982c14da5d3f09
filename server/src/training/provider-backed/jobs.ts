/** Fine-tuning jobs at a provider. */
import { SluiceError } from '../../kernel/errors.ts';
import { FINAL_JOB, type FineTuningJob } from '../../operations/training.ts';
import type { JobsAdapter } from '../../providers/training.ts';
import type { ObjectAnswer, ObjectCall } from '../../runtime/object-call.ts';
import { checkModel } from '../account.ts';
import { json } from '../answer.ts';
import { dryRunAnswer } from '../dry-run.ts';
import type { ObjectOwnership } from '../object-ownership.ts';
import { accountFor, headersWith } from '../options.ts';
import { listAnswer, ownedPage, queryOf, readPage, unknownAfter } from '../paging.ts';
import type { ReadJob } from '../requests.ts';
import type { TrainingServices } from '../services.ts';
import { begun } from '../usage/begin.ts';
import { cursorFault, finalState } from './final.ts';
import {
  about,
  checkFile,
  claimNew,
  guarded,
  namedAccount,
  ownId,
  type ProviderAccess,
  part,
  providerAccess,
  unsupported,
} from './provider-access.ts';

export class ProviderJobs {
  readonly #services: TrainingServices;

  constructor(services: TrainingServices) {
    this.#services = services;
  }

  async create(call: ObjectCall, { job, options }: ReadJob): Promise<ObjectAnswer> {
    queryOf(call.query, []);
    const account = await accountFor(call, options);
    if (job.upstreamModel !== job.model) checkModel(account, job.upstreamModel);
    return guarded(account, async () => {
      const side = providerAccess(this.#services, call, account, headersWith(call, options));
      const jobs = part(side, call, 'jobs');
      call.named(job.model);
      const prepared = jobs.prepare(job, side.context);
      await checkFile(side, job.training_file, 'training_file');
      await checkFile(side, job.validation_file, 'validation_file');
      if (call.dryRun) return dryRunAnswer(call, account, job.upstreamModel, prepared);
      const about = { kind: 'job', model: job.upstreamModel, endpoint: null } as const;
      const created = await begun(this.#services, call, side, about, async () => {
        const made = await jobs.create(job, side.context);
        await claimNew(side, 'job', made.id);
        return made;
      });
      return this.#answer(side, created);
    });
  }

  list(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#run(call, async (side, jobs) => {
      const page = readPage(call.query, 20);
      const { ownership: ledger, context } = side;
      if (ledger === null || ledger.ownsAll('job')) {
        const found = await cursorFault(page, () => jobs.list(page, context));
        await learnFrom(ledger, found.data);
        return listAnswer(found, false);
      }
      const after = page.after === null ? null : await ledger.find('job', page.after);
      if (page.after !== null && after === null) throw unknownAfter();
      const own = await ownedPage({
        page: { after, limit: page.limit },
        list: (upstream) => cursorFault(upstream, () => jobs.list(upstream, context)),
        owned: (ids) => ledger.owned('job', ids),
        remaining: await ledger.count('job', after),
      });
      await learnFrom(ledger, own.data);
      return listAnswer(own, false);
    });
  }

  retrieve(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#one(call, async (side, jobs, id) => this.#answer(side, await jobs.retrieve(id, side.context)));
  }

  cancel(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#one(call, async (side, jobs, id) => {
      const job = await finalState(
        'job',
        () => jobs.cancel(id, side.context),
        async () => (await jobs.retrieve(id, side.context)).status,
        FINAL_JOB,
      );
      return this.#answer(side, job);
    });
  }

  pause(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#optional(call, 'pause');
  }

  resume(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#optional(call, 'resume');
  }

  events(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#pages(call, 20, 1000, false, (jobs, id, page, side) => jobs.events(id, page, side.context));
  }

  checkpoints(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#pages(call, 10, 100, true, async (jobs, id, page, side) => {
      const found = await jobs.checkpoints(id, page, side.context);
      await side.ownership?.learn(
        'model',
        found.data.map((one) => one.fine_tuned_model_checkpoint),
      );
      return found;
    });
  }

  #run(
    call: ObjectCall,
    run: (side: ProviderAccess, jobs: JobsAdapter) => Promise<ObjectAnswer>,
  ): Promise<ObjectAnswer> {
    const account = namedAccount(call);
    return guarded(account, async () => {
      const side = providerAccess(this.#services, call, account);
      return run(side, part(side, call, 'jobs'));
    });
  }

  #one(
    call: ObjectCall,
    run: (side: ProviderAccess, jobs: JobsAdapter, id: string) => Promise<ObjectAnswer>,
    known: readonly string[] = [],
  ): Promise<ObjectAnswer> {
    return this.#run(call, async (side, jobs) => {
      if (known.length === 0) queryOf(call.query, []);
      const id = await ownId(side, 'job', call.params.fine_tuning_job_id ?? '');
      return about('job', () => run(side, jobs, id));
    });
  }

  #optional(call: ObjectCall, name: 'pause' | 'resume'): Promise<ObjectAnswer> {
    const account = namedAccount(call);
    return guarded(account, async () => {
      queryOf(call.query, []);
      const side = providerAccess(this.#services, call, account);
      const jobs = part(side, call, 'jobs');
      const act = jobs[name]?.bind(jobs);
      if (act === undefined) throw unsupported(side, call);
      const id = await ownId(side, 'job', call.params.fine_tuning_job_id ?? '');
      return about('job', async () => this.#answer(side, await act(id, side.context)));
    });
  }

  #pages<T extends { readonly id: string }>(
    call: ObjectCall,
    fallback: number,
    max: number,
    ends: boolean,
    list: (
      jobs: JobsAdapter,
      id: string,
      page: { after: string | null; limit: number },
      side: ProviderAccess,
    ) => Promise<{ data: readonly T[]; has_more: boolean }>,
  ): Promise<ObjectAnswer> {
    return this.#one(
      call,
      async (side, jobs, id) => {
        const page = readPage(call.query, fallback, max);
        return listAnswer(await list(jobs, id, page, side), ends);
      },
      ['after', 'limit'],
    );
  }

  /** The job; what it made becomes the workspace's. */
  async #answer(side: ProviderAccess, job: FineTuningJob): Promise<ObjectAnswer> {
    if (job.id === '') throw new SluiceError('upstream_invalid', 'The provider answered a job without an id.');
    await learnFrom(side.ownership, [job]);
    return json(job);
  }
}

/** Files and models that jobs made become the workspace's. */
async function learnFrom(ledger: ObjectOwnership | null, jobs: readonly FineTuningJob[]): Promise<void> {
  if (ledger === null) return;
  await ledger.learn(
    'file',
    jobs.flatMap((job) => job.result_files),
  );
  await ledger.learn(
    'model',
    jobs.map((job) => job.fine_tuned_model),
  );
}
