/**
 * What a text has of what personal data and secrets are made of, found in one pass: most texts have none of it, and a
 * detector whose traits are missing need not look. Traits may be seen where there is nothing to find, never the other way
 * round (`traits.test.ts`).
 */

export interface Traits {
  /** `@`. */
  readonly at: boolean;
  /** Three numbers with dots between them, or two colons with at most four characters between them. */
  readonly ip: boolean;
  /** Two letters and two digits behind them, as an IBAN begins. */
  readonly iban: boolean;
  /** A number beside a word that begins with a capital, or before one of the words for streets that do not. */
  readonly address: boolean;
  /** A capital letter behind the end of a word or sign that announces a name. */
  readonly name: boolean;
  /** Five hyphens in a row. */
  readonly rule: boolean;
  /** Most digits that stand together, with at most two characters between each and the next. */
  readonly digits: number;
  /** Longest run of ASCII letters, digits and `+/_=~.:-`. */
  readonly longest: number;
  /** Runs of these that are at least `TOKEN` long, with a space between them. */
  readonly tokens: string;
}

/** Length from which a run may be a key, a wallet or a hardware address. */
export const TOKEN = 17;
/** Text looked at at once. */
const SLICE = 32_000;
/** Longer than anything that is found, with what stands around it. */
const OVERLAP = 2_048;

const PLAIN = 0;
const BREAK = 1;
const UPPER = 2;
const DIGIT = 3;
const DOT = 4;
const COLON = 5;
const HYPHEN = 6;
const AT = 7;
const WIDE = 8;

/** The text that is being looked at: reading an array costs a third of what reading a string does. */
const scratch = Buffer.alloc((SLICE + OVERLAP + 1) * 2);
const codes = new Uint16Array(scratch.buffer, scratch.byteOffset, scratch.length / 2);

const code = (character: string): number => character.charCodeAt(0);
/** What each ASCII character is. */
const CLASSES = Uint8Array.from({ length: 128 }, (_, c) => {
  const character = String.fromCharCode(c);
  if (/[a-z+/_=~]/.test(character)) return PLAIN;
  if (/[A-Z]/.test(character)) return UPPER;
  if (/\d/.test(character)) return DIGIT;
  return { '.': DOT, ':': COLON, '-': HYPHEN, '@': AT }[character] ?? BREAK;
});
/** Outside of the text it is nothing. */
const codeAt = (at: number): number => (at < 0 ? 0 : (codes[at] ?? 0));
const classOf = (c: number): number => (c < 128 ? (CLASSES[c] ?? BREAK) : WIDE);

/** Last two letters of what stands before names; `pairs[a * 128 + b]`. */
const ENDINGS = new Uint8Array(128 * 128);
for (const ending of [
  'is',
  "'s",
  'ed',
  'ar',
  'Mr',
  'rs',
  'Ms',
  'ss',
  'Dr',
  'of',
  'rr',
  'rn',
  'au',
  'ur',
  'me',
  'or',
  'ra',
  'st',
  'le',
  'mo',
  'e:',
])
  ENDINGS[code(ending) * 128 + ending.charCodeAt(1)] = 1;
const SPACE = code(' ');
const FULL_STOP = code('.');
const COMMA = code(',');
const APOSTROPHE = code("'");
const DASH = code('-');

/** Whether what stands before the capital at `at` may announce a name. */
function announced(at: number): boolean {
  let before = at - 1;
  while (before > at - 4 && codeAt(before) === SPACE) before -= 1;
  if (codeAt(before) === FULL_STOP) before -= 1;
  const a = codeAt(before - 1);
  const b = codeAt(before);
  if (b >= 128) return false;
  // ich heiße, my name’s
  return a < 128 ? ENDINGS[a * 128 + b] === 1 : b === 101 || b === 115;
}

const isLetter = (c: number): boolean => c >= 128 || (c >= 65 && c <= 90) || (c >= 97 && c <= 122);
/** First two letters of words for streets that follow a number and have no capital. */
const STREETS = new Set(['ru', 'av', 'bo', 'pl', 'qu', 'im'].map((word) => code(word) * 128 + word.charCodeAt(1)));

/** Whether the number `[start, end)` may belong to an address. */
function housed(start: number, end: number): boolean {
  let after = end;
  if (isLetter(codeAt(after)) || codeAt(after) === COMMA) after += 1;
  if (codeAt(after) === SPACE) {
    const next = codeAt(after + 1);
    const kind = classOf(next);
    if (kind === UPPER || kind === WIDE || STREETS.has(next * 128 + codeAt(after + 2))) return true;
  }
  let before = start - 1;
  if (codeAt(before) === SPACE) before -= 1;
  if (codeAt(before) === COMMA) before -= 1;
  if (codeAt(before) === SPACE) before -= 1;
  if (codeAt(before) === FULL_STOP) before -= 1;
  const last = before;
  let capital = false;
  for (; last - before < 40; before--) {
    const c = codeAt(before);
    if (!isLetter(c) && c !== APOSTROPHE && c !== DASH) break;
    if (c >= 128 || (c >= 65 && c <= 90)) capital = true;
  }
  return capital && last - before > 1;
}

const NONE: Traits = {
  at: false,
  ip: false,
  iban: false,
  address: false,
  name: false,
  rule: false,
  digits: 0,
  longest: 0,
  tokens: '',
};

/** The traits of a text. A `yield` says how much work was done. */
export function* traitsOf(text: string): Generator<number, Traits> {
  if (text.length <= SLICE + OVERLAP) return scanned(text);
  let all = NONE;
  for (let from = 0; from < text.length; from += SLICE) {
    all = together(all, scanned(text.slice(from, from + SLICE + OVERLAP)));
    yield SLICE / 8;
  }
  return all;
}

function together(a: Traits, b: Traits): Traits {
  return {
    at: a.at || b.at,
    ip: a.ip || b.ip,
    iban: a.iban || b.iban,
    address: a.address || b.address,
    name: a.name || b.name,
    rule: a.rule || b.rule,
    digits: Math.max(a.digits, b.digits),
    longest: Math.max(a.longest, b.longest),
    tokens: a.tokens + b.tokens,
  };
}

function scanned(text: string): Traits {
  let at = false;
  let ip = false;
  let iban = false;
  let address = false;
  let name = false;
  let rule = false;
  let digits = 0;
  let longest = 0;
  let tokens = '';
  let tokenFrom = 0;
  let lastDigit = -4;
  let cluster = 0;
  let numberFrom = 0;
  let lastDot = -5;
  let dots = 0;
  let lastColon = -6;
  let hyphens = 0;
  const { length } = text;
  scratch.write(text, 'utf16le');
  // The end breaks what runs up to it.
  codes[length] = 0;
  for (let i = 0; i <= length; i++) {
    const kind = classOf(codes[i] as number);
    if (kind === PLAIN) continue;
    switch (kind) {
      case UPPER:
        name ||= announced(i);
        continue;
      case DIGIT: {
        if (i !== lastDigit + 1) numberFrom = i;
        else if (i === numberFrom + 1 && isLetter(codeAt(i - 2)) && isLetter(codeAt(i - 3))) iban = true;
        cluster = i - lastDigit <= 3 ? cluster + 1 : 1;
        if (cluster > digits) digits = cluster;
        lastDigit = i;
        address ||= classOf(codeAt(i + 1)) !== DIGIT && housed(numberFrom, i + 1);
        continue;
      }
      case DOT:
        if (lastDigit === i - 1) {
          dots = i - lastDot <= 4 ? dots + 1 : 1;
          lastDot = i;
          if (dots === 3) ip = true;
        }
        continue;
      case COLON:
        if (i - lastColon <= 5) ip = true;
        lastColon = i;
        continue;
      case HYPHEN:
        hyphens = codeAt(i - 1) === DASH ? hyphens + 1 : 1;
        if (hyphens === 5) rule = true;
        continue;
      case AT:
        at = true;
        break;
      case WIDE:
        name ||= announced(i);
    }
    const run = i - tokenFrom;
    if (run > longest) longest = run;
    if (run >= TOKEN) tokens += `${text.slice(tokenFrom, i)} `;
    tokenFrom = i + 1;
  }
  return { at, ip, iban, address, name, rule, digits, longest, tokens };
}
