import { z } from 'zod';
import type { Provider } from '../provider.ts';
import { address, settingsOf } from '../settings.ts';
import { azureBindings, azureResponsesOnly, hasResponsesOnly } from './bindings.ts';
import { azureCloudSetting } from './clouds.ts';
import { authorizeAzure, azureSigner } from './credentials.ts';
import { azureError } from './errors.ts';
import { API_VERSION, azureBase, placeModel, RESOURCE_NAME } from './settings.ts';
import { azureTraining } from './training.ts';

/**
 * Azure OpenAI on both of its surfaces. A custom host stands for the whole base, with `/openai/v1` or, where a dated
 * version is pinned, `/openai`.
 */
export const azureOpenAi: Provider = {
  id: 'azure-openai',
  title: 'Azure OpenAI',
  settings: settingsOf({
    azure_resource_name: address(
      z.string().regex(RESOURCE_NAME, { error: 'must be 1 to 63 letters, digits and hyphens' }).optional(),
    ),
    azure_api_version: z
      .string()
      .regex(API_VERSION, { error: 'must be v1, preview or a date such as 2025-04-01-preview' })
      .optional(),
    azure_entra_scope: address(z.string().min(1).max(2048).optional()),
    azure_cloud: address(azureCloudSetting),
  }),
  secretSettings: ['azure_entra_client_secret', 'azure_ad_token'],
  // Accounts that sign in through Entra have no key; one that needs it and has none is refused before any call.
  needsKey: false,
  baseUrl: azureBase,
  placeModel,
  authorize: authorizeAzure,
  sign: (context) => azureSigner(context, 'cognitiveservices'),
  bindings: azureBindings,
  bindingsOf: (model, credentials) => (hasResponsesOnly(model, credentials) ? azureResponsesOnly : null),
  allBindings: { all: azureBindings, responsesOnly: azureResponsesOnly },
  passThrough: true,
  error: azureError,
  training: azureTraining,
};
