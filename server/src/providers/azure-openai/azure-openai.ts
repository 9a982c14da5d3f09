import { z } from 'zod';
import type { Provider } from '../provider.ts';
import { settingsOf } from '../settings.ts';
import { API_VERSION, azureBase, RESOURCE_NAME } from './settings.ts';
import { azureError, azureTraining } from './training.ts';

/**
 * Azure OpenAI: fine-tuning, files and batches. A custom host stands for the whole base, with `/openai/v1` or, where a
 * dated version is pinned, `/openai`.
 */
export const azureOpenAi: Provider = {
  id: 'azure-openai',
  title: 'Azure OpenAI',
  settings: settingsOf({
    azure_resource_name: z
      .string()
      .regex(RESOURCE_NAME, { error: 'must be 1 to 63 letters, digits and hyphens' })
      .optional(),
    azure_api_version: z
      .string()
      .regex(API_VERSION, { error: 'must be v1, preview or a date such as 2025-04-01-preview' })
      .optional(),
  }),
  secretSettings: ['azure_entra_client_secret'],
  // Accounts that sign in through Entra have no key; one that needs it and has none is refused before any call.
  needsKey: false,
  baseUrl: azureBase,
  authorize(headers, context) {
    const { key } = context.credentials;
    if (key !== null) headers.push('api-key', key.reveal());
  },
  bindings: {},
  passThrough: false,
  error: azureError,
  training: azureTraining,
};
