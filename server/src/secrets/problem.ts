/** Errors of secrets that could not be read. No text of a manager is in them: managers repeat what they were sent. */
import { SluiceError } from '../kernel/errors.ts';
import { isObject, type JsonObject } from '../kernel/json.ts';
import { retryHintMs } from '../kernel/retry-hint.ts';
import { awsErrorName } from '../providers/aws/errors.ts';
import type { AdapterAnswer } from '../providers/training.ts';
import type { SecretPlace } from '../resources/secret-references/manager.ts';
import { MANAGERS } from '../resources/secret-references/managers.ts';

/** A manager refused, or failed. */
export class ManagerError extends Error {
  readonly why: string;
  readonly advice: string;
  /** Seconds after which the manager may be asked again; null: it does not say. */
  readonly retryAfter: number | null;
  /** The token that was sent is not accepted any more. */
  readonly tokenRefused: boolean;

  /**
   * @param why completes "AWS Secrets Manager …"
   * @param advice a whole sentence
   */
  constructor(why: string, advice: string, more: { retryAfter?: number | null; tokenRefused?: boolean } = {}) {
    super(why);
    this.why = why;
    this.advice = advice;
    this.retryAfter = more.retryAfter ?? null;
    this.tokenRefused = more.tokenRefused ?? false;
  }
}

/** Codes by which managers say what is wrong; any other text may hold what was sent. */
const CODE = /^[A-Za-z][\w.-]{0,79}$/;

export const codeIn = (value: unknown): string | null => (typeof value === 'string' && CODE.test(value) ? value : null);

/** What to do by the status of an answer. */
export interface Advice {
  readonly missing: string;
  readonly denied: string;
}

/** A failed answer as an error. `code` is what the manager calls it, `status` what it means. */
export function failed(
  { status: answered, headers }: Pick<AdapterAnswer, 'status' | 'headers'>,
  code: string | null,
  advice: Advice,
  now: number,
  status = answered,
): ManagerError {
  const why = `answered ${answered}${code === null ? '' : ` (${code})`}`;
  if (status === 429 || status >= 500 || isThrottling(code)) {
    const hint = retryHintMs((name) => headers[name], now);
    const retryAfter = hint === null ? null : Math.ceil(hint / 1000);
    const busy = status === 429 || isThrottling(code);
    return new ManagerError(
      why,
      busy ? 'It limits requests; Sluice asks again by itself.' : 'Sluice asks again by itself.',
      { retryAfter },
    );
  }
  if (status === 404) return new ManagerError(why, advice.missing);
  if (status === 401 || status === 403) return new ManagerError(why, advice.denied, { tokenRefused: true });
  return new ManagerError(why, 'Check secret_path and auth_config of the reference.');
}

const isThrottling = (code: string | null): boolean =>
  code !== null && /^(?:Throttl|TooManyRequests|RequestLimitExceeded|RESOURCE_EXHAUSTED)/.test(code);

/** The JSON object of an answer; empty where it holds none. */
export async function objectIn(answer: AdapterAnswer): Promise<JsonObject> {
  try {
    const body = await answer.json();
    return isObject(body) ? body : {};
  } catch {
    return {};
  }
}

const UNREACHED = 'Check that this server reaches it; Sluice asks again by itself.';

/** Any error of a read as the one that requests get. */
export function problemOf(place: SecretPlace, where: string, error: unknown): SluiceError {
  const { slug, manager } = place;
  const { title } = MANAGERS[manager];
  const { why, advice, retryAfter } = explained(error);
  return new SluiceError('out_of_service', `The secret reference ${slug} cannot be read: ${title} ${why}. ${advice}`, {
    ...(retryAfter === null ? {} : { retryAfter }),
    detail: `${where} ${place.path}`,
    cause: error,
  });
}

function explained(error: unknown): {
  readonly why: string;
  readonly advice: string;
  readonly retryAfter: number | null;
} {
  if (error instanceof ManagerError) return error;
  if (!(error instanceof SluiceError)) return { why: 'could not be asked', advice: UNREACHED, retryAfter: null };
  const { retryAfter } = error;
  switch (error.kind) {
    case 'provider_error': {
      // Of a token endpoint: STS, Entra, Google's.
      const code = awsErrorName(error) ?? codeIn(error.provider?.code);
      const status = error.provider?.status ?? 502;
      return {
        why: `could not be signed in to: status ${status}${code === null ? '' : ` (${code})`}`,
        advice: 'Check auth_config of the reference, and what its identity may do.',
        retryAfter,
      };
    }
    case 'timeout':
      return { why: 'did not answer in time', advice: UNREACHED, retryAfter };
    case 'upstream_unreachable':
    case 'upstream_tls':
    case 'upstream_cut':
      return { why: 'could not be reached', advice: UNREACHED, retryAfter };
    case 'upstream_invalid':
      return {
        why: 'gave an answer that is none of a secret manager',
        advice: 'Check auth_config of the reference.',
        retryAfter,
      };
    default:
      // Our own words, of settings and of the egress guard.
      return { why: 'cannot be asked', advice: error.message, retryAfter };
  }
}
