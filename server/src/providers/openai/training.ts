import type { AdapterContext, TrainingAdapter } from '../training.ts';
import { bearerHeaders } from '../training-calls.ts';
import { openAiOptions } from './headers.ts';
import type { ObjectApi } from './training-api.ts';
import { openAiBatches } from './training-batches.ts';
import { openAiFiles, UPLOAD_PARTS } from './training-files.ts';
import { jobBody, openAiJobs } from './training-jobs.ts';

const headers = (context: AdapterContext): string[] => {
  const out = bearerHeaders(context);
  openAiOptions(out, context);
  return out;
};

const api: ObjectApi = { title: 'openai', headers, plannedHeaders: headers };

/** Fine-tuning, files and batches of OpenAI. */
export const openAiTraining: TrainingAdapter = {
  jobs: openAiJobs({ api, body: (job, context) => jobBody(job, context, api.title) }),
  files: openAiFiles({
    api,
    purposes: new Set(['assistants', 'batch', 'fine-tune', 'vision']),
    list: () => 'pages',
    parts: UPLOAD_PARTS,
  }),
  batches: openAiBatches({ api }),
};
