import type { FieldSubject } from './inputs.ts';

export const openai: FieldSubject = {
  provider: 'openai',
  table: {
    model: { place: 'model', value: 'base-model' },
    training_file: { place: 'training_file', value: 'file-train' },
    validation_file: { place: 'validation_file', value: 'file-valid' },
    suffix: { place: 'suffix', value: 'v2' },
    'method.type=supervised': { place: 'method.type', value: 'supervised' },
    'method.type=dpo': { place: 'method.type', value: 'dpo' },
    n_epochs: { place: 'method.supervised.hyperparameters.n_epochs', value: 5 },
    'n_epochs=auto': { place: 'method.supervised.hyperparameters.n_epochs', value: 'auto' },
    learning_rate_multiplier: { place: 'method.supervised.hyperparameters.learning_rate_multiplier', value: 2 },
    batch_size: { place: 'method.supervised.hyperparameters.batch_size', value: 4 },
    beta: { place: 'method.dpo.hyperparameters.beta', value: 0.2 },
    job_name: { refused: 'job_name' },
    role_arn: { refused: 'role_arn' },
    output_file: { refused: 'output_file' },
    seed: { place: 'seed', value: 7 },
    integrations: { place: 'integrations', value: [{ type: 'wandb', wandb: { project: 'project-1' } }] },
    metadata: { place: 'metadata', value: { team: 'search' } },
    unknown: { place: 'flavour', value: 'vanilla' },
  },
};
