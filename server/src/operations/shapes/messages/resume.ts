/** How a stream of Messages is continued. */
import { isObject, type JsonObject } from '../../../kernel/json.ts';
import { type Resume, type SeenPrefix, StreamJoin, unjoinable, withAssistant } from '../resume.ts';
import { messagesUsage } from './usage.ts';

function see(seen: SeenPrefix, { type, index, content_block: block, delta, message }: JsonObject): void {
  switch (type) {
    case 'message_start':
      if (isObject(message) && typeof message.id === 'string') seen.id = message.id;
      return;
    case 'content_block_start':
      if (!isObject(block) || block.type !== 'text' || typeof index !== 'number') seen.isPlain = false;
      else {
        seen.open = index;
        seen.blocks = index + 1;
        if (typeof block.text === 'string') seen.text += block.text;
      }
      return;
    case 'content_block_delta':
      if (isObject(delta) && delta.type === 'text_delta' && typeof delta.text === 'string') seen.text += delta.text;
      else seen.isPlain = false;
      return;
    case 'content_block_stop':
      seen.open = null;
      return;
    case 'ping':
      return;
    default:
      seen.isPlain = false;
  }
}

class MessagesJoin extends StreamJoin {
  override join(body: JsonObject): JsonObject | null {
    const { type, index, content_block: block, delta, message } = body;
    const shift = this.seen.open ?? this.seen.blocks;
    switch (type) {
      case 'message_start':
        if (isObject(message) && isObject(message.usage)) this.begun = message.usage;
        return null;
      case 'content_block_start': {
        if (typeof index !== 'number' || !isObject(block)) throw unjoinable();
        if (index > 0 || this.seen.open === null) return { ...body, index: index + shift };
        if (block.type !== 'text') throw unjoinable();
        const text = typeof block.text === 'string' ? this.said(block.text) : '';
        if (text === '') return null;
        return { type: 'content_block_delta', index: shift, delta: { type: 'text_delta', text } };
      }
      case 'content_block_delta': {
        if (typeof index !== 'number' || !isObject(delta)) throw unjoinable();
        if (delta.type !== 'text_delta' || typeof delta.text !== 'string') return { ...body, index: index + shift };
        const text = this.said(delta.text);
        return text === '' ? null : { ...body, index: index + shift, delta: { ...delta, text } };
      }
      case 'content_block_stop':
        return typeof index === 'number' ? { ...body, index: index + shift } : body;
      case 'message_delta':
        return isObject(body.usage) ? { ...body, usage: this.usage(body.usage) } : body;
      default:
        return body;
    }
  }
}

export const messagesResume: Resume = {
  see,
  goingOn: withAssistant,
  join: (seen, used) => new MessagesJoin(messagesUsage, seen, used),
};
