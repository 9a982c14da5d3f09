import type { MessagesTraits } from '../../operations/convert/conversion.ts';
import type { Prefill } from '../provider.ts';

/**
 * What older Claude models do not know, by the beginning of their names; the first match wins. Models that are not
 * listed are newer and know everything. Dated names carry the date at the end, so a prefix covers all snapshots.
 */
const OLDER: readonly (readonly [string, MessagesTraits])[] = [
  ['claude-2', { effort: false, structuredOutput: false, maxOutputTokens: 4096 }],
  ['claude-instant', { effort: false, structuredOutput: false, maxOutputTokens: 4096 }],
  ['claude-3-opus', { effort: false, structuredOutput: false, maxOutputTokens: 4096 }],
  ['claude-3-sonnet', { effort: false, structuredOutput: false, maxOutputTokens: 4096 }],
  ['claude-3-haiku', { effort: false, structuredOutput: false, maxOutputTokens: 4096 }],
  ['claude-3-5', { effort: false, structuredOutput: false, maxOutputTokens: 8192 }],
  ['claude-3-7', { effort: false, structuredOutput: false, maxOutputTokens: 64000 }],
  ['claude-opus-4-1', { effort: false, structuredOutput: true, maxOutputTokens: 32000 }],
  ['claude-opus-4-5', { effort: true, structuredOutput: true, maxOutputTokens: 64000 }],
  ['claude-sonnet-4-5', { effort: false, structuredOutput: true, maxOutputTokens: 64000 }],
  ['claude-haiku-4-5', { effort: false, structuredOutput: true, maxOutputTokens: 64000 }],
  ['claude-opus-4-0', { effort: false, structuredOutput: false, maxOutputTokens: 32000 }],
  ['claude-opus-4-2', { effort: false, structuredOutput: false, maxOutputTokens: 32000 }],
  ['claude-sonnet-4-0', { effort: false, structuredOutput: false, maxOutputTokens: 64000 }],
  ['claude-sonnet-4-2', { effort: false, structuredOutput: false, maxOutputTokens: 64000 }],
];

const NEWER: MessagesTraits = { effort: true, structuredOutput: true, maxOutputTokens: 64000 };
const UNKNOWN: MessagesTraits = { effort: true, structuredOutput: true, maxOutputTokens: null };

/**
 * How a model is made to continue an answer that was begun. Those newer than the 4.5 generation refuse it; names of the
 * account's own may be of any.
 */
export function claudePrefill(model: string): Prefill | null {
  return model.startsWith('claude-') && !OLDER.some(([prefix]) => model.startsWith(prefix)) ? null : {};
}

/** What a model understands of the newer request fields. */
export function traits(model: string): MessagesTraits {
  for (const [prefix, row] of OLDER) if (model.startsWith(prefix)) return row;
  return model.startsWith('claude-') ? NEWER : UNKNOWN;
}
