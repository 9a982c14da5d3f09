/** How a stream of chat completions is continued. */
import { isObject, type JsonObject, type JsonValue } from '../../../kernel/json.ts';
import { type Resume, type SeenPrefix, StreamJoin, unjoinable, withAssistant } from '../resume.ts';
import { chatUsage } from './usage.ts';

/** Fields of a chat delta that are no content of another kind than text. */
const PLAIN: ReadonlySet<string> = new Set(['role', 'content']);

function see(seen: SeenPrefix, { id, created, choices }: JsonObject): void {
  if (typeof id === 'string') seen.id ??= id;
  if (typeof created === 'number') seen.created ??= created;
  for (const choice of Array.isArray(choices) ? choices : []) {
    if (!isObject(choice) || !isObject(choice.delta)) continue;
    const { index, delta, finish_reason: finish } = choice;
    const other = Object.entries(delta).some(([name, value]) => !PLAIN.has(name) && value !== null && value !== '');
    if ((index !== undefined && index !== 0) || other || typeof finish === 'string') seen.isPlain = false;
    if (typeof delta.content === 'string') seen.text += delta.content;
  }
}

class ChatJoin extends StreamJoin {
  override join(body: JsonObject): JsonObject | null {
    if (body.error !== undefined || !Array.isArray(body.choices)) return body;
    const { id, created } = this.seen;
    const choices: JsonValue[] = [];
    for (const choice of body.choices) {
      if (!isObject(choice) || !isObject(choice.delta) || (choice.index ?? 0) !== 0) throw unjoinable();
      const { role: _role, content, ...delta } = choice.delta;
      const text = typeof content === 'string' ? this.said(content) : '';
      const next = text === '' ? delta : { ...delta, content: text };
      if (Object.keys(next).length > 0 || typeof choice.finish_reason === 'string')
        choices.push({ ...choice, delta: next });
    }
    const usage = isObject(body.usage) ? { usage: this.usage(body.usage) } : null;
    if (choices.length === 0 && usage === null) return null;
    return { ...body, ...(id === null ? null : { id }), ...(created === null ? null : { created }), choices, ...usage };
  }
}

export const chatResume: Resume = {
  see,
  goingOn: withAssistant,
  join: (seen, used) => new ChatJoin(chatUsage, seen, used),
};
