import type { FieldSubject } from './inputs.ts';
import { openai } from './openai.ts';

const settings = { azure_resource_name: 'my-resource' };

/** The v1 surface takes what OpenAI takes. */
export const azureOpenAi: FieldSubject = {
  provider: 'azure-openai',
  table: openai.table,
  context: { settings },
};

/** The dated surface has its numbers at the top level and no place for metadata or members it does not know. */
export const azureOpenAiDated: FieldSubject = {
  provider: 'azure-openai',
  table: {
    ...openai.table,
    n_epochs: { place: 'hyperparameters.n_epochs', value: 5 },
    'n_epochs=auto': { refused: 'method.supervised.hyperparameters.n_epochs' },
    learning_rate_multiplier: { place: 'hyperparameters.learning_rate_multiplier', value: 2 },
    batch_size: { place: 'hyperparameters.batch_size', value: 4 },
    beta: { refused: 'method.dpo.hyperparameters.beta' },
    metadata: { refused: 'metadata' },
    unknown: { refused: 'flavour' },
  },
  context: { settings: { ...settings, azure_api_version: '2025-04-01-preview' } },
};
