/** How mails of alerts show what others have chosen. */

/** Characters that a mail shows of a name. */
const MAX_NAME = 120;

/**
 * What callers and policies chose stays in its line, short, and in the direction it is read: it must not look like words of the
 * mail. Mail programs must make no link of it: a space behind what begins one, and behind dots inside it, sees to that.
 */
export function oneLine(text: string): string {
  const line = text.replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]+/gu, ' ').trim();
  const short = line.length > MAX_NAME ? `${line.slice(0, MAX_NAME).replace(/[\ud800-\udbff]$/, '')}…` : line;
  return short.replace(/:\/{2}/g, ':// ').replace(/([.@])(?=[\p{L}\p{N}])/gu, '$1 ');
}

/** `2026-12-01 00:00 UTC`. */
export function minute(iso: string): string {
  return `${iso.slice(0, 10)} ${iso.slice(11, 16)} UTC`;
}
