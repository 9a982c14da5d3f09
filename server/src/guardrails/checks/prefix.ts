import { z } from 'zod';
import { check, INPUT, LLM, text } from './support.ts';

/** Where words stand; an empty text is one that cannot be read. Names, addresses of pictures and metadata are texts too, but nothing is said there. */
const SPOKEN = /(?:^|\.)(?:content|text|prompt|input|query)(?:\[\d+\])*$/;

/** `default.addPrefix`: puts `prefix` before the last text of the user; always passes. Without user text nothing changes. */
export const addPrefix = check({
  id: 'default.addPrefix',
  phases: INPUT,
  targets: LLM,
  parameters: z.strictObject({ prefix: text(100_000) }),
  timeoutMs: null,
  mutates: true,
  compile: ({ prefix }) => ({
    lookBehind: null,
    judge({ texts }) {
      const spoken = (who: 'user' | null) =>
        texts.findLast(({ role, path, text }) => role === who && text !== '' && SPOKEN.test(path));
      const last = spoken('user') ?? spoken(null);
      if (last === undefined) return { verdict: true, data: { explanation: 'The request has no text of the user.' } };
      return {
        verdict: true,
        data: { explanation: 'The prefix was put before the text of the user.' },
        replacements: [{ path: last.path, text: prefix + last.text }],
      };
    },
  }),
});
