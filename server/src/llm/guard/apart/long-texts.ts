/** An answer with long texts as it goes to the thread: what holds them as JSON, and the texts as bytes, copied in turns. */
import { isObject } from '../../../kernel/json.ts';
import { parseExact } from '../../../kernel/json-exact.ts';
import { SharedPieces } from '../../large/calls.ts';
import type { LongText, SplitAnswer } from './messages.ts';

/** Characters from which on a text is long. */
const LONG = 64 * 1024;
/** Characters that are copied in one turn. */
const COPIED = 1024 * 1024;

type Key = LongText['path'][number];

/** @param drops gets what gives the memory back */
export async function splitAnswer(
  answer: unknown,
  turn: () => Promise<void>,
  drops: (() => void)[],
): Promise<SplitAnswer> {
  const found: { readonly path: readonly Key[]; readonly text: string }[] = [];
  const json = JSON.stringify(without(answer, [], (path, text) => void found.push({ path, text })));
  const pieces = new SharedPieces();
  drops.push(() => pieces.giveBack());
  for (const { text } of found)
    for (let at = 0; at < text.length; at += COPIED) {
      await turn();
      pieces.add(Buffer.from(text.slice(at, at + COPIED), 'utf16le'));
    }
  const texts = found.map(({ path, text }) => ({ path, length: text.length }));
  await turn();
  return { json, texts, bytes: pieces.pieces() };
}

/** The value with empty texts in place of long ones. What has none is the same object: numbers may be raw JSON. */
function without(value: unknown, path: readonly Key[], take: (path: readonly Key[], text: string) => void): unknown {
  if (typeof value === 'string') {
    if (value.length <= LONG) return value;
    take(path, value);
    return '';
  }
  if (Array.isArray(value)) {
    const made = value.map((one, i) => without(one, [...path, i], take));
    return made.some((one, i) => one !== value[i]) ? made : value;
  }
  if (!isObject(value)) return value;
  let made: Record<string, unknown> | null = null;
  for (const [key, one] of Object.entries(value)) {
    const kept = without(one, [...path, key], take);
    if (kept === one) continue;
    made ??= { ...value };
    made[key] = kept;
  }
  return made ?? value;
}

/** The answer that was split. */
export function joinedAnswer({ json, texts, bytes }: SplitAnswer): unknown {
  const root: Record<Key, unknown> = { answer: parseExact(json, Number.POSITIVE_INFINITY) };
  const all = Buffer.concat(bytes);
  let at = 0;
  for (const { path, length } of texts) {
    let holder = root;
    let last: Key = 'answer';
    for (const key of path) {
      holder = holder[last] as Record<Key, unknown>;
      last = key;
    }
    holder[last] = all.toString('utf16le', at, at + 2 * length);
    at += 2 * length;
  }
  return root.answer;
}
