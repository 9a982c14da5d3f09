import { z } from 'zod';
import type { Excerpt, Judgement, Subject } from '../check.ts';
import { ANY_TARGET, amount, BOTH, check, operator, paced, texts } from './support.ts';

/**
 * `default.contains`: words or phrases, as written (case and Unicode form count), in all texts together. `any`: at least
 * one of them stands in some text; `all`: each does; `none`: none does. A stream is judged as it runs for `none`, because
 * only there a part of the answer can decide.
 */
export const contains = check({
  id: 'default.contains',
  phases: BOTH,
  targets: ANY_TARGET,
  parameters: z.strictObject({ words: texts(1_000, 1_000), operator: operator('any') }),
  timeoutMs: null,
  mutates: false,
  compile({ words, operator: how }) {
    const wanted = [...new Set(words)];
    const longest = Math.max(...wanted.map((word) => word.length));
    function* look(subject: Subject): Generator<number, Judgement> {
      const size = amount(subject.texts);
      const found: number[] = [];
      const excerpts: Excerpt[] = [];
      for (const [index, word] of wanted.entries()) {
        for (const part of subject.texts) {
          const start = part.text.indexOf(word);
          if (start < 0) continue;
          found.push(index + 1);
          excerpts.push({ path: part.path, start, end: start + word.length, kind: `word ${index + 1}` });
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
