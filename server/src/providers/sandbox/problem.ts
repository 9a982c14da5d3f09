import type { JsonObject } from '../../kernel/json.ts';
import { withoutSecrets } from '../../kernel/quoted.ts';

/** What the sandbox answers instead of a result: an error as a provider would word it. */
export class Problem extends Error {
  readonly status: number;
  readonly type: string;
  readonly param: string | null;
  readonly code: string | null;
  /** Whole seconds for `retry-after`. */
  readonly retryAfter: number | null;

  constructor(
    status: number,
    message: string,
    options: { type?: string; param?: string | null; code?: string | null; retryAfter?: number | null } = {},
  ) {
    super(withoutSecrets(message));
    this.name = 'Problem';
    this.status = status;
    this.type = options.type ?? 'invalid_request_error';
    this.param = options.param ?? null;
    this.code = options.code ?? null;
    this.retryAfter = options.retryAfter ?? null;
  }
}

export function invalid(message: string, param: string | null, code: string | null = null): Problem {
  return new Problem(400, message, { param, code });
}

export function missing(name: string): Problem {
  return invalid(`Missing required parameter: '${name}'.`, name, 'missing_required_parameter');
}

const ANTHROPIC_TYPES: Readonly<Record<number, string>> = {
  400: 'invalid_request_error',
  401: 'authentication_error',
  402: 'billing_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  504: 'timeout_error',
  529: 'overloaded_error',
};

/** The error body of OpenAI, or of Anthropic for the routes below `/messages`. */
export function problemBody(problem: Problem, anthropic: boolean, requestId: string): JsonObject {
  if (anthropic) {
    const type = ANTHROPIC_TYPES[problem.status] ?? (problem.status < 500 ? 'invalid_request_error' : 'api_error');
    return {
      type: 'error',
      error: { type, message: problem.message },
      request_id: requestId,
      system_fingerprint: 'sandbox',
    };
  }
  const { message, type, param, code } = problem;
  return { error: { message, type, param, code }, system_fingerprint: 'sandbox' };
}
