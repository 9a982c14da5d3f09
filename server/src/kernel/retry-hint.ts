/** How long a server asks to be left alone. */

const NUMBER = /^\d{1,9}(?:\.\d{1,9})?$/;
/** Dates of HTTP all name the time zone; `Date.parse` alone would make a date of `-1` too. */
const DATE = /^[A-Za-z]{3,9}, .{10,30} GMT$/;
const IN_MS: readonly string[] = ['retry-after-ms', 'x-ms-retry-after-ms'];

/**
 * Milliseconds that an answer asks to wait: the finest of its headers that can be read. `now` is in milliseconds since the
 * epoch, for `retry-after` as a date. Null when it does not say.
 */
export function retryHintMs(header: (name: string) => string | undefined, now: number): number | null {
  for (const name of IN_MS) {
    const value = header(name)?.trim() ?? '';
    if (NUMBER.test(value)) return Math.ceil(Number(value));
  }
  const value = header('retry-after')?.trim() ?? '';
  if (NUMBER.test(value)) return Math.ceil(Number(value) * 1000);
  const at = DATE.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(at) ? null : Math.max(0, at - now);
}
