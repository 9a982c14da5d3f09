import { z } from 'zod';
import type { Check, Judgement } from '../check.ts';
import { ANY_TARGET, BOTH, check, count, not, paced, verdict } from './support.ts';

const words = new Intl.Segmenter('en', { granularity: 'word' });
const sentences = new Intl.Segmenter('en', { granularity: 'sentence' });
const characters = new Intl.Segmenter('en', { granularity: 'grapheme' });

/** Scripts that write words without spaces between them. */
const UNSPACED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;
const WORD = /[\p{L}\p{N}]/u;
/** One unit is one grapheme: ASCII without the carriage return, which makes one with the line feed. */
const isSimple = (text: string): boolean => /^\p{ASCII}*$/u.test(text) && !text.includes('\r');
/** Units segmented at once: a segmenter needs the text around a boundary, and setting one up costs the whole text. */
const SLICE = 8_000;

/** Slices of a text cut at line breaks or spaces where there are some, so that nothing counted is cut in two. */
function* slices(text: string): Generator<string> {
  for (let at = 0; at < text.length; ) {
    let end = Math.min(text.length, at + SLICE);
    if (end < text.length) {
      const space = Math.max(text.lastIndexOf(' ', end), text.lastIndexOf('\n', end));
      if (space > at) end = space + 1;
      // A carriage return, a surrogate or a joiner belongs to what follows it.
      else while (end < text.length && end < at + SLICE + 64 && joins(text, end)) end++;
    }
    yield text.slice(at, end);
    at = end;
  }
}

/** Marks, joiners, skin tones, halves of flags and of surrogate pairs. */
const JOINED = /\p{M}|\p{Cf}|\p{Emoji_Modifier}|\p{Regional_Indicator}|\p{Surrogate}/u;
function joins(text: string, at: number): boolean {
  const code = text.charCodeAt(at - 1);
  return JOINED.test(text.slice(at, at + 2)) || code === 0x200d || code === 0x0d || (code >= 0xd800 && code < 0xdc00);
}

/** Runs of anything but white space that hold a letter or digit; in scripts without spaces, the words the segmenter finds. */
function* countWords(text: string): Generator<number, number> {
  let sum = 0;
  for (const slice of slices(text)) {
    for (const [run] of slice.matchAll(/\S+/g)) {
      if (!UNSPACED.test(run)) {
        if (WORD.test(run)) sum += 1;
        continue;
      }
      for (const { isWordLike } of words.segment(run)) if (isWordLike) sum += 1;
      yield run.length;
    }
    yield slice.length / 4;
  }
  return sum;
}

/** Sentences by the Unicode rules that hold a letter or digit. A sentence past 8 000 characters may count twice. */
function* countSentences(text: string): Generator<number, number> {
  let sum = 0;
  let rest = '';
  for (const slice of slices(text)) {
    const found = [...sentences.segment(rest + slice)].map(({ segment }) => segment);
    // The last one may go on in the next slice.
    rest = found.pop() ?? '';
    if (rest.length > SLICE) {
      sum += 1;
      rest = '';
    }
    for (const sentence of found) if (WORD.test(sentence)) sum += 1;
    yield slice.length;
  }
  return sum + (WORD.test(rest) ? 1 : 0);
}

/** Characters as readers see them (grapheme clusters). */
function* countCharacters(text: string): Generator<number, number> {
  if (isSimple(text)) return text.length;
  let sum = 0;
  for (const slice of slices(text)) {
    if (isSimple(slice)) sum += slice.length;
    else for (const _ of characters.segment(slice)) sum += 1;
    yield slice.length;
  }
  return sum;
}

function between(id: string, unit: string, max: number, measure: (text: string) => Generator<number, number>): Check {
  const [least, most] = [`min${unit}`, `max${unit}`];
  const parameters = z.strictObject({ [least]: count(0), [most]: count(max), not }).superRefine((value, context) => {
    if (Number(value[least]) > Number(value[most]))
      context.addIssue({ code: 'custom', path: [least], message: `must not be greater than ${most}` });
  });
  return check({
    id,
    phases: BOTH,
    targets: ANY_TARGET,
    parameters,
    timeoutMs: null,
    mutates: false,
    compile(given) {
      const min = Number(given[least]);
      const top = Number(given[most]);
      const inverted = given.not === true;
      const judged = (n: number): Judgement =>
        verdict(
          n >= min && n <= top,
          inverted,
          `There are ${n} ${unit.toLowerCase()}; ${min} to ${top} are asked for.`,
          {
            count: n,
          },
        );
      return {
        lookBehind: null,
        judge(subject) {
          const counted = paced(measure(subject.latest()));
          return typeof counted === 'number' ? judged(counted) : counted.then(judged);
        },
      };
    },
  });
}

/** `default.wordCount` of the latest text. */
export const wordCount = between('default.wordCount', 'Words', 99_999, countWords);
/** `default.sentenceCount` of the latest text. */
export const sentenceCount = between('default.sentenceCount', 'Sentences', 99_999, countSentences);
/** `default.characterCount` of the latest text, in grapheme clusters. */
export const characterCount = between('default.characterCount', 'Characters', 9_999_999, countCharacters);
