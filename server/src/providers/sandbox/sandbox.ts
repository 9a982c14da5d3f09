import type { OperationId } from '../../operations/operation.ts';
import { NO_SETTINGS } from '../account.ts';
import { plainBinding } from '../openai-compatible.ts';
import type { Binding, Provider } from '../provider.ts';
import { createLocal } from './local.ts';

const SERVED: readonly OperationId[] = [
  'chat',
  'completions',
  'embeddings',
  'messages',
  'count_tokens',
  'responses',
  'response',
  'response_delete',
  'response_items',
  'moderations',
  'images_generate',
  'images_edit',
  'images_vary',
  'speech',
  'transcribe',
  'translate',
  'rerank',
  'models',
  'model',
];

const bindings: Partial<Record<OperationId, Binding>> = {};
for (const operation of SERVED) bindings[operation] = plainBinding(operation);
for (const operation of ['chat', 'completions'] as const) {
  bindings[operation] = { ...plainBinding(operation), streamUsageOption: true };
}

/**
 * Answers inside the process, offline and without a key, in the wire shape of each operation: OpenAI's, or Anthropic's
 * below `/messages`. Every JSON answer and every stream carries `"system_fingerprint": "sandbox"`. The same request has
 * the same answer; only `created` follows the clock. Behaviours are chosen by model name: see `BEHAVIOURS`.
 */
export const sandbox: Provider = {
  id: 'sandbox',
  title: 'Sandbox',
  account: NO_SETTINGS,
  needsKey: false,
  baseUrl: () => null,
  authorize() {},
  bindings,
  passThrough: false,
  embeddingModel: 'sandbox-embed',
  local: createLocal(),
};
