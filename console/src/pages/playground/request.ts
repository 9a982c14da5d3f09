/** What is written in the Playground, as a chat completion, and back. Pure. */
import type { ChatRequest } from '../../api/client.ts';
import { t } from '../../app/i18n.ts';

export interface Written {
  readonly system: string;
  readonly prompt: string;
  /** JSON of an object, or nothing. What it has wins over the fields. */
  readonly more: string;
}

type Members = Readonly<Record<string, unknown>>;

const isMembers = (value: unknown): value is Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The further parameters, and what is wrong with their text. */
export function moreOf(text: string): { readonly more: Members; readonly fault: string | null } {
  if (text.trim() === '') return { more: {}, fault: null };
  try {
    const value: unknown = JSON.parse(text);
    if (isMembers(value)) return { more: value, fault: null };
  } catch {
    // Said below.
  }
  return { more: {}, fault: t('The further parameters must be a JSON object.') };
}

export function requestOf(model: string, { system, prompt, more }: Written): ChatRequest {
  const messages = [
    ...(system.trim() === '' ? [] : [{ role: 'system', content: system }]),
    { role: 'user', content: prompt },
  ];
  return { model, messages, ...moreOf(more).more, stream: true, stream_options: { include_usage: true } };
}

/** A stored body of a chat completion as it would have been written here; null for any other body. */
export function writtenOf(body: unknown): { readonly model: string | null; readonly written: Written } | null {
  if (!isMembers(body) || !Array.isArray(body.messages)) return null;
  const { model, messages, stream: _stream, stream_options: _options, ...more } = body;
  const texts = (messages as unknown[]).map((one) =>
    isMembers(one) && typeof one.content === 'string' && Object.keys(one).length === 2
      ? { role: one.role, content: one.content }
      : null,
  );
  const [first, second] = texts;
  const simple =
    (texts.length === 1 && first?.role === 'user') ||
    (texts.length === 2 && first?.role === 'system' && second?.role === 'user');
  const rest = simple ? more : { messages, ...more };
  return {
    model: typeof model === 'string' ? model : null,
    written: {
      system: simple && texts.length === 2 ? (first?.content ?? '') : '',
      prompt: simple ? (texts.at(-1)?.content ?? '') : '',
      more: Object.keys(rest).length === 0 ? '' : JSON.stringify(rest, null, 2),
    },
  };
}
