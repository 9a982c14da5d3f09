import type { SluiceError } from '../../kernel/errors.ts';
import type { AdapterAnswer } from '../training.ts';
import { failureOf, providerFailure } from '../training-calls.ts';

export type { FreshToken } from '../training.ts';

/** Covers Vertex AI and Cloud Storage. */
export const CLOUD_SCOPE = 'https://www.googleapis.com/auth/cloud-platform';

/** A refusal of a token endpoint is a wrong credential, whatever its status; a failure of it stays one. */
export async function exchangeFailure(answer: AdapterAnswer, what: string): Promise<SluiceError> {
  const failure = await failureOf(answer);
  if (answer.status === 429 || answer.status >= 500) return failure;
  return providerFailure({
    status: 401,
    type: 'authentication_error',
    code: 'invalid_api_key',
    param: null,
    message: `Google did not accept ${what} of the provider: ${failure.message}`,
  });
}
