/** OpenTelemetry's semantic conventions of generative AI as they are developed: what differs from version 1.41. */
import { V1_41 } from './v1-41.ts';

export const LATEST = {
  attributes: {
    ...V1_41.attributes,
    cacheWriteTokens: 'gen_ai.usage.cache_write.input_tokens',
  },
} as const;
