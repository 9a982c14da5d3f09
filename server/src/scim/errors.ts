/** How SCIM says each failure (RFC 7644 §3.12): its own statuses, words and body, and none of the administration's. */
import { type ErrorKind, SluiceError } from '../kernel/errors.ts';
import { withoutSecrets } from '../kernel/quoted.ts';

/** Why a request of a directory is refused. Those that RFC 7644 names are `scimType` of the answer. */
const REASONS = {
  invalidFilter: { status: 400, named: true },
  invalidSyntax: { status: 400, named: true },
  invalidPath: { status: 400, named: true },
  invalidValue: { status: 400, named: true },
  noTarget: { status: 400, named: true },
  mutability: { status: 400, named: true },
  tooMany: { status: 400, named: true },
  uniqueness: { status: 409, named: true },
  noResource: { status: 404, named: false },
  changedSince: { status: 412, named: false },
  mediaType: { status: 415, named: false },
} as const;

type ScimReason = keyof typeof REASONS;

/** A request of a directory that is refused. `message` is for the people who read the directory's log. */
export class ScimError extends Error {
  readonly reason: ScimReason;

  constructor(reason: ScimReason, message: string) {
    super(withoutSecrets(message));
    this.name = 'ScimError';
    this.reason = reason;
  }
}

/** Failures that are thrown by parts that know nothing of SCIM. All others are faults of ours. */
const STATUSES: Readonly<Partial<Record<ErrorKind, number>>> = {
  malformed_call: 400,
  validation: 400,
  invalid_request: 400,
  unknown_reference: 400,
  too_large: 413,
  unauthenticated: 401,
  forbidden: 403,
  not_found: 404,
  method_not_allowed: 405,
  conflict: 409,
  throttled: 429,
  unsupported_operation: 501,
  unavailable: 503,
  out_of_service: 503,
  timeout: 408,
  client_closed: 499,
};

const INTERNAL = 'Something went wrong on our side. The request id in the answer names the entry in the server log.';

export interface ScimFailure {
  readonly status: number;
  readonly body: { schemas: string[]; status: string; scimType?: string; detail: string };
  readonly retryAfter: number | null;
}

/** The answer of anything thrown. */
export function failureOf(error: unknown): ScimFailure {
  if (error instanceof ScimError) {
    const { status, named } = REASONS[error.reason];
    return failure(status, error.message, named ? error.reason : undefined);
  }
  if (!(error instanceof SluiceError)) return failure(500, INTERNAL);
  const status = STATUSES[error.kind] ?? 500;
  const type = status === 409 ? 'uniqueness' : status === 400 ? 'invalidSyntax' : undefined;
  return { ...failure(status, status === 500 ? INTERNAL : error.message, type), retryAfter: error.retryAfter };
}

function failure(status: number, detail: string, scimType?: string): ScimFailure {
  const schemas = ['urn:ietf:params:scim:api:messages:2.0:Error'];
  const type = scimType === undefined ? {} : { scimType };
  return { status, body: { schemas, status: String(status), ...type, detail }, retryAfter: null };
}
