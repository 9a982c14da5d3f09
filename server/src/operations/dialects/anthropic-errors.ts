/** How Anthropic's dialect says each failure: as OpenAI's, but for what its own names say. */
import type { ErrorKind } from '../../kernel/errors.ts';
import { type ErrorRow, OPENAI_ERRORS } from './openai-errors.ts';

export const ANTHROPIC_ERRORS: Readonly<Record<ErrorKind, ErrorRow>> = {
  ...OPENAI_ERRORS,
  too_large: { ...OPENAI_ERRORS.too_large, type: 'request_too_large' },
};
