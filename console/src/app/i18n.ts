/**
 * Texts of the console. A text is its own key: `t('Revoke {name}', { name })`. English needs no catalogue; another language
 * is one object from these keys to its texts, loaded before the first render.
 */
import { readStored } from './stored.ts';

export type Values = Readonly<Record<string, string | number>>;
export type Catalogue = (key: string) => string | undefined;

const KEY = 'sluice.language';
let translate: Catalogue = () => undefined;
let locale = 'en';

/** The text in the chosen language, with `{name}` replaced by values. Numbers are written as the locale does. */
export function t(key: string, values: Values = {}): string {
  const text = translate(key) ?? key;
  return text.replace(/\{(\w+)\}/g, (hole, name: string) => {
    const value = values[name];
    if (value === undefined) return hole;
    return typeof value === 'number' ? value.toLocaleString(locale) : value;
  });
}

/** One text of several by the plural rules of the locale; `{n}` is the number. */
export function plural(
  n: number,
  texts: { readonly one: string; readonly other: string },
  values: Values = {},
): string {
  const rule = new Intl.PluralRules(locale).select(n);
  return t(rule === 'one' ? texts.one : texts.other, { n, ...values });
}

/** The language of numbers and times, also of `<html lang>`. */
export const currentLocale = (): string => locale;

/** Uses a language from now on; for the start of the page and for tests. */
export function chooseLanguage(language: string, catalogue: Catalogue): void {
  translate = catalogue;
  locale = language;
}

const ACCENTED: Readonly<Record<string, string>> = {
  a: 'á',
  b: 'ƀ',
  c: 'ç',
  d: 'ð',
  e: 'é',
  f: 'ƒ',
  g: 'ĝ',
  h: 'ĥ',
  i: 'í',
  j: 'ĵ',
  k: 'ķ',
  l: 'ļ',
  m: 'ɱ',
  n: 'ñ',
  o: 'ó',
  p: 'þ',
  q: 'ʠ',
  r: 'ŕ',
  s: 'š',
  t: 'ţ',
  u: 'ú',
  v: 'ṽ',
  w: 'ŵ',
  x: 'ẋ',
  y: 'ý',
  z: 'ž',
};

/**
 * A language for tests: each text a third longer and accented, in brackets. A text without brackets on a page was never
 * given to `t`, and one whose bracket is missing was cut.
 */
export const pseudo: Catalogue = (key) => {
  const text = key.replace(/\{\w+\}|[a-z]/g, (part) => (part.length > 1 ? part : (ACCENTED[part] ?? part)));
  return `⟦${text}${'~'.repeat(Math.ceil(key.length / 3))}⟧`;
};

/** Reads the language that this browser has chosen. */
export function startLanguage(): void {
  if (readStored(KEY) === 'pseudo') chooseLanguage('en', pseudo);
  document.documentElement.lang = locale;
}
