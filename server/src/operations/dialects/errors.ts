/** The data plane's way of telling failures: each dialect has a table, total over the kinds, and a body. */
import type { ErrorKind, ProviderSaid, SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { ANTHROPIC_ERRORS } from './anthropic-errors.ts';
import type { Dialect } from './dialect.ts';
import { type ErrorRow, OPENAI_ERRORS } from './openai-errors.ts';
import type { ProviderError } from './provider-error.ts';

export interface ErrorBody {
  readonly status: number;
  readonly body: string;
}

/** One dialect: its rows, and the members of a body whose error object has only what its clients read. */
interface ErrorDialect {
  readonly rows: Readonly<Record<ErrorKind, ErrorRow>>;
  /** What every body of an error begins with. */
  readonly mark: JsonObject | null;
  /** The error object of the body `failure`. */
  readonly failure: (error: SluiceError, said: ProviderSaid) => JsonObject;
}

const named = ({ message, param }: SluiceError, { type, code }: ProviderSaid): JsonObject => ({
  message,
  type,
  param,
  code,
});

// OpenAI's clients look into the error object only, and would show an error without any text.
const OPENAI: ErrorDialect = { rows: OPENAI_ERRORS, mark: null, failure: named };

const DIALECTS: Readonly<Record<Dialect, ErrorDialect>> = {
  openai: OPENAI,
  responses: OPENAI,
  anthropic: {
    rows: ANTHROPIC_ERRORS,
    // By this their clients know an error.
    mark: { type: 'error' },
    failure: ({ message }, { type }) => ({ type, message }),
  },
};

/** Status, type and code of a failure in a dialect; those of a provider are passed on. */
export function said(error: SluiceError, dialect: Dialect = 'openai'): ProviderSaid {
  const { status, type, code } = DIALECTS[dialect].rows[error.kind];
  const { provider, reason } = error;
  if (provider !== null) return { ...provider, code: provider.code ?? reason ?? code };
  return { status, type, code: reason ?? code };
}

/** The status that the data plane answers a failure with, in every dialect: retries and fallbacks go by it. */
export function errorStatus(error: SluiceError): number {
  return error.provider?.status ?? OPENAI_ERRORS[error.kind].status;
}

/** The code of a failure, or null. */
export function errorCode(error: SluiceError): string | null {
  return error.provider?.code ?? error.reason ?? OPENAI_ERRORS[error.kind].code;
}

/** How records and the access log call kinds that have no code, where not by their own name. */
const RECORDED: Readonly<Partial<Record<ErrorKind, string>>> = {
  malformed_call: 'bad_call',
  too_large: 'bad_call_too_large',
  unexpected: 'gateway_failure',
  out_of_service: 'gateway_unavailable',
  guardrail_denied: 'hooks_failed',
};

/** The name under which records keep a failure. */
export function recordedAs(error: SluiceError): string {
  return errorCode(error) ?? RECORDED[error.kind] ?? error.kind;
}

function fields(error: SluiceError, dialect: Dialect): JsonObject {
  const { rows, failure } = DIALECTS[dialect];
  const { body } = rows[error.kind];
  const names = said(error, dialect);
  if (body === 'object') {
    return {
      error: named(error, names),
      // As the administration answers it: all that is wrong with a body.
      ...(error.problems === null ? null : { errors: error.problems.map((problem) => ({ ...problem })) }),
    };
  }
  return {
    status: 'failure',
    error:
      body === 'blocked' ? { code: names.code, message: error.message, field: error.param } : failure(error, names),
    message: error.message,
    ...(error.errors === null ? null : { errors: [...error.errors] }),
  };
}

/**
 * The body and status of an error that Sluice itself raised on the data plane; `ErrorRow.body` says its three shapes.
 * `extra` adds documented top-level keys, such as `hook_results`.
 */
export function errorBody(error: SluiceError, dialect: Dialect, extra?: JsonObject): ErrorBody {
  const body = { ...DIALECTS[dialect].mark, ...fields(error, dialect), ...extra };
  return { status: errorStatus(error), body: JSON.stringify(body) };
}

/** The body of a failure that only a code tells apart, of a call that had no answer. */
export const failureBody = (message: string, code: string): JsonObject => ({
  error: { message, type: OPENAI_ERRORS.unexpected.type, param: null, code },
});

/** The body for what is no HTTP request, so that nobody knows which plane it was for. */
export function unparsedBody(message: string): JsonObject {
  const { type, code } = OPENAI_ERRORS.malformed_call;
  return { status: 'failure', message, error: { message, type, param: null, code } };
}

/** An error raised by Sluice, under the names of the OpenAI error object. */
export function asProviderError(error: SluiceError): ProviderError {
  const { message, param } = error;
  return { ...said(error), message, param };
}
