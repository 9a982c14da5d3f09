import { SluiceError } from '../kernel/errors.ts';
import { errorStatus } from '../operations/dialects/errors.ts';
import { withoutSecrets } from '../providers/sent-secrets.ts';

/** The same error without credentials an upstream may have echoed; anything but a SluiceError is left to the log. */
export function cleaned(error: unknown, secrets: readonly string[]): unknown {
  if (!(error instanceof SluiceError) || secrets.length === 0) return error;
  const { provider } = error;
  const message = withoutSecrets(error.message, secrets);
  const param = error.param === null ? null : withoutSecrets(error.param, secrets);
  const code = provider?.code == null ? null : withoutSecrets(provider.code, secrets);
  if (
    message === error.message &&
    param === error.param &&
    code === (provider?.code ?? null) &&
    error.detail === undefined
  ) {
    return error;
  }
  return error.reworded(message, {
    param,
    provider: provider === null ? null : { ...provider, code },
    detail: error.detail === undefined ? undefined : withoutSecrets(printable(error.detail), secrets),
    cause: error.cause,
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
    (error.kind === 'not_found' || (error.kind === 'provider_error' && [404, 410].includes(errorStatus(error))))
  );
}
