import { text } from '../../kernel/text-schema.ts';
import type { AccountFields } from '../account.ts';
import { headerValue } from '../settings.ts';

/** Headers of the Messages API, for every provider that serves it. */
export const ANTHROPIC_OPTIONS: AccountFields = {
  anthropic_version: { schema: headerValue, config: { schema: text(255, 1) }, request: {} },
  anthropic_beta: { schema: headerValue, config: { schema: text(2048, 1) }, request: {} },
};
