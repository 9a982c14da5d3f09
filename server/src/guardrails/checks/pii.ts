import ipaddr from 'ipaddr.js';
import { z } from 'zod';
import { cpf, IBAN_LENGTHS, luhn, mod97, verhoeff } from '../checksums.ts';
import { type Detector, detected, matcher, REACH } from '../detect.ts';
import type { Traits } from '../traits.ts';
import { ANY_TARGET, BOTH, check, type Finding, ifAsked, MAX_CHOICES } from './support.ts';

const digits =
  (least: number) =>
  (traits: Traits): boolean =>
    traits.digits >= least;
const plain = (match: string): string => match.replace(/[^0-9]/g, '');

const LOCAL = /[\p{L}\p{N}!#$%&'*+/=?^_`{|}~.-]/u;
const DOMAIN =
  /^(?:[\p{L}\p{N}](?:[\p{L}\p{N}-]{0,61}[\p{L}\p{N}])?\.){1,8}(?:\p{L}{2,24}|xn--[a-z0-9-]{2,59})(?![\p{L}\p{N}-]|\.[\p{L}\p{N}])/u;

/** Found from the `@`: from the start of each word, a text without one would be read many times. */
const email: Detector = {
  kind: 'EMAIL_ADDRESS',
  mayHave: (traits) => traits.at,
  *find(text) {
    const out: Finding[] = [];
    for (let at = text.indexOf('@', 1), n = 0; at > 0; at = text.indexOf('@', at + 1)) {
      let start = at;
      while (start > 0 && at - start < 65 && LOCAL.test(text.charAt(start - 1))) start -= 1;
      if (at - start > 64) continue;
      while (start < at && /[.'`{|/=]/.test(text.charAt(start))) start += 1;
      const domain = start < at && text.charAt(at - 1) !== '.' ? DOMAIN.exec(text.slice(at + 1, at + 255)) : null;
      // At the cut of what is looked at, a longer name could go on.
      if (domain !== null && domain[0].length < 250 && start >= (out.at(-1)?.end ?? 0))
        out.push({ kind: 'EMAIL_ADDRESS', start, end: at + 1 + domain[0].length });
      n += 1;
      if (n % 64 === 0) yield 8_000;
    }
    yield text.length / 16;
    return out;
  },
};

const creditCard = matcher(
  'CREDIT_CARD',
  digits(13),
  /(?<![\p{L}\p{N}_]|\d[.,-])(?:[2-6]\d{12,18}|[2-6]\d{3}([ -])\d{4}\1\d{4}\1\d{1,7}|3\d{3}([ -])\d{6}\2\d{4,5})(?![\p{L}\p{N}_]|[-.,]\d)/gu,
  ([match]) => {
    const digits = plain(match);
    return isIssued(digits) && luhn(digits);
  },
);

/** Whether a network issues numbers that begin so, with this length. */
function isIssued(digits: string): boolean {
  const { length } = digits;
  if (/^(\d)\1*$/.test(digits)) return false;
  const two = Number(digits.slice(0, 2));
  const four = Number(digits.slice(0, 4));
  if (digits.startsWith('4')) return length === 13 || length === 16 || length === 19;
  if (two === 34 || two === 37) return length === 15;
  if ((two >= 51 && two <= 55) || (four >= 2221 && four <= 2720)) return length === 16;
  if (two === 36 || two === 38 || two === 39 || (two === 30 && four <= 3059)) return length === 14 || length === 16;
  if (two === 60 || two === 62 || two === 64 || two === 65 || two === 81) return length >= 16;
  if (four >= 3528 && four <= 3589) return length >= 16;
  return (two === 50 || two >= 56) && two < 70 && length >= 12;
}

const KNOWN_SAMPLES = new Set(['078051120', '219099999', '123456789']);
const ssn = matcher(
  'SSN',
  digits(9),
  /(?<![\p{L}\p{N}_.-])\d{3}([- ])\d{2}\1\d{4}(?![\p{L}\p{N}_-]|\.\d)|(?<=\bSSN[^\d\n]{1,12})\d{9}(?![\p{L}\p{N}_-])|(?<=\bsocial security (?:number|no\.?)[^\d\n]{1,12})\d{9}(?![\p{L}\p{N}_-])/giu,
  ([match]) => {
    const digits = plain(match);
    const area = Number(digits.slice(0, 3));
    return (
      area > 0 &&
      area < 900 &&
      area !== 666 &&
      digits.slice(3, 5) !== '00' &&
      digits.slice(5) !== '0000' &&
      !KNOWN_SAMPLES.has(digits)
    );
  },
);

const iban = matcher(
  'IBAN',
  ({ iban: has }) => has,
  /(?<![\p{L}\p{N}_])[A-Z]{2}\d{2}(?=[ -]?[A-Z0-9])/giu,
  (match, text) => {
    const length = IBAN_LENGTHS.get(match[0].slice(0, 2).toUpperCase());
    if (length === undefined) return false;
    let value = match[0];
    let at = match.index + 4;
    for (; value.length < length && at < text.length; at++) {
      const c = text.charAt(at);
      if (/[A-Za-z0-9]/.test(c)) value += c;
      else if (!(c === ' ' || c === '-') || !/[A-Za-z0-9]/.test(text.charAt(at + 1))) return false;
    }
    if (value.length < length || /[\p{L}\p{N}]/u.test(text.charAt(at))) return false;
    return mod97(value.toUpperCase()) && { start: match.index, end: at };
  },
);

const ipAddress = matcher(
  'IP_ADDRESS',
  ({ ip }) => ip,
  /(?<![\p{L}\p{N}_.:-])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}(?![\p{L}\p{N}_]|[.-]\d)|[0-9a-f]{0,4}:[0-9a-f:]{1,35}(?:\d{1,3}(?:\.\d{1,3}){3})?(?![\p{L}\p{N}_:]))/giu,
  ([match]) =>
    match.includes(':')
      ? match.split(':').length > 2 && /[0-9a-f]/i.test(match) && ipaddr.IPv6.isValid(match)
      : !match.startsWith('0.'),
);

const mac = matcher(
  'MAC_ADDRESS',
  ({ longest }) => longest >= 17,
  /(?<![\p{L}\p{N}_:-])[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}(?![\p{L}\p{N}_:-])/giu,
);
const nino = matcher(
  'UK_NINO',
  digits(6),
  /(?<![\p{L}\p{N}_])(?!BG|GB|KN|NK|NT|TN|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]( ?)\d{2}\1\d{2}\1\d{2}\1[A-D](?![\p{L}\p{N}_])/gu,
);
const brazilian = matcher(
  'BR_CPF',
  digits(11),
  /(?<![\p{L}\p{N}_.-])\d{3}\.\d{3}\.\d{3}-\d{2}(?![\p{L}\p{N}_-]|\.\d)|(?<=\bCPF[^\d\n]{1,8})\d{11}(?![\p{L}\p{N}_])/giu,
  ([match]) => cpf(plain(match)),
);
const aadhaar = matcher(
  'IN_AADHAAR',
  digits(12),
  /(?<![\p{L}\p{N}_]|\d[ -])[2-9]\d{3}([ -])\d{4}\1\d{4}(?![\p{L}\p{N}_]|[ -]\d)|(?<=\baadhaar[^\d\n]{1,16})[2-9]\d{11}(?![\p{L}\p{N}_])/giu,
  ([match]) => verhoeff(plain(match)),
);
const wallet = matcher(
  'CRYPTO_WALLET',
  ({ longest }) => longest >= 26,
  /(?<![\p{L}\p{N}_])(?:0x[0-9a-fA-F]{40}|bc1[02-9ac-hj-np-z]{25,87}|[13][1-9A-HJ-NP-Za-km-z]{25,33})(?![\p{L}\p{N}_])/gu,
  ([match]) =>
    match.startsWith('0x') ||
    match.startsWith('bc1') ||
    (/\d.*\d.*\d/.test(match) && /[a-z].*[A-Z]|[A-Z].*[a-z]/.test(match)),
);

/** Names are found behind what announces them, not by themselves: without a model, a name is a word like others. */
const name = matcher(
  'NAME',
  ({ name: has }) => has,
  /(?<=(?:\b(?:[Mm]y name is|[Mm]y name['’]s|I am called|[Nn]ame: ?|[Dd]ear|Mr\.?|Mrs\.?|Ms\.?|Miss|Dr\.?|Prof\.?|Herrn?|Frau|Monsieur|Madame|Señora?|[Ii]ch heiße|[Mm]ein Name ist|[Jj]e m['’]appelle|[Mm]e llamo|[Mm]i chiamo)) {0,2})(?!(?:Sir|Madam|Customer|Team|All|User|Friend|Colleague|Colleagues|Hiring|Doe|Dr|Mr|Mrs|Ms|Prof|Diary|God|Lord|Santa|Support|Sirs)\b)\p{Lu}[\p{L}'’-]{1,30}(?: (?:(?:van|von|de|der|la|da|di|del|bin|al)\.? ){0,2}\p{Lu}[\p{L}'’-]{1,30}){0,3}(?![\p{L}\p{N}_])/gu,
);

/** Street and number in the orders of the larger European languages, and US post-office boxes. */
const address = matcher(
  'LOCATION_ADDRESS',
  ({ address: has }) => has,
  /(?<![\p{L}\p{N}_])(?:\d{1,5}[A-Za-z]? (?:[NSEW]\.? )?(?:\p{Lu}[\p{L}'’.-]{1,25} ){1,3}(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Way|Place|Pl|Square|Sq|Terrace|Parkway|Pkwy|Highway|Hwy|Close|Crescent)(?![\p{L}\p{N}_])|(?:\p{Lu}\p{Ll}{2,25}(?:straße|strasse|str\.|weg|platz|allee|gasse|ring|damm|ufer)|(?:Rue|Avenue|Boulevard|Place|Calle|Avenida|Plaza|Paseo|Via|Piazza|Corso|Rua|Praça|Ulica) (?:(?:de|du|des|la|le|les|del|della|da|do|dos) ){0,2}(?:\p{Lu}[\p{L}'’-]{1,25} ?){1,3},?) ?\d{1,4}[a-z]?(?![\p{L}\p{N}_])|\d{1,4},? (?:rue|avenue|boulevard|place|quai|impasse) (?:(?:de|du|des|la|le|les) ){0,2}(?:(?:de |d['’]|l['’])?\p{Lu}[\p{L}'’-]{1,25} ?){1,3}(?![\p{L}\p{N}_])|P\.? ?O\.? Box \d{1,6}(?![\p{L}\p{N}_]))/gu,
);

type Phones = typeof import('google-libphonenumber');
/** Loaded with the first guardrail that looks for phone numbers. */
let phones: Promise<Phones> | null = null;
/** Countries whose numbers without a country code are known behind a word such as "call". */
const REGIONS = ['US', 'GB', 'DE', 'FR', 'ES', 'IT', 'IN', 'AU', 'BR', 'JP'] as const;
const CUE =
  /(?:tel|phone|fax|call|mobile|cell|whatsapp|sms|text|telefon|telefono|teléfono|téléphone|handy|ring|dial|number is|reach (?:me|us) (?:at|on))\b\.?[^\d\n+]{0,12}$/i;

/** Numbers that are valid in their country's plan. The library is loaded when it is needed. */
export function phone({ PhoneNumberUtil }: Phones): Detector {
  const plans = PhoneNumberUtil.getInstance();
  const valid = (number: string, region?: (typeof REGIONS)[number]): boolean => {
    try {
      return plans.isValidNumber(plans.parse(number, region));
    } catch {
      // The parser throws for digits that cannot be read as a number.
      return false;
    }
  };
  return matcher(
    'PHONE_NUMBER',
    digits(7),
    /(?<![\p{L}\p{N}_+=/]|\d[ .()/-]{1,2})(?:(?:\+|00) ?)?\(?\d(?:[ .()/-]{0,2}\d){6,16}(?![\p{L}\p{N}_]|[ .()/-]{1,2}\d)/gu,
    (match, text) => {
      const [given] = match;
      const count = plain(given).length;
      if (given.startsWith('+') || given.startsWith('00')) return count <= 17 && valid(given.replace(/^00 ?/, '+'));
      // A form that little else has: (202) 555-0143, 202-555-0143.
      if (/^(?:1[ .-])?(?:\(\d{3}\) ?|\d{3}[.-])\d{3}[.-]\d{4}$/.test(given)) return valid(given, 'US');
      return (
        CUE.test(text.slice(Math.max(0, match.index - 40), match.index)) &&
        REGIONS.some((region) => valid(given, region))
      );
    },
  );
}

/** In the order that decides where two overlap. `PHONE_NUMBER` stands last: most digits could be one. */
export const PII_DETECTORS: readonly Detector[] = [
  email,
  iban,
  creditCard,
  brazilian,
  ssn,
  aadhaar,
  mac,
  ipAddress,
  wallet,
  nino,
  address,
  name,
];
const CATEGORIES = [
  'EMAIL_ADDRESS',
  'PHONE_NUMBER',
  'LOCATION_ADDRESS',
  'NAME',
  'IP_ADDRESS',
  'CREDIT_CARD',
  'SSN',
  'IBAN',
  'MAC_ADDRESS',
  'UK_NINO',
  'BR_CPF',
  'IN_AADHAAR',
  'CRYPTO_WALLET',
] as const;

/**
 * `gateway.pii`: personal data in all texts, found by form and checksum, without a model and without a call. The first seven
 * categories are the published ones. Fails on a finding; with `redact` passes and replaces it.
 */
export const pii = check({
  id: 'gateway.pii',
  phases: BOTH,
  targets: ANY_TARGET,
  parameters: z.strictObject({
    categories: z.array(z.enum(CATEGORIES)).min(1).max(MAX_CHOICES),
    redact: z.boolean().default(false),
  }),
  timeoutMs: 5_000,
  mutates: false,
  canonical: true,
  redacts: ifAsked,
  compile({ categories, redact }) {
    const wanted = new Set<string>(categories);
    const detectors = PII_DETECTORS.filter(({ kind }) => wanted.has(kind));
    let all: readonly Detector[] | null = wanted.has('PHONE_NUMBER') ? null : detectors;
    const load = async (): Promise<readonly Detector[]> => {
      phones ??= import('google-libphonenumber').then((module) => module.default);
      all = [...detectors, phone(await phones)];
      return all;
    };
    if (all === null) void load().catch(() => undefined);
    return {
      // A redacted part must not have been sent.
      lookBehind: redact ? null : REACH,
      judge(subject) {
        if (all !== null) return detected(all, subject, redact, 'personal data');
        return load().then((loaded) => detected(loaded, subject, redact, 'personal data'));
      },
    };
  },
});
