import { createHash } from 'node:crypto';
import { SluiceError } from '../../kernel/errors.ts';
import type { JobError, JobRequest } from '../../operations/training.ts';
import { parseModelName } from '../../providers/sandbox/model.ts';
import { Problem } from '../../providers/sandbox/problem.ts';
import type { AdapterContext, JobsAdapter } from '../../providers/training.ts';
import { checkBuckets } from '../buckets.ts';
import { checkDataset, type SandboxDataset } from './dataset.ts';
import type { FileParts } from './files.ts';
import { checkpointsAt, eventsAt, isFinal, type JobData, jobAt } from './life.ts';
import { pageOf, shortId } from './objects.ts';
import { prepared, refuseFields, timedModel } from './refuse.ts';

/** From `created_at` to the end, unless the model says otherwise: `echo?train_ms=60000`. */
const TRAIN_MS = 5_000;
const MAX_EPOCHS = 50;

interface Wanted {
  readonly base: string;
  readonly trainMs: number;
}

function wantedOf(model: string): Wanted {
  const { base, ms } = timedModel(model, 'train_ms');
  return { base: checked(base), trainMs: ms ?? TRAIN_MS };
}

function checked(base: string): string {
  try {
    parseModelName(base);
  } catch (error) {
    if (error instanceof Problem) throw new SluiceError('invalid_request', error.message, { param: 'model' });
    throw error;
  }
  return base;
}

function check(job: JobRequest, context: AdapterContext): Wanted {
  refuseFields(job.extra, context);
  checkBuckets(context.header);
  if (!/^[\w.-]{0,64}$/.test(job.suffix)) {
    throw new SluiceError(
      'invalid_request',
      'suffix may have at most 64 letters, digits, dots, dashes and underscores on the sandbox.',
      { param: 'suffix' },
    );
  }
  const { n_epochs: epochs } = job.hyperparameters;
  if (typeof epochs === 'number' && epochs > MAX_EPOCHS) {
    throw new SluiceError('invalid_request', `n_epochs must be at most ${MAX_EPOCHS} on the sandbox.`, {
      param: `${job.hyperparametersPath}.n_epochs`,
    });
  }
  return wantedOf(job.upstreamModel);
}

/** What decides the answer, in one text: the same request has the same loss. */
function hashOf(job: JobRequest, base: string, digest: string): string {
  const { suffix, method, hyperparameters, seed } = job;
  return createHash('sha256')
    .update(JSON.stringify([base, suffix, method, hyperparameters, seed, digest]))
    .digest('hex');
}

export function sandboxJobs(parts: FileParts): JobsAdapter {
  const { blobs, clock, log, tenant, files, jobs } = parts;

  async function look(
    id: string,
    method: JobRequest['method'],
    param: 'training_file' | 'validation_file',
  ): Promise<{ report: SandboxDataset; verdict: JobError | null }> {
    const bad = (fault: string) => ({ code: `invalid_${param}`, message: `${param} cannot be used: ${fault}`, param });
    const file = await files.find(id);
    const stream = file === null ? null : await blobs.get(tenant, id);
    if (file === null || stream === null) {
      throw new SluiceError(
        'unknown_reference',
        `No file ${JSON.stringify(id.slice(0, 100))} exists in this sandbox.`,
        {
          param,
        },
      );
    }
    if (file.data.purpose !== 'fine-tune') {
      stream.destroy();
      throw new SluiceError('invalid_request', `${param} must be a file with the purpose fine-tune.`, { param });
    }
    const report = await checkDataset(stream, method, { clock, log, name: id, owner: tenant.organisationId });
    return { report, verdict: report.fault === null ? null : bad(report.fault) };
  }

  return {
    minimumRows: 1,
    rowFormat: () => 'openai',
    seconds: (job) => Math.ceil(wantedOf(job.upstreamModel).trainMs / 1000),

    prepare(job, context) {
      check(job, context);
      return prepared('/fine_tuning/jobs', job.body);
    },

    async create(job, context) {
      const { base, trainMs } = check(job, context);
      const training = await look(job.training_file, job.method, 'training_file');
      const validation =
        job.validation_file === null ? null : await look(job.validation_file, job.method, 'validation_file');
      const hash = hashOf(job, base, training.report.digest);
      const data: JobData = {
        model: job.model,
        base,
        training_file: job.training_file,
        validation_file: job.validation_file,
        suffix: job.suffix,
        method: job.method,
        hyperparameters: job.hyperparameters,
        seed: job.seed ?? Number.parseInt(hash.slice(0, 7), 16),
        integrations: job.integrations,
        metadata: job.metadata,
        cloud: { job_name: job.job_name, role_arn: job.role_arn, output_file: job.output_file },
        trainMs,
        verdict: training.verdict ?? validation?.verdict ?? null,
        rows: training.report.rows,
        tokens: training.report.tokens,
        hash,
        cancelledAt: null,
        resultRemoved: false,
      };
      return jobAt(await jobs.add(`ftjob-${shortId(context)}`, data, context.now()), context.now());
    },

    async list(page, context) {
      const found = await jobs.page(page);
      return { data: found.data.map((job) => jobAt(job, context.now())), has_more: found.has_more };
    },

    async retrieve(id, context) {
      return jobAt(await jobs.get(id), context.now());
    },

    async cancel(id, context) {
      const now = context.now();
      const job = await jobs.change(id, (found) => {
        if (isFinal(found, now)) {
          throw new SluiceError(
            'validation',
            `The job is ${jobAt(found, now).status} and cannot be cancelled any more.`,
          );
        }
        return { ...found.data, cancelledAt: now };
      });
      return jobAt(job, now);
    },

    async events(id, page, context) {
      return pageOf(eventsAt(await jobs.get(id), context.now()), page);
    },

    async checkpoints(id, page, context) {
      return pageOf(checkpointsAt(await jobs.get(id), context.now()), page);
    },
  };
}
