import type { FieldSubject } from './inputs.ts';

const SUPERVISED = { trainingDatasetUri: 'gs://bucket/train.jsonl' };
const NEUTRAL = { epochCount: '3', learningRateMultiplier: 1 };

export const vertexAi: FieldSubject = {
  provider: 'vertex-ai',
  base: { upstreamModel: 'gemini-2.5-flash', training_file: 'gs://bucket/train.jsonl' },
  values: { validation_file: { validation_file: 'gs%3A%2F%2Fbucket%2Fvalid.jsonl' } },
  context: { settings: { vertex_region: 'us-central1', vertex_project_id: 'test-project' } },
  table: {
    model: { place: 'baseModel', value: 'gemini-2.5-flash' },
    training_file: { place: 'supervisedTuningSpec.trainingDatasetUri', value: 'gs://bucket/train.jsonl' },
    validation_file: { place: 'supervisedTuningSpec.validationDatasetUri', value: 'gs://bucket/valid.jsonl' },
    suffix: { place: 'tunedModelDisplayName', value: 'v2' },
    'method.type=supervised': { place: 'supervisedTuningSpec', value: { ...SUPERVISED, hyperParameters: NEUTRAL } },
    'method.type=dpo': { place: 'preferenceOptimizationSpec', value: { ...SUPERVISED, hyperParameters: NEUTRAL } },
    n_epochs: { place: 'supervisedTuningSpec.hyperParameters.epochCount', value: '5' },
    'n_epochs=auto': { place: 'supervisedTuningSpec.hyperParameters', value: { learningRateMultiplier: 1 } },
    learning_rate_multiplier: { place: 'supervisedTuningSpec.hyperParameters.learningRateMultiplier', value: 2 },
    batch_size: { refused: 'method.supervised.hyperparameters.batch_size' },
    beta: { place: 'preferenceOptimizationSpec.hyperParameters.beta', value: 0.2 },
    job_name: { refused: 'job_name' },
    role_arn: { refused: 'role_arn' },
    output_file: { refused: 'output_file' },
    seed: { refused: 'seed' },
    integrations: { refused: 'integrations' },
    metadata: { place: 'labels', value: { team: 'search' } },
    unknown: { refused: 'flavour' },
  },
};
