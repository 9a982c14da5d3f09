import type { Provider } from '../provider.ts';
import { azureOpenAiAccount } from './account.ts';
import { azureBindings, azureResponsesOnly, hasResponsesOnly } from './bindings.ts';
import { authorizeAzure, azureSigner } from './credentials.ts';
import { azureError } from './errors.ts';
import { azureBase, placeModel } from './settings.ts';
import { azureTraining } from './training.ts';

/**
 * Azure OpenAI on both of its surfaces. A custom host stands for the whole base, with `/openai/v1` or, where a dated
 * version is pinned, `/openai`.
 */
export const azureOpenAi: Provider = {
  id: 'azure-openai',
  title: 'Azure OpenAI',
  account: azureOpenAiAccount,
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
