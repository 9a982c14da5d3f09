import { isObject, type JsonObject } from '../../kernel/json.ts';
import { asArray, asString } from './fields.ts';

/**
 * What a Responses model wants back of its reasoning, on its way through a Messages caller: id and encrypted content are the
 * signature of the thinking block that shows its summary. Signatures are opaque to clients, who send blocks back whole.
 */
const SIGNATURE = /^responses:([^:]{1,200}):([\s\S]+)$/;

/** Whether a reasoning item can come back in the next turn: nothing is stored where its id alone would find it. */
export const isPortable = (item: JsonObject): boolean => typeof item.encrypted_content === 'string';

/** The items that can come back among the content blocks of a chat message. */
export function portableItems(blocks: unknown): JsonObject[] {
  return (Array.isArray(blocks) ? blocks : []).filter(
    (block): block is JsonObject => isObject(block) && block.type === 'reasoning' && isPortable(block),
  );
}

/** The paragraphs of a text part list, whether a summary or reasoning itself. */
export function paragraphs(parts: unknown): string {
  return asArray(parts as JsonObject[] | undefined)
    .flatMap((part) => {
      const text = isObject(part) ? asString(part.text) : null;
      return text === null || text === '' ? [] : [text];
    })
    .join('\n\n');
}

/** What an item tells of the model's reasoning: its summary, or where there is none the reasoning itself. */
export const reasoningOf = (item: JsonObject): string => paragraphs(item.summary) || paragraphs(item.content);

export function signatureOf(item: JsonObject): string {
  return `responses:${asString(item.id) ?? ''}:${asString(item.encrypted_content) ?? ''}`;
}

/** The item that a thinking block stands for; null for thoughts of other models. */
export function itemOf(block: JsonObject): JsonObject | null {
  const found = SIGNATURE.exec(asString(block.signature) ?? '');
  if (found === null) return null;
  const text = asString(block.thinking) ?? '';
  const summary = text === '' ? [] : [{ type: 'summary_text', text }];
  return { type: 'reasoning', id: found[1] ?? '', summary, encrypted_content: found[2] ?? '' };
}
