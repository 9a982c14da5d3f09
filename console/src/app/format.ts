/** Money, times and numbers as texts. Money is whole micro-dollars; nothing here computes with fractions of it. */
import { currentLocale } from './i18n.ts';

/** `0.8 ms`, `340 ms`, `1.24 s`. */
export function duration(ms: number): string {
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return `${(ms / 1000).toFixed(2)} s`;
}

/** Dollars from micro-dollars, with as many places as the amount needs: `$0`, `$0.000042`, `$1.25`, `$1,204.50`. */
export function dollars(micros: number | bigint): string {
  const whole = typeof micros === 'bigint' ? micros : BigInt(Math.round(micros));
  if (whole === 0n) return '$0';
  const amount = whole < 0n ? -whole : whole;
  const fraction = String(amount % 1_000_000n)
    .padStart(6, '0')
    .replace(/0{1,4}$/, '');
  return `${whole < 0n ? '−' : ''}$${(amount / 1_000_000n).toLocaleString('en')}.${fraction}`;
}

/** `12,430` */
export const count = (n: number): string => n.toLocaleString(currentLocale());

/** `12,430`, `1.2 M`: short, for axes and tiles. */
export const shortCount = (n: number): string =>
  n.toLocaleString(currentLocale(), { notation: 'compact', maximumFractionDigits: 1 });

/** Percent of `part` in `whole` with one place: `99.8 %`; a dash where there is no whole. */
export function percent(part: number, whole: number): string {
  if (whole === 0) return '–';
  const tenths = Math.round((part * 1000) / whole);
  return `${(tenths / 10).toLocaleString(currentLocale())} %`;
}

export type Zone = 'local' | 'utc';

/** Times of the API without a zone are UTC: `2026-11-23 19:15:58`. */
export function readTime(text: string): Date {
  return new Date(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/.test(text) ? `${text.replace(' ', 'T')}Z` : text);
}

const formats = new Map<string, Intl.DateTimeFormat>();

function format(zone: Zone, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = `${currentLocale()} ${zone} ${JSON.stringify(options)}`;
  const made =
    formats.get(key) ??
    new Intl.DateTimeFormat(currentLocale(), {
      ...options,
      hourCycle: 'h23',
      ...(zone === 'utc' && { timeZone: 'UTC' }),
    });
  formats.set(key, made);
  return made;
}

/** `23 Nov, 19:15:58`; the zone is printed once a page, see `zoneName`. */
export const dateTime = (time: string | Date, zone: Zone): string =>
  format(zone, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit' }).format(
    typeof time === 'string' ? readTime(time) : time,
  );

/** `23 Nov 2026` */
export const date = (time: string | Date, zone: Zone): string =>
  format(zone, { year: 'numeric', month: 'short', day: 'numeric' }).format(
    typeof time === 'string' ? readTime(time) : time,
  );

/** The begin of a bucket, as an axis names it. */
export function bucketName(time: string, bucket: 'minute' | 'hour' | 'day' | 'week', zone: Zone): string {
  const short = bucket === 'minute' || bucket === 'hour';
  return format(zone, short ? { hour: '2-digit', minute: '2-digit' } : { month: 'short', day: 'numeric' }).format(
    readTime(time),
  );
}

/** `UTC`, `Europe/Berlin`. */
export const zoneName = (zone: Zone): string =>
  zone === 'utc' ? 'UTC' : new Intl.DateTimeFormat().resolvedOptions().timeZone;

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
