/** Amazon Bedrock: text only, alternating turns. Equal roles in a row are merged with a line feed between them. */
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { isSystem, knownMessages, messagesOf } from './format-chat.ts';
import { fault, has } from './rows.ts';

interface Turn {
  readonly role: 'user' | 'assistant';
  /** At least one; texts of one message stay apart. */
  readonly texts: string[];
}

/** System text, empty when there is none, and the turns: user first, alternating, assistant last. */
function read(row: JsonObject): { readonly system: string; readonly turns: readonly Turn[] } {
  for (const name of ['tools', 'functions'] as const) {
    const value = row[name];
    if (has(row, name) && !(Array.isArray(value) && value.length === 0))
      fault('unsupported', `Bedrock has no "${name}" in training rows`);
  }
  if (row.parallel_tool_calls === false) fault('unsupported', 'Bedrock has no "parallel_tool_calls" in training rows');
  const messages = messagesOf(row);
  knownMessages(messages);
  const system: string[] = [];
  const turns: Turn[] = [];
  messages.forEach((message, i) => {
    const texts = textsOf(message, i);
    if (isSystem(message)) {
      if (turns.length > 0)
        fault('unsupported', `messages[${i}]: Bedrock takes system text before the first turn only`);
      system.push(texts.join(''));
      return;
    }
    const role = message.role === 'user' ? 'user' : 'assistant';
    if (turns.length === 0 && role === 'assistant')
      fault('alternation', "the first turn must be the user's for Bedrock");
    const last = turns.at(-1);
    if (last?.role !== role) {
      turns.push({ role, texts });
      return;
    }
    const [first = '', ...more] = texts;
    last.texts.push(`${last.texts.pop() ?? ''}\n${first}`, ...more);
  });
  return { system: system.join('\n\n'), turns };
}

function textsOf(message: JsonObject, i: number): string[] {
  if (message.role === 'tool' || has(message, 'tool_calls'))
    fault('unsupported', `messages[${i}]: Bedrock has no tool calls in training rows`);
  if (has(message, 'name')) fault('unsupported', `messages[${i}]: Bedrock has no "name"`);
  if (message.weight === 0) fault('unsupported', `messages[${i}]: Bedrock has no weight 0`);
  const { content } = message;
  if (typeof content === 'string') return [content];
  if (!Array.isArray(content)) fault('unsupported', `messages[${i}]: Bedrock needs a text`);
  return content.map((part) => {
    if (isObject(part) && typeof part.text === 'string' && part.type === 'text') return part.text;
    return fault('unsupported', `messages[${i}]: Bedrock takes images from S3 objects only, not from the row`);
  });
}

export function bedrockConversation(row: JsonObject): JsonObject {
  const { system, turns } = read(row);
  return {
    schemaVersion: 'bedrock-conversation-2024',
    ...(system === '' ? {} : { system: [{ text: system }] }),
    messages: turns.map(({ role, texts }) => ({ role, content: texts.map((text) => ({ text })) })),
  };
}

/** Claude 3 Haiku: contents are texts, not blocks. */
export function claude3(row: JsonObject): JsonObject {
  const { system, turns } = read(row);
  return {
    ...(system === '' ? {} : { system }),
    messages: turns.map(({ role, texts }) => ({ role, content: texts.join('') })),
  };
}

/** Text models: one question, one answer; system text stands before the question. */
export function bedrockText(row: JsonObject): JsonObject {
  if (messagesOf(row).filter((message) => !isSystem(message)).length !== 2)
    fault('unsupported', 'a text model of Bedrock takes one user and one assistant message');
  const { system, turns } = read(row);
  const [question, answer] = turns.map(({ texts }) => texts.join(''));
  return { prompt: system === '' ? question : `${system}\n\n${question}`, completion: answer };
}
