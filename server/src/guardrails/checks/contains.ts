import { z } from 'zod';
import { asSent, canonicalText, hasForms } from '../canonical.ts';
import type { Excerpt, Judgement, Subject } from '../check.ts';
import { joinedTexts } from '../joined.ts';
import { ANY_TARGET, amount, BOTH, check, operator, paced, texts } from './support.ts';

/** Text that is searched before others get a turn. */
const SLICE = 65_536;
/** A longer word is searched for in linear time: the engine's own search may take as long as word and text multiplied. */
const LONG = 32;

/** Where the word begins in the text, or -1. Each `yield` is a place to pause. */
function* find(text: string, word: string): Generator<number, number> {
  if (word.length > LONG) return yield* findLong(text, word);
  if (text.length <= SLICE) return text.indexOf(word);
  for (let from = 0; from < text.length; from += SLICE) {
    const at = text.slice(from, from + SLICE + word.length - 1).indexOf(word);
    if (at >= 0) return from + at;
    yield SLICE / 16;
  }
  return -1;
}

/**
 * After Knuth, Morris and Pratt, where the text has the ends and the middle of the word at all: few do, and the engine
 * finds that out in a tenth of the time.
 */
function* findLong(text: string, word: string): Generator<number, number> {
  const { length } = word;
  if (text.length < length) return -1;
  for (const from of [length - LONG, (length - LONG) >> 1, 0]) {
    if ((yield* find(text, word.slice(from, from + LONG))) < 0) return -1;
  }
  const back = new Int32Array(length);
  for (let i = 1, same = 0; i < length; i++) {
    while (same > 0 && word.charCodeAt(i) !== word.charCodeAt(same)) same = back[same - 1] ?? 0;
    if (word.charCodeAt(i) === word.charCodeAt(same)) same += 1;
    back[i] = same;
  }
  let same = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    while (same > 0 && code !== word.charCodeAt(same)) same = back[same - 1] ?? 0;
    if (code === word.charCodeAt(same)) same += 1;
    if (same === length) return i - length + 1;
    if (i % SLICE === SLICE - 1) yield SLICE / 4;
  }
  return -1;
}

/**
 * Whether a word is looked for in the text as it was sent: one of ignorable characters and marks alone, and a sign whose
 * canonical form is in many words, as ™ is TM. A wide form means the letter itself.
 */
function isAsWritten(word: string): boolean {
  return canonicalText(`a${word}`) === 'a' || hasForms(word.replace(/[\uff00-\uffef]/g, ''));
}

/**
 * `default.contains`: words or phrases in all texts together, in canonical form; case counts. `any`: at least
 * one of them is in some text; `all`: each does; `none`: none does. A stream is judged as it runs for `none`, because
 * only there a part of the answer can decide.
 */
export const contains = check({
  id: 'default.contains',
  phases: BOTH,
  targets: ANY_TARGET,
  parameters: z.strictObject({ words: texts(1_000, 1_000), operator: operator('any') }),
  timeoutMs: null,
  mutates: false,
  canonical: true,
  compile({ words, operator: how }) {
    const written = words.map((word) => (isAsWritten(word) ? word : canonicalText(word)));
    const wanted = [...new Set(written)];
    const unseen = new Set(words.filter(isAsWritten));
    const longest = Math.max(...wanted.map((word) => word.length));
    function* look(subject: Subject): Generator<number, Judgement> {
      const size = amount(subject.texts);
      const joins = joinedTexts(subject);
      const found: number[] = [];
      const excerpts: Excerpt[] = [];
      for (const [index, word] of wanted.entries()) {
        const invisible = unseen.has(word);
        for (const part of subject.texts) {
          const start = yield* find(invisible ? asSent(part).text : part.text, word);
          if (start < 0) continue;
          found.push(index + 1);
          excerpts.push({ path: part.path, start, end: start + word.length, kind: `word ${index + 1}` });
          break;
        }
        if (found.at(-1) !== index + 1)
          for (const { text, stretches } of joins) {
            const start = yield* find(text, word);
            if (start < 0) continue;
            found.push(index + 1);
            for (const { part, ...place } of stretches(start, start + word.length))
              excerpts.push({ path: part.path, ...place, kind: `word ${index + 1}` });
            break;
          }
        yield size / 16;
      }
      const ok = how === 'any' ? found.length > 0 : how === 'all' ? found.length === wanted.length : found.length === 0;
      return {
        verdict: ok,
        data: {
          explanation: `${found.length} of ${wanted.length} words are in the text; ${how} is asked for.`,
          operator: how,
          found,
        },
        excerpts,
      };
    }
    return {
      lookBehind: how === 'none' ? longest - 1 : null,
      judge: (subject) => paced(look(subject)),
    };
  },
});
