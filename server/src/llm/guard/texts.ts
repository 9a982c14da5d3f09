/** What requests and answers say: every text of them with its place, and how changed texts are put back. */
import type { Replacement } from '../../guardrails/check.ts';
import { isObject } from '../../kernel/json.ts';
import type { Operation } from '../../operations/operation.ts';
import { fileText } from './texts/encoded.ts';
import { FormBody, formFields, formTexts, replacedForm } from './texts/form.ts';
import { isToolCall } from './texts/names.ts';
import { byPath, changesOf, ReplacementError, replaced } from './texts/replace.ts';
import {
  type Frame,
  hasTwins,
  type Place,
  rootFrame,
  type SaidPart,
  type Unreadable,
  type Walk,
  walk,
} from './texts/walk.ts';

export { FormBody, formFields, hasTwins, ReplacementError, type SaidPart, type Unreadable };

/** Which messages of a request are looked at: all, those since the last answer, or the last. */
export type Which = 'all' | 'new' | 'last';

/**
 * Every text of a request, in order: messages, tool results, arguments of tool calls, tool definitions, names, files that
 * are texts. `body`: parsed JSON, a `FormBody`, a text, or a Buffer of anything else; undefined: no body. Where `which` is
 * not `all`, of the conversation's messages only those; `last` leaves out all else of a conversation too.
 */
export function requestTexts(operation: Operation, body: unknown, which: Which): readonly SaidPart[] {
  if (body instanceof FormBody) return formTexts(body, operation.wire.isOpen);
  return texts(operation, body, null, {
    side: 'request',
    from: which === 'all' ? null : beginning(operation, body, which),
  });
}

/** What an answer says; numbers say nothing. `body` as for requests. */
export function answerTexts(operation: Operation, body: unknown): readonly SaidPart[] {
  if (!operation.wire.answersSay) return [];
  return texts(operation, body, 'assistant', { side: 'answer', from: null });
}

/**
 * A copy of the body, of the kind that was given, with texts replaced; what is unchanged is shared. What repeats a changed
 * text token by token (`logprobs`) is emptied. Throws `ReplacementError` for a path that is no text's.
 */
export function applyReplacements(operation: Operation, body: unknown, replacements: readonly Replacement[]): unknown {
  const wanted = byPath(replacements);
  if (wanted.size === 0) return body;
  if (body instanceof FormBody) return replacedForm(body, wanted);
  const root = Buffer.isBuffer(body) ? (fileText(body, false) ?? '') : body;
  const parts: SaidPart[] = [];
  const places: Place[] = [];
  const frame = rootOf(operation, root, null);
  walk(frame, { side: 'any', deep: true, from: null, parts, places } satisfies Walk);
  const changes = changesOf(parts, places, wanted);
  if (changes.length === 0) return body;
  const next = replaced(frame, changes);
  return Buffer.isBuffer(body) ? Buffer.from(String(next)) : next;
}

const rootOf = (operation: Operation, body: unknown, role: SaidPart['role']): Frame =>
  rootFrame(body, isObject(body) || Array.isArray(body) ? '' : 'body', role, operation.wire.isOpen ? 'raw' : 'wire');

function texts(operation: Operation, body: unknown, role: SaidPart['role'], rest: Pick<Walk, 'side' | 'from'>) {
  const parts: SaidPart[] = [];
  const text = Buffer.isBuffer(body) ? fileText(body, false) : body;
  if (text !== null) walk(rootOf(operation, text, role), { ...rest, deep: true, parts, places: null });
  else if (Buffer.isBuffer(body) && !operation.wire.holdsMedia) {
    parts.push({ path: 'body', role, text: '', unreadable: 'file' });
  }
  return parts;
}

interface Talk {
  readonly list: string;
  readonly messages: readonly unknown[];
}

/** The messages of a conversation; null where it is not plain which they are, so that nothing is left out. */
function conversation({ wire }: Operation, body: unknown): Talk | null {
  if (!isObject(body)) return null;
  let found: Talk | null = null;
  for (const list of wire.conversations) {
    const messages = body[list];
    if (messages === undefined) continue;
    if (found !== null || !Array.isArray(messages) || !messages.some(isMessage)) return null;
    found = { list, messages };
  }
  return found;
}

const isMessage = (value: unknown): boolean =>
  isObject(value) && (typeof value.role === 'string' || typeof value.type === 'string');

function beginning(operation: Operation, body: unknown, which: 'new' | 'last'): Walk['from'] {
  const talk = conversation(operation, body);
  if (talk === null) return null;
  const { list, messages } = talk;
  if (which === 'last') return { list, index: messages.length - 1, only: true };
  let index = messages.length;
  // What an answer is made to begin with is not an answer yet.
  while (index > 0 && isAnswer(messages[index - 1])) index -= 1;
  while (index > 0 && !isAnswer(messages[index - 1])) index -= 1;
  return { list, index, only: false };
}

function isAnswer(message: unknown): boolean {
  if (!isObject(message)) return false;
  const { role, type } = message;
  if (role !== undefined) return role === 'assistant' || role === 'model';
  return typeof type === 'string' && (isToolCall(type) || type === 'reasoning');
}

/** What is said last in a request: the text of its last message, without names and metadata, joined by line breaks. */
export function latestRequestText(operation: Operation, body: unknown): string {
  if (body instanceof FormBody || !isObject(body) || operation.wire.isOpen) {
    const talk = operation.wire.isOpen ? conversation(operation, body) : null;
    if (talk !== null) return said(talk.messages.at(-1), true);
    return joined(requestTexts(operation, body, 'last').filter(({ path }) => !path.includes('#')));
  }
  const talk = conversation(operation, body);
  if (talk !== null) return said(talk.messages.at(-1), true);
  return said([body.prompt, body.input, body.query, body.documents], true);
}

/**
 * What an answer says, without reasoning, names and metadata, joined by line breaks; the arguments of its tool calls where
 * it says nothing else.
 */
export function latestAnswerText(operation: Operation, body: unknown): string {
  if (!isObject(body) || operation.wire.isOpen) return joined(answerTexts(operation, body));
  const root = rootsOf(body);
  if (root === undefined) return joined(answerTexts(operation, body));
  return said(root, false) || said(root, true);
}

/** Where the three dialects of conversations, and texts, have what they say. */
const rootsOf = (body: Record<string, unknown>): unknown =>
  body.choices ?? body.output ?? (Array.isArray(body.content) ? body.content : undefined) ?? body.text;

export function answerCallsTools(_operation: Operation, body: unknown): boolean {
  if (!isObject(body)) return false;
  if (Array.isArray(body.choices)) {
    return body.choices.some((choice) => {
      const message = isObject(choice) ? choice.message : undefined;
      if (!isObject(message)) return false;
      const { tool_calls: calls, function_call: call } = message;
      return (Array.isArray(calls) && calls.length > 0) || isObject(call);
    });
  }
  const blocks = Array.isArray(body.content) ? body.content : Array.isArray(body.output) ? body.output : [];
  return blocks.some((block) => isObject(block) && typeof block.type === 'string' && isToolCall(block.type));
}

const joined = (parts: readonly SaidPart[]): string =>
  parts
    .filter(({ text }) => text !== '')
    .map(({ text }) => text)
    .join('\n');

const TEXTS = ['message', 'content', 'text', 'refusal', 'transcript', 'output'] as const;
const CALLS = ['tool_calls', 'function_call', 'function', 'custom', 'arguments', 'input'] as const;
const REASONING = new Set<unknown>(['reasoning', 'thinking', 'redacted_thinking']);

function said(value: unknown, calls: boolean): string {
  const out: string[] = [];
  const stack: { value: unknown; leaf: boolean }[] = [{ value, leaf: false }];
  for (;;) {
    const next = stack.pop();
    if (next === undefined) return out.join('\n');
    const { value: here } = next;
    if (typeof here === 'string') {
      if (here !== '') out.push(here);
    } else if (next.leaf) out.push(JSON.stringify(here));
    else if (Array.isArray(here)) {
      for (let i = here.length - 1; i >= 0; i--) stack.push({ value: here[i], leaf: false });
    } else if (isObject(here) && !REASONING.has(here.type)) {
      if (calls) {
        for (const name of CALLS.toReversed()) {
          const inner = here[name];
          if (inner !== undefined && inner !== null) {
            stack.push({ value: inner, leaf: isObject(inner) && (name === 'input' || name === 'arguments') });
          }
        }
      }
      const call = typeof here.type === 'string' && isToolCall(here.type);
      for (const name of call ? [] : TEXTS.toReversed()) {
        const inner = here[name];
        if (typeof inner === 'object' || typeof inner === 'string') stack.push({ value: inner, leaf: false });
      }
    }
  }
}
