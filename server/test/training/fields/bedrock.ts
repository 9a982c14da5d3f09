import type { FieldSubject } from './inputs.ts';

const BASE_MODEL = 'amazon.nova-lite-v1:0:300k';
const ROLE = 'arn:aws:iam::123456789012:role/usual';

export const bedrock: FieldSubject = {
  provider: 'bedrock',
  base: {
    model: BASE_MODEL,
    upstreamModel: BASE_MODEL,
    training_file: 's3%3A%2F%2Fmy-bucket%2Fdata%2Ftrain.jsonl',
    role_arn: ROLE,
    job_name: 'job-0',
  },
  values: {
    validation_file: { validation_file: 's3://my-bucket/data/valid.jsonl' },
    // Without a method of preferences only the number itself is left to refuse.
    beta: {
      method: 'supervised',
      hyperparametersPath: 'method.supervised.hyperparameters',
      hyperparameters: { n_epochs: 3, learning_rate_multiplier: 1, batch_size: 1, beta: 0.2 },
    },
  },
  table: {
    model: { place: 'baseModelIdentifier', value: BASE_MODEL },
    training_file: { place: 'trainingDataConfig.s3Uri', value: 's3://my-bucket/data/train.jsonl' },
    validation_file: { place: 'validationDataConfig.validators.0.s3Uri', value: 's3://my-bucket/data/valid.jsonl' },
    suffix: { place: 'customModelName', value: 'v2' },
    'method.type=supervised': { place: 'customizationType', value: 'FINE_TUNING' },
    'method.type=dpo': { refused: 'method.type' },
    n_epochs: { place: 'hyperParameters.epochCount', value: '5' },
    'n_epochs=auto': { refused: 'method.supervised.hyperparameters.n_epochs' },
    learning_rate_multiplier: { place: 'hyperParameters.learningRate', value: '0.00002' },
    batch_size: { refused: 'method.supervised.hyperparameters.batch_size' },
    beta: { refused: 'method.supervised.hyperparameters.beta' },
    job_name: { place: 'jobName', value: 'job-1' },
    role_arn: { place: 'roleArn', value: 'arn:aws:iam::123456789012:role/tuner' },
    output_file: { place: 'outputDataConfig.s3Uri', value: 's3://bucket/output/' },
    seed: { refused: 'seed' },
    integrations: { refused: 'integrations' },
    metadata: { place: 'jobTags', value: [{ key: 'team', value: 'search' }] },
    unknown: { refused: 'flavour' },
  },
};
