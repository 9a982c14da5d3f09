import type { FieldSubject } from './inputs.ts';

export const togetherAi: FieldSubject = {
  provider: 'together-ai',
  table: {
    model: { place: 'model', value: 'base-model' },
    training_file: { place: 'training_file', value: 'file-train' },
    validation_file: { place: 'validation_file', value: 'file-valid' },
    suffix: { place: 'suffix', value: 'v2' },
    'method.type=supervised': { place: 'training_method', value: { method: 'sft', train_on_inputs: 'auto' } },
    'method.type=dpo': { place: 'training_method', value: { method: 'dpo' } },
    n_epochs: { place: 'n_epochs', value: 5 },
    'n_epochs=auto': { refused: 'method.supervised.hyperparameters.n_epochs' },
    learning_rate_multiplier: { place: 'learning_rate', value: 0.00002 },
    batch_size: { place: 'batch_size', value: 4 },
    beta: { place: 'training_method.dpo_beta', value: 0.2 },
    job_name: { refused: 'job_name' },
    role_arn: { refused: 'role_arn' },
    output_file: { refused: 'output_file' },
    seed: { place: 'random_seed', value: 7 },
    integrations: { refused: 'integrations' },
    metadata: { refused: 'metadata' },
    unknown: { refused: 'flavour' },
  },
};
