import type { Row } from '../schema.ts';

/** What a feedback says, whosever it is. */
export const FEEDBACK = {
  trace_id: 'trace',
  value: 5,
  weight_micros: 500_000,
  weighted_micros: 2_500_000,
  metadata: null,
  source: 'api',
  api_key_id: null,
  user_id: null,
  ai_model: 'model',
  provider: 'openai',
  config_slug: null,
  matched: true,
} as const satisfies Partial<Row<'feedback'>>;
