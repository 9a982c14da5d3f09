/** OpenTelemetry's semantic conventions of generative AI as they are developed: what differs from version 1.41. */
import { V1_41 } from './v1-41.ts';

export const LATEST = {
  attributes: {
    ...V1_41.attributes,
    cacheWriteTokens: 'gen_ai.usage.cache_write.input_tokens',
  },
  /** A histogram for calls of models; other operations stay in that of all. */
  inferenceDuration: 'gen_ai.client.inference.duration',
  otherOperations: ['embeddings'],
  /** A counter and a histogram in place of each type of token of `gen_ai.client.token.usage`. */
  tokens: {
    input: {
      counter: 'gen_ai.client.inference.usage.input_tokens',
      histogram: 'gen_ai.client.inference.operation.input_tokens',
    },
    output: {
      counter: 'gen_ai.client.inference.usage.output_tokens',
      histogram: 'gen_ai.client.inference.operation.output_tokens',
    },
  },
} as const;
