import { ERRORS, type SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import type { Dialect } from '../operation.ts';
import { anthropicErrorType, type ProviderError } from './provider-error.ts';

export interface ErrorBody {
  readonly status: number;
  readonly body: string;
}

function fields(error: SluiceError, dialect: Dialect): JsonObject {
  const row = ERRORS[error.kind];
  switch (row.shape) {
    case 'admin':
    case 'openai':
      return {
        error: { message: error.message, type: error.type, param: error.param, code: error.code },
        // As the administration answers it: all that is wrong with a body.
        ...(error.problems === null ? null : { errors: error.problems.map((problem) => ({ ...problem })) }),
      };
    case 'failure': {
      const out: JsonObject = { status: 'failure' };
      if (error.kind === 'inline_blocked') {
        out.error = { code: error.code, message: error.message, field: error.param };
      } else if (dialect === 'anthropic') {
        out.error = { type: anthropicErrorType(error.status), message: error.message };
      } else {
        // OpenAI's clients look here only, and would show an error without any text.
        out.error = { message: error.message, type: error.type, param: error.param, code: error.code };
      }
      out.message = error.message;
      if (error.errors !== null) out.errors = [...error.errors];
      return out;
    }
  }
}

/**
 * The body and status of an error Sluice itself raised on the data plane, one of three shapes:
 *
 * - `admin`: `{"error":{"message","type","param","code":"AB.."}}`
 * - `failure`: `{"status":"failure","error","message","errors"?}` with the error object of the caller's dialect; in
 *   saved-only mode with `"error":{"code","message","field"}`
 * - `openai`: `{"error":{"message","type","param","code"}}`
 *
 * For Anthropic callers every shape also carries a top-level `"type":"error"`, by which their clients know an error.
 * `extra` adds documented top-level keys, such as `hook_results`.
 */
export function errorBody(error: SluiceError, dialect: Dialect, extra?: JsonObject): ErrorBody {
  const body = { ...(dialect === 'anthropic' ? { type: 'error' } : null), ...fields(error, dialect), ...extra };
  return { status: error.status, body: JSON.stringify(body) };
}

/** An error raised by Sluice, under the names of the OpenAI error object. */
export function asProviderError(error: SluiceError): ProviderError {
  const { message, param, code, status, type } = error;
  return { status, message, type, param, code };
}
