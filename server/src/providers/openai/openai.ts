import { OPERATIONS, type OperationId } from '../../operations/operation.ts';
import { account } from '../account.ts';
import { bearer, plainBinding } from '../openai-compatible.ts';
import type { Binding, Provider } from '../provider.ts';
import { headerValue } from '../settings.ts';
import { openAiOptions } from './headers.ts';
import { isResponsesOnly, searchTool, withoutChat } from './responses-only.ts';
import { openAiTraining } from './training.ts';

/** Operations of another vendor's dialect; they are served through a conversion or not at all. */
const FOREIGN: ReadonlySet<OperationId> = new Set(['messages', 'count_tokens', 'rerank']);

const bindings: Partial<Record<OperationId, Binding>> = {};
for (const operation of Object.keys(OPERATIONS) as OperationId[]) {
  // Files, batches and jobs are not bindings: see `training`.
  if (!FOREIGN.has(operation) && OPERATIONS[operation].family !== 'job') bindings[operation] = plainBinding(operation);
}
for (const operation of ['chat', 'completions'] as const) {
  bindings[operation] = {
    ...plainBinding(operation),
    streamUsageOption: true,
    target: { extensions: new Set(['service_tier']) },
  };
}

bindings.responses = { ...plainBinding('responses'), target: { searchTool } };

const responsesOnly = withoutChat(bindings);

/** The shapes of Sluice's OpenAI dialect are this provider's own: bytes pass in both directions. */
export const openai: Provider = {
  id: 'openai',
  title: 'OpenAI',
  account: account({
    openai_organization: {
      virtualKey: 'openaiOrganization',
      config: {},
      request: { pinned: true, header: 'openai-organization' },
    },
    openai_project: {
      virtualKey: 'openaiProject',
      config: {},
      request: { pinned: true, header: 'openai-project' },
    },
    openai_beta: { schema: headerValue },
  }),
  needsKey: true,
  baseUrl: () => 'https://api.openai.com/v1',
  authorize(headers, context) {
    bearer(headers, context);
    openAiOptions(headers, context);
  },
  bindings,
  bindingsOf: (model) => (isResponsesOnly(model) ? responsesOnly : null),
  allBindings: { all: bindings, responsesOnly },
  passThrough: true,
  embeddingModel: 'text-embedding-3-small',
  training: openAiTraining,
};
