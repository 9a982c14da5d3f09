import { isObject, type JsonObject } from '../../kernel/json.ts';
import { type ProviderError, readProviderError } from '../../operations/dialects/provider-error.ts';
import { textOf } from '../training-calls.ts';

/**
 * Dated versions name the field at fault `target`, a deployment that does not exist has its own code. The findings of a
 * content filter are in the inner error, which is kept.
 */
export function azureError(status: number, body: JsonObject | string): ProviderError {
  const error = readProviderError(status, body);
  if (typeof body === 'string' || !isObject(body.error)) return error;
  const { code, target, innererror, inner_error: inner = innererror } = body.error;
  return {
    ...error,
    param: error.param ?? textOf(target),
    ...(code === 'DeploymentNotFound' ? { code: 'model_not_found' } : null),
    ...(isObject(inner) ? { inner } : null),
  };
}
