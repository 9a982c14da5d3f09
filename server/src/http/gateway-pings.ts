/** Pings of registered gateways: addresses that a tenant chose, through the egress guard, with one deadline over all of it. */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { parseJson } from '../kernel/json-exact.ts';
import { type Fetcher, readText } from './background-fetcher.ts';

const LIMIT_MS = 10_000;
/** A health answer is a few dozen bytes. */
const MAX_ANSWER = 16 * 1024;
const VERSION = /^[\x20-\x7e]{1,64}$/;
const LATE = 'The gateway did not answer within 10 seconds.';

interface Pinged {
  readonly organisationId: string;
  /** Without `/v1`. */
  readonly baseUrl: string;
  readonly callbackUrl: string;
  readonly code: string;
}

/**
 * Asks a gateway for its health, then for a call-back with a code. Both calls share ten seconds. Errors are sentences for
 * the caller; none quotes what the gateway said. Rejects only when `signal` ended it, or for a fault on this side.
 */
export function gatewayPings({ fetcher, clock }: { readonly fetcher: Fetcher; readonly clock: Clock }) {
  return {
    async ping({ organisationId, baseUrl, callbackUrl, code }: Pinged, signal: AbortSignal) {
      const ended = new AbortController();
      const cancel = clock.after(LIMIT_MS, () => ended.abort(new SluiceError('timeout', LATE)));
      const both = AbortSignal.any([ended.signal, signal]);
      const call = async (method: 'GET' | 'POST', path: string, body: object | null) => {
        const { status, stream } = await fetcher.send({
          method,
          url: new URL(`${baseUrl}/v1/${path}`),
          headers: ['accept', 'application/json', ...(body === null ? [] : ['content-type', 'application/json'])],
          body: body === null ? null : Buffer.from(JSON.stringify(body), 'utf8'),
          organisationId,
          storedCredential: false,
          headersTimeoutMs: LIMIT_MS,
          idleMs: LIMIT_MS,
          signal: both,
        });
        const { text } = await readText(stream, MAX_ANSWER);
        return { status, text };
      };
      const said = (error: unknown, path: string): string => {
        if (signal.aborted || !(error instanceof SluiceError)) throw error;
        if (ended.signal.aborted || error.kind === 'timeout') return LATE;
        return REASONS[error.kind]?.(path) ?? error.message;
      };
      try {
        let version: string | null = null;
        try {
          const { status, text } = await call('GET', 'health', null);
          version = versionOf(status, text);
        } catch (error) {
          return { version, outboundError: said(error, 'health'), inboundError: NOT_ASKED };
        }
        if (version === null) return { version, outboundError: NOT_HEALTHY, inboundError: NOT_ASKED };
        try {
          const { status } = await call('POST', 'verify-ping', { code, callback_url: callbackUrl });
          const refused = `The gateway answered POST /v1/verify-ping with ${status} instead of a status from 200 to 299.`;
          return { version, outboundError: null, inboundError: status >= 200 && status < 300 ? null : refused };
        } catch (error) {
          return { version, outboundError: null, inboundError: said(error, 'verify-ping') };
        }
      } finally {
        cancel();
      }
    },
  };
}

const NOT_ASKED = 'Sluice did not ask for a call-back, because the first check failed.';
const NOT_HEALTHY =
  'GET /v1/health must answer 200 with {"status": "success", "version": "…"}, a version of at most 64 characters.';

/** The errors of the fetcher speak of providers. */
const REASONS: Readonly<Record<string, (path: string) => string>> = {
  upstream_unreachable: (path) => `The gateway could not be reached for /v1/${path}. Check gateway_base_url.`,
  upstream_invalid: (path) => `The gateway answered /v1/${path} with more than ${MAX_ANSWER} bytes.`,
  upstream_cut: (path) => `The gateway ended its answer of /v1/${path} before it was complete.`,
};

/** The version that a health answer tells; null unless it says `success`. */
function versionOf(status: number, text: string): string | null {
  if (status !== 200) return null;
  try {
    const answer = parseJson(text) as { status?: unknown; version?: unknown } | null;
    const { version } = answer ?? {};
    return answer?.status === 'success' && typeof version === 'string' && VERSION.test(version) ? version : null;
  } catch {
    return null;
  }
}
