/** Messages of a chat as the turns of Converse. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asString, fitCallId, invalid, refuse } from '../../operations/convert/fields.ts';
import { callInput } from '../../operations/convert/request-chat-to-messages.ts';
import { contentBlocks, type Names, withCachePoint } from './converse-content.ts';

const CALL_ID = /^[a-zA-Z0-9_.:-]{1,64}$/;
const MISTRAL_CALL_ID = /^[a-zA-Z0-9]{9}$/;

interface Turn {
  readonly role: 'user' | 'assistant';
  readonly content: JsonObject[];
}

export interface History {
  readonly system: JsonObject[];
  readonly turns: Turn[];
  /** Names of called functions. */
  readonly called: ReadonlySet<string>;
}

/** Thinking that was shown outside strict shape comes back with its signature; without one it is left out. */
function thinkingBlocks(blocks: JsonValue | undefined): JsonObject[] {
  return asArray(blocks).flatMap((block): JsonObject[] => {
    if (!isObject(block)) return [];
    if (block.type === 'redacted_thinking' && typeof block.data === 'string') {
      return [{ reasoningContent: { redactedContent: block.data } }];
    }
    const { signature, thinking: text } = block;
    if (block.type !== 'thinking' || typeof text !== 'string' || typeof signature !== 'string' || signature === '') {
      return [];
    }
    return [{ reasoningContent: { reasoningText: { text, signature } } }];
  });
}

/** Turns alternate and begin with the user: equal neighbours become one, results of calls stand first. */
export function historyOf(messages: JsonValue[], model: string): History {
  const system: JsonObject[] = [];
  const turns: Turn[] = [];
  const called = new Set<string>();
  const calls = new Set<string>();
  const names: Names = new Set();
  const [pattern, length] = model.startsWith('mistral.') ? [MISTRAL_CALL_ID, 9] : [CALL_ID, 32];
  const fit = (id: string): string => fitCallId(id, pattern, length);
  const add = (role: Turn['role'], blocks: JsonObject[]): void => {
    const last = turns.at(-1);
    if (last?.role === role) last.content.push(...blocks);
    else if (blocks.length > 0) turns.push({ role, content: blocks });
  };
  const result = (message: JsonObject, at: string): void => {
    const id = asString(message.tool_call_id);
    if (id === null) invalid(`${at}.tool_call_id`, 'A tool message needs the id of its call.');
    if (!calls.has(id)) {
      invalid(`${at}.tool_call_id`, `Message ${at} answers a call that no earlier assistant message made.`);
    }
    const given = contentBlocks(message.content, `${at}.content`, { media: true, names });
    // The mark for the cache is beside a result, not inside.
    const marks = given.filter((block) => block.cachePoint !== undefined).slice(-1);
    const content = given.filter((block) => block.cachePoint === undefined);
    const block = { toolResult: { toolUseId: fit(id), content: content.length > 0 ? content : [{ text: ' ' }] } };
    const last = turns.at(-1);
    if (last?.role !== 'user') turns.push({ role: 'user', content: [block, ...marks] });
    else {
      const first = last.content.findIndex((one) => one.toolResult === undefined && one.cachePoint === undefined);
      last.content.splice(first < 0 ? last.content.length : first, 0, block, ...marks);
    }
  };
  const assistant = (message: JsonObject, at: string): void => {
    if (isObject(message.function_call)) refuse(`${at}.function_call`, 'use tool_calls.');
    if (isObject(message.audio)) refuse(`${at}.audio`, 'audio has no equivalent there.');
    const text = message.content ?? asString(message.refusal);
    const blocks = [
      ...thinkingBlocks(message.content_blocks),
      ...contentBlocks(text, `${at}.content`, { media: false, names }),
    ];
    asArray(message.tool_calls).forEach((call, j) => {
      const place = `${at}.tool_calls[${j}]`;
      if (!isObject(call) || !isObject(call.function)) refuse(place, 'only function calls have an equivalent there.');
      const name = asString(call.function.name) ?? '';
      const id = asString(call.id);
      if (id === null || id === '') invalid(`${place}.id`, 'A call needs an id.');
      if (calls.has(id)) invalid(`${place}.id`, 'The same call id appears twice in this history.');
      calls.add(id);
      called.add(name);
      const input = callInput(call.function.arguments, `${place}.function.arguments`);
      blocks.push(...withCachePoint({ toolUse: { toolUseId: fit(id), name, input } }, call));
    });
    add('assistant', blocks);
  };
  messages.forEach((message, i) => {
    const at = `messages[${i}]`;
    if (!isObject(message)) invalid(at, 'A message must be an object.');
    switch (message.role) {
      case 'system':
      case 'developer':
        system.push(...contentBlocks(message.content, `${at}.content`, { media: false, names }));
        return;
      case 'user': {
        const blocks = contentBlocks(message.content, `${at}.content`, { media: true, names });
        if (blocks.length === 0) invalid(`${at}.content`, 'A user message must not be empty.');
        add('user', blocks);
        return;
      }
      case 'assistant':
        assistant(message, at);
        return;
      case 'tool':
        result(message, at);
        return;
      default:
        invalid(`${at}.role`, 'The role must be system, developer, user, assistant or tool.');
    }
  });
  if (turns[0]?.role !== 'user') invalid('messages', 'The first message besides system must be of the user.');
  trimEnd(turns);
  return { system, turns, called };
}

/** White space at the end of the last text of an assistant, which the model is to continue, is refused there. */
function trimEnd(turns: Turn[]): void {
  const last = turns.at(-1);
  const block = last?.role === 'assistant' ? last.content.at(-1) : undefined;
  if (last === undefined || typeof block?.text !== 'string') return;
  last.content[last.content.length - 1] = { ...block, text: block.text.trimEnd() };
}
