import { SluiceError } from '../kernel/errors.ts';
import { withoutSecrets } from '../providers/sent-secrets.ts';

/** The same error without credentials an upstream may have echoed; anything but a SluiceError is left to the log. */
export function cleaned(error: unknown, secrets: readonly string[]): unknown {
  if (!(error instanceof SluiceError) || secrets.length === 0) return error;
  const message = withoutSecrets(error.message, secrets);
  const param = error.param === null ? null : withoutSecrets(error.param, secrets);
  const code = error.code === null ? null : withoutSecrets(error.code, secrets);
  const detail = error.detail === undefined ? undefined : withoutSecrets(printable(error.detail), secrets);
  if (message === error.message && param === error.param && code === error.code && error.detail === undefined) {
    return error;
  }
  const { kind, status, type, retryAfter, errors, problems, cause } = error;
  return new SluiceError(kind, message, {
    param,
    status,
    type,
    detail,
    cause,
    ...(code === null ? null : { code }),
    ...(retryAfter === null ? null : { retryAfter }),
    ...(errors === null ? null : { errors }),
    ...(problems === null ? null : { problems }),
  });
}

function printable(value: unknown): string {
  if (typeof value === 'string') return value;
  if (value instanceof Error) return value.message;
  return JSON.stringify(value) ?? '';
}

/** Whether a provider said that there is no such object. */
export function isMissing(error: unknown): boolean {
  return (
    error instanceof SluiceError &&
    (error.kind === 'not_found' || (error.kind === 'provider_error' && (error.status === 404 || error.status === 410)))
  );
}
