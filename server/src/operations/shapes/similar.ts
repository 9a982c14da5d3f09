/** What a user said, apart from the rest of a request: similar texts may share an answer. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import type { Similar } from './wire-shape.ts';

/** Longer conversations are looked up as they are only. */
const MAX_MESSAGES = 4;

/** Of a prompt that is one text. */
export function ofPrompt(body: JsonObject): Similar | null {
  const { prompt, ...rest } = body;
  return typeof prompt === 'string' ? { text: prompt, rest } : null;
}

/** Of a short conversation in texts only. */
export function ofChat(body: JsonObject, system: 'ignore' | 'match'): Similar | null {
  const { messages } = body;
  if (!Array.isArray(messages) || messages.length > MAX_MESSAGES) return null;
  const texts: string[] = [];
  const kept: JsonValue[] = [];
  for (const message of messages) {
    if (!isObject(message)) return null;
    const { role, content } = message;
    if (role === 'system' || role === 'developer') {
      if (system === 'match') kept.push(message);
      continue;
    }
    if (role !== 'user') {
      kept.push(message);
      continue;
    }
    const text = textOf(content);
    if (text === null) return null;
    texts.push(text);
    const { content: _said, ...others } = message;
    kept.push(others);
  }
  return { text: texts.join('\n\n'), rest: { ...body, messages: kept } };
}

/** Null where there is more than text. */
function textOf(content: JsonValue | undefined): string | null {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return null;
  const texts: string[] = [];
  for (const one of content) {
    if (!isObject(one) || one.type !== 'text' || typeof one.text !== 'string') return null;
    texts.push(one.text);
  }
  return texts.join('\n');
}
