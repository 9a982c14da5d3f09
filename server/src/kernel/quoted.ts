/** What of a caller's texts may be repeated in errors, records and logs: names, and nothing that could be a secret. */

/**
 * Values that give themselves away, wherever they stand. Callers choose the texts, up to a megabyte of them: no pattern
 * may look at a character more often than a few times.
 */
const SECRET_VALUES: readonly RegExp[] = [
  /slc_/,
  // A sealed value of ours.
  /^slc1\./,
  /-----BEGIN [A-Z ]*(?:PRIVATE KEY|CERTIFICATE)/,
  /\beyJ[\w-]{8,}/,
  /\b(?:bearer|basic)\s+[\w+/=.~-]{8,}/i,
  /\b(?:sk|pk|rk)[-_][\w-]{12,}/,
  /\b(?:gsk_|hf_|r8_|xai-|pplx-|csk-|fw_|glpat-)[A-Za-z\d]{16,}|\bnvapi-[\w-]{16,}/,
  /\bA(?:KI|SI)A[A-Z0-9]{12,}/,
  /\bAIza[\w-]{20,}/,
  /\bgh[opsur]_\w{16,}|\bgithub_pat_\w{16,}/,
  /\bxox[a-z]-[\w-]{8,}/,
  /(?:secret|passw(?:or)?d|passphrase|token|api[-_ ]?key|access[-_ ]?key)["']?\s*[:=]\s*["']?[^\s"']{6,}/i,
];

/** As `SECRET_VALUES`, but from begin to end, and so that sentences of ours (`slc_…`, `Basic authentication`) are none. */
const SECRETS_IN_TEXT: readonly RegExp[] = [
  /slc_[\w-]{8,}|\bslc1\.[\w+/=.-]{8,}/g,
  /-----BEGIN [A-Z ]{0,20}(?:PRIVATE KEY|CERTIFICATE)-----[\s\\nr]{0,8}[\w+/]{16,}[\s\S]*/g,
  /\beyJ[\w-]{8,}[\w.-]*/g,
  // Names are shown with `?` for what is no printable character of a name.
  /\b(?:bearer|basic)(?:[\s?+]|%20){1,4}(?=[a-z+/=.~_-]{0,64}\d)[\w+/=.~-]{8,}/gi,
  /\b(?:sk|pk|rk)[-_][\w-]{12,}/g,
  /\b(?:gsk_|hf_|r8_|xai-|pplx-|csk-|fw_|glpat-)[A-Za-z\d]{16,}|\bnvapi-[\w-]{16,}/g,
  /\bA(?:KI|SI)A[A-Z0-9]{12,}|\bAIza[\w-]{20,}/g,
  /\bgh[opsur]_\w{16,}|\bgithub_pat_\w{16,}|\bxox[a-z]-[\w-]{8,}/g,
  // Many providers' keys are nothing but letters and digits; ids have a word before them, or dashes.
  /(?<![\w-])(?=[a-z]*\d)(?=\d*[a-z])[a-z\d]{32,}(?![\w-])/gi,
];

/** Secrets by what is before them, which is shown. */
const SECRETS_BEHIND: readonly RegExp[] = [
  // An id of ours (UUID version 7) is none: limits are counted for `api_key:<id>`.
  /((?:secret|passw(?:or)?d|passphrase|token|api[-_ ]?key|access[-_ ]?key)["']?\s{0,4}[:=]\s{0,4}["']?)(?![\da-f]{8}-[\da-f]{4}-7[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12})(?=[a-z+/._-]{0,64}\d)[^\s"'<>()]{6,}/gi,
  // Name and password in an address.
  /(:\/\/)[^/?#\s@:]*:[^/?#\s@]+(?=@)/g,
];

/** A text for people or logs, with what has the form of a credential left out: 1 µs for each 100 characters. */
export function withoutSecrets(text: string): string {
  let shown = text;
  for (const pattern of SECRETS_IN_TEXT) shown = shown.replace(pattern, '(not shown)');
  for (const pattern of SECRETS_BEHIND) shown = shown.replace(pattern, '$1(not shown)');
  return shown;
}

/** What stands before the host of an address. */
const USER_OF_ADDRESS = /:\/\/([^/?#\s@]*)@/g;

/** Whether a text holds something that has the form of a secret. */
export const looksSecret = (value: string): boolean =>
  SECRET_VALUES.some((pattern) => pattern.test(value)) || holdsPassword(value);

/** Name and password in an address. */
function holdsPassword(value: string): boolean {
  // An iterator of matches costs more than all that is before it, and few texts hold an address.
  if (!value.includes('://')) return false;
  for (const [, user = ''] of value.matchAll(USER_OF_ADDRESS)) {
    const colon = user.indexOf(':');
    if (colon >= 0 && colon < user.length - 1) return true;
  }
  return false;
}

const NAME = /^@?[\w.:/-]{1,100}$/;
/** Names are made of words; keys are long runs of digits and letters. */
const RANDOM_WORD = /(?=[a-z]*\d)[a-z\d]{17,}|[a-z]{33,}|\d{25,}/i;

/** Whether a text may be shown where a name or slug was to be given: people paste keys into the wrong header. */
export const looksLikeName = (text: string): boolean =>
  NAME.test(text) && !RANDOM_WORD.test(text) && !looksSecret(text);

/** The text in quotes, or that it is not shown. */
export function quotedName(text: string): string {
  return looksLikeName(text) ? JSON.stringify(text) : `(not shown: ${text.length} characters that are no name)`;
}

/** A path of fields (`targets[0].retry`), without the parts that are no names. */
export function shownPath(path: string): string {
  return path
    .split('.')
    .map((part) => (looksLikeName(part.replace(/(?:\[\d+\])+$/, '') || 'list') ? part : '(not shown)'))
    .join('.');
}
