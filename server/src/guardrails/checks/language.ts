import { z } from 'zod';
import { canonicalText } from '../canonical.ts';
import type { Subject } from '../check.ts';
import { ANY_TARGET, AT_ONCE, BOTH, breath, check, not, verdict } from './support.ts';

/**
 * Languages the detector tells apart, as ISO 639-1, with the codes of the parameter (FLORES-200). One that stands for several
 * codes cannot tell them apart: both are accepted.
 */
const CODES: Readonly<Record<string, readonly string[]>> = {
  am: ['amh_Ethi'],
  ar: ['arb_Arab', 'ara_Arab'],
  az: ['azj_Latn'],
  be: ['bel_Cyrl'],
  bg: ['bul_Cyrl'],
  bn: ['ben_Beng'],
  ca: ['cat_Latn'],
  cs: ['ces_Latn'],
  da: ['dan_Latn'],
  de: ['deu_Latn'],
  el: ['ell_Grek'],
  en: ['eng_Latn'],
  es: ['spa_Latn'],
  et: ['est_Latn'],
  eu: ['eus_Latn'],
  fa: ['pes_Arab'],
  fi: ['fin_Latn'],
  fr: ['fra_Latn'],
  gu: ['guj_Gujr'],
  he: ['heb_Hebr'],
  hi: ['hin_Deva'],
  hr: ['hrv_Latn', 'bos_Latn'],
  hu: ['hun_Latn'],
  hy: ['hye_Armn'],
  is: ['isl_Latn'],
  it: ['ita_Latn'],
  ja: ['jpn_Jpan'],
  ka: ['kat_Geor'],
  kn: ['kan_Knda'],
  ko: ['kor_Hang'],
  ku: ['ckb_Arab', 'kmr_Latn'],
  lo: ['lao_Laoo'],
  lt: ['lit_Latn'],
  lv: ['lvs_Latn'],
  ml: ['mal_Mlym'],
  mr: ['mar_Deva'],
  ms: ['zsm_Latn', 'ind_Latn'],
  nl: ['nld_Latn'],
  no: ['nob_Latn', 'nno_Latn'],
  or: ['ory_Orya'],
  pa: ['pan_Guru'],
  pl: ['pol_Latn'],
  pt: ['por_Latn'],
  ro: ['ron_Latn'],
  ru: ['rus_Cyrl'],
  sk: ['slk_Latn'],
  sl: ['slv_Latn'],
  sq: ['als_Latn'],
  sr: ['srp_Cyrl'],
  sv: ['swe_Latn'],
  ta: ['tam_Taml'],
  te: ['tel_Telu'],
  th: ['tha_Thai'],
  tl: ['tgl_Latn'],
  tr: ['tur_Latn'],
  uk: ['ukr_Cyrl'],
  ur: ['urd_Arab'],
  vi: ['vie_Latn'],
  yo: ['yor_Latn'],
  zh: ['zho_Hans', 'zho_Hant', 'cmn_Hans'],
};
const LANGUAGES = Object.values(CODES).flat();
const BY_CODE = new Map(Object.entries(CODES).flatMap(([short, codes]) => codes.map((code) => [code, short] as const)));

/** Characters judged: more change nothing. */
const LOOKED_AT = 2_000;
/** Letters below which no language can be detected. */
const LEAST = 4;

type Detector = typeof import('eld/extrasmall');
/** About a megabyte of tables, loaded with the first guardrail that asks for a language. */
let loaded: Promise<Detector> | null = null;

/** Text without what has no language: code blocks, addresses, numbers. */
function prose(subject: Subject): string {
  return withoutAddresses(canonicalText(subject.latest().slice(0, LOOKED_AT * 4))).slice(0, LOOKED_AT);
}

const SPACE = /\s/;

/** Text without code blocks, web addresses and mail addresses, in time linear in its length. */
function withoutAddresses(text: string): string {
  const prose = text.replace(/```[^`]{0,8000}(?:```|$)/g, ' ').replace(/https?:\/\/\S{1,2000}/g, ' ');
  let kept = '';
  let done = 0;
  // From each `@`, not from the start of each word: one long word would be read 64 times.
  for (let at = prose.indexOf('@'); at >= 0; at = prose.indexOf('@', Math.max(done, at + 1))) {
    let start = at;
    while (start > done && at - start < 64 && !SPACE.test(prose.charAt(start - 1))) start -= 1;
    let end = at + 1;
    while (end < prose.length && end - at <= 250 && !SPACE.test(prose.charAt(end))) end += 1;
    // A sign by itself is no address.
    if (start === at || end === at + 1) continue;
    kept += `${prose.slice(done, start)} `;
    done = end;
  }
  return kept + prose.slice(done);
}

/**
 * `gateway.language`: the latest text is in the language, by letters and letter sequences, without a call. Texts of less than
 * four letters pass. Sixty languages; closely related ones (Hindi and Marathi, Danish and Norwegian) are confused in short texts.
 */
export const language = check({
  id: 'gateway.language',
  phases: BOTH,
  targets: ANY_TARGET,
  parameters: z.strictObject({
    language: z
      .string()
      .refine((code) => BY_CODE.has(code), `must be a language that is known: ${LANGUAGES.join(', ')}`),
    not,
  }),
  timeoutMs: 5_000,
  mutates: false,
  compile({ language: code, not: inverted }) {
    loaded ??= import('eld/extrasmall');
    // The first judgement sees the failure.
    loaded.catch(() => undefined);
    return {
      lookBehind: null,
      async judge(subject) {
        loaded ??= import('eld/extrasmall');
        const { eld } = await loaded;
        const text = prose(subject);
        if ((text.match(/\p{L}/gu) ?? []).length < LEAST)
          return { verdict: true, data: { explanation: 'The text is too short to have a language.', skipped: true } };
        const found = eld.detect(text).language;
        const ok = found === BY_CODE.get(code);
        const shown = CODES[found]?.[0] ?? null;
        return verdict(ok, inverted, `The text is in ${shown ?? 'no language that is known'}.`, { language: shown });
      },
    };
  },
});

const VOWELS = /[aeiouyàáâãäåæèéêëìíîïòóôõöøœùúûüýÿąęėįųūőűăâıžðêăåy]/;
/** Pairs of letters that words of European languages do not have, or only in a few names. */
const ODD_PAIRS =
  /b[qx]|c[jx]|d[qx]|f[qxz]|g[qx]|h[qxz]|j[bcdfghlmnpqrstvwxyz]|k[qxz]|l[qx]|m[qxz]|p[qx]|q[^uaiı]|r[qx]|s[xq]|t[qx]|v[bcfghjmpqwx]|w[qvxj]|x[bdgjkmnrvzw]|y[q]|z[fgjqrx]/;

/** Whether a word of Latin letters looks typed at random. Words in capitals (abbreviations) are not judged. */
function isOdd(word: string): boolean {
  if (/^\p{Lu}+$/u.test(word) && word.length <= 6) return false;
  const lower = word.toLowerCase();
  if (/(.)\1{3}/.test(lower)) return true;
  if (!VOWELS.test(lower)) return true;
  if (lower.length > 30) return true;
  return (
    ODD_PAIRS.test(lower) ||
    /[bcdfghjklmnpqrstvwxz]{5}/.test(lower.replace(/sch|tsch|ch|sh|th|ph|gh|ck|sz|cz|rz|ng/g, 'c'))
  );
}

/**
 * `gateway.gibberish`: the latest text is not letters at random. Judges words of at least four Latin letters: fails when a
 * third of them cannot be words of a European language. Other scripts, numbers and code pass.
 */
export const gibberish = check({
  id: 'gateway.gibberish',
  phases: BOTH,
  targets: ANY_TARGET,
  parameters: z.strictObject({ not }),
  timeoutMs: 5_000,
  mutates: false,
  compile: ({ not: inverted }) => ({
    lookBehind: null,
    async judge(subject) {
      const text = withoutAddresses(canonicalText(subject.latest().slice(0, AT_ONCE)));
      if (text.length > 4_000) await breath();
      let words = 0;
      let odd = 0;
      for (const [word] of text.matchAll(/(?<![\p{L}\p{N}_./\\-])\p{Script=Latin}{4,}(?![\p{L}\p{N}_/\\])/gu)) {
        words += 1;
        if (isOdd(word)) odd += 1;
      }
      const ok = words === 0 || odd / words < 0.34;
      return verdict(ok, inverted, ok ? 'The text reads like words.' : 'The text reads like letters at random.', {
        words,
        odd,
      });
    },
  }),
});
