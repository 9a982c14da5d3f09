import type { FieldSubject } from './inputs.ts';

const MODEL = 'accounts/fireworks/models/base-model';
const SETTINGS = { baseModel: MODEL, outputModel: 'accounts/acme/models/v1', epochs: 3, batchSizeSamples: 1 };

export const fireworksAi: FieldSubject = {
  provider: 'fireworks-ai',
  context: { settings: { fireworks_account_id: 'acme' } },
  table: {
    model: { place: 'baseModel', value: MODEL },
    training_file: { place: 'dataset', value: 'accounts/acme/datasets/file-train' },
    validation_file: { place: 'evaluationDataset', value: 'accounts/acme/datasets/file-valid' },
    suffix: { place: 'outputModel', value: 'accounts/acme/models/v2' },
    'method.type=supervised': { place: 'baseModel', value: MODEL },
    'method.type=dpo': { place: 'trainingConfig', value: SETTINGS },
    n_epochs: { place: 'epochs', value: 5 },
    'n_epochs=auto': { place: 'epochs', value: undefined },
    learning_rate_multiplier: { refused: 'method.supervised.hyperparameters.learning_rate_multiplier' },
    batch_size: { place: 'batchSizeSamples', value: 4 },
    beta: { place: 'lossConfig', value: { method: 'DPO', dpo: { beta: 0.2 } } },
    // Goes into the query: see the adapter's own tests.
    job_name: { place: 'query.supervisedFineTuningJobId', value: 'job-1' },
    role_arn: { refused: 'role_arn' },
    output_file: { refused: 'output_file' },
    seed: { refused: 'seed' },
    integrations: { refused: 'integrations' },
    metadata: { refused: 'metadata' },
    unknown: { refused: 'flavour' },
  },
};
