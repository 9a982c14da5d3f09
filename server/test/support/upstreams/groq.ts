import { z } from 'zod';
import { type OpenAiObjects, startObjects } from './openai.ts';

const CREATE_BATCH = z.strictObject({
  input_file_id: z.string().min(1),
  endpoint: z.enum(['/v1/chat/completions', '/v1/audio/transcriptions', '/v1/audio/translations']),
  completion_window: z.string().regex(/^(?:24h|[1-7]d)$/),
  metadata: z.record(z.string(), z.string()).nullable().optional(),
});

/** Groq's files and batches: OpenAI's shape without filters, cursors, uploads in parts and fine-tuning. */
export function startGroq(): Promise<OpenAiObjects> {
  return startObjects(
    {
      prefix: '/openai/v1',
      createJob: null,
      createBatch: CREATE_BATCH,
      purposes: ['batch'],
      fileQuery: [],
      batchQuery: [],
      uploads: false,
    },
    { authorization: /^Bearer test-key$/ },
  );
}
