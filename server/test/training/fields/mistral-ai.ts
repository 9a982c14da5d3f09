import type { FieldSubject } from './inputs.ts';

export const mistralAi: FieldSubject = {
  provider: 'mistral-ai',
  table: {
    model: { place: 'model', value: 'base-model' },
    training_file: { place: 'training_files', value: [{ file_id: 'file-train', weight: 1 }] },
    validation_file: { place: 'validation_files', value: ['file-valid'] },
    suffix: { place: 'suffix', value: 'v2' },
    'method.type=supervised': { place: 'job_type', value: 'completion' },
    'method.type=dpo': { refused: 'method.type' },
    n_epochs: { place: 'hyperparameters.epochs', value: 5 },
    // Left out, the provider chooses.
    'n_epochs=auto': { place: 'hyperparameters.epochs', value: undefined },
    learning_rate_multiplier: { place: 'hyperparameters.learning_rate', value: 0.0002 },
    batch_size: { refused: 'method.supervised.hyperparameters.batch_size' },
    beta: { refused: 'method.supervised.hyperparameters.beta' },
    job_name: { refused: 'job_name' },
    role_arn: { refused: 'role_arn' },
    output_file: { refused: 'output_file' },
    seed: { refused: 'seed' },
    integrations: { refused: 'integrations' },
    metadata: { refused: 'metadata' },
    unknown: { refused: 'flavour' },
  },
  values: {
    // Preference training is refused as a whole; beta alone is asked of a supervised job.
    beta: {
      method: 'supervised',
      hyperparametersPath: 'method.supervised.hyperparameters',
      hyperparameters: { n_epochs: 3, learning_rate_multiplier: 1, batch_size: 1, beta: 0.2 },
    },
  },
};
