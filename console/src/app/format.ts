/** `0.8 ms`, `340 ms`, `1.24 s`. */
export function duration(ms: number): string {
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return `${(ms / 1000).toFixed(2)} s`;
}

/** Dollars from micro-dollars, with as many places as the amount needs: `$0`, `$0.000042`, `$1.25`. */
export function dollars(micros: number): string {
  if (micros === 0) return '$0';
  return `$${(micros / 1_000_000).toFixed(6).replace(/(\.\d\d\d*?)0+$/, '$1')}`;
}

const STATUS: Record<number, string> = {
  200: 'OK',
  400: 'Bad request',
  401: 'Not signed in',
  403: 'Not allowed',
  404: 'Not found',
  408: 'Timed out',
  412: 'Budget used up',
  413: 'Too large',
  429: 'Too many requests',
  446: 'Refused by a guardrail',
  500: 'Gateway error',
  501: 'Not offered by this provider',
  502: 'Provider failed',
  503: 'Not available',
  504: 'Provider too slow',
};

/** `429 Too many requests`; the number alone for statuses without a common name. */
export function statusText(status: number): string {
  const name = STATUS[status];
  return name ? `${status} ${name}` : String(status);
}
