import { z } from 'zod';
import { matchesPattern } from '../../kernel/pattern.ts';
import { CheckError, type Judgement } from '../check.ts';
import { pattern } from './regex-match.ts';
import { ANY_TARGET, check, INPUT, operator, text, texts } from './support.ts';

type Operator = 'any' | 'all' | 'none';

function decided(how: Operator, matched: number, of: number, what: string): Judgement {
  const ok = how === 'all' ? matched === of : how === 'any' ? matched > 0 : matched === 0;
  return {
    verdict: ok,
    data: { explanation: `${matched} of ${of} metadata ${what} are there; ${how} is asked for.`, operator: how },
  };
}

/** `default.requiredMetadataKeys`: keys of the request's metadata, whatever their value. */
export const requiredMetadataKeys = check({
  id: 'default.requiredMetadataKeys',
  judges: 'head',
  phases: INPUT,
  targets: ANY_TARGET,
  parameters: z.strictObject({ metadataKeys: texts(200, 128), operator: operator('all') }),
  timeoutMs: null,
  mutates: false,
  compile({ metadataKeys, operator: how }) {
    const keys = [...new Set(metadataKeys)];
    return {
      lookBehind: null,
      judge({ metadata }) {
        return decided(how, keys.filter((key) => Object.hasOwn(metadata, key)).length, keys.length, 'keys');
      },
    };
  },
});

export const matchTypes = z.enum(['exact', 'contains', 'containsAll', 'regex']);
export type MatchType = z.infer<typeof matchTypes>;

/** Expected values as a list: one text, number or truth value stands for a list of itself. */
const one = z.union([text(2_000), z.number().transform(String), z.boolean().transform(String)]);
export const expected = z.union([one.transform((value) => [value]), z.array(one).min(1).max(200)]);

/** Adds an issue for each expected value that is not a pattern, where they are patterns. */
export function patternsAmong(
  values: readonly string[],
  matchType: MatchType,
  path: readonly PropertyKey[],
  context: z.RefinementCtx,
): void {
  if (matchType !== 'regex') return;
  values.forEach((value) => {
    const problem = pattern.safeParse(value).error?.issues[0]?.message;
    if (problem !== undefined) context.addIssue({ code: 'custom', path: [...path], message: problem });
  });
}

/**
 * Whether a value is what is expected: `exact` it equals one of the expected; `contains` it contains one as
 * text; `containsAll` it contains each; `regex` one of the patterns is found in it.
 */
export function matchesExpected(value: string, values: readonly string[], matchType: MatchType): boolean {
  switch (matchType) {
    case 'exact':
      return values.includes(value);
    case 'contains':
      return values.some((part) => value.includes(part));
    case 'containsAll':
      return values.every((part) => value.includes(part));
    case 'regex':
      return values.some((part) => {
        const found = matchesPattern(part, value);
        if (found === null) throw new CheckError('A value is too long for its pattern.');
        return found;
      });
  }
}

/** `default.requiredMetadataKeyPairs`: metadata values as expected. A key that is absent matches nothing. */
export const requiredMetadataKeyPairs = check({
  id: 'default.requiredMetadataKeyPairs',
  judges: 'head',
  phases: INPUT,
  targets: ANY_TARGET,
  parameters: z
    .strictObject({
      metadataPairs: z
        .record(text(128), expected)
        .refine((pairs) => Object.keys(pairs).length > 0, 'must have at least 1 key'),
      operator: operator('all'),
      matchType: matchTypes.default('exact'),
    })
    .superRefine(({ metadataPairs, matchType }, context) => {
      for (const [key, values] of Object.entries(metadataPairs))
        patternsAmong(values, matchType, ['metadataPairs', key], context);
    }),
  timeoutMs: null,
  mutates: false,
  compile({ metadataPairs, operator: how, matchType }) {
    const pairs = Object.entries(metadataPairs);
    return {
      lookBehind: null,
      judge({ metadata }) {
        const matched = pairs.filter(([key, values]) => {
          const value = Object.hasOwn(metadata, key) ? metadata[key] : undefined;
          return value !== undefined && matchesExpected(value, values, matchType);
        }).length;
        return decided(how, matched, pairs.length, 'pairs');
      },
    };
  },
});
