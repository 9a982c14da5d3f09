/** What a chat completion, or a piece of one, says. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { argumentsIn, callExtra } from './chat-calls.ts';
import { asObject, givenNumber, givenObject, givenObjects, givenText, invalidAnswer } from './fields.ts';

/** Content of a message or delta: a text, or parts of which each is one. To show a part as the whole would be wrong. */
export function contentText(message: JsonObject): string {
  if (!Array.isArray(message.content)) return givenText(message, 'content') ?? '';
  return givenObjects(message, 'content')
    .map((part) => {
      const text = givenText(part, 'text');
      if (text === null) throw invalidAnswer('The provider sent content that is no text.');
      return text;
    })
    .join('');
}

export interface AnsweredCall {
  readonly id: string;
  readonly name: string;
  /** JSON text, as the model wrote it. */
  readonly text: string;
  readonly extra: JsonObject | null;
}

/** A call must say what is called; an id can be made where the next turn only repeats it. */
export function unnamedCall(): never {
  throw invalidAnswer('The model made a call without a function name.');
}

function callsIn(message: JsonObject): AnsweredCall[] {
  const calls = givenObjects(message, 'tool_calls').map((call, at) => {
    const called = givenObject(call, 'function') ?? {};
    return {
      id: givenText(call, 'id') || `call_${at}`,
      name: givenText(called, 'name') || unnamedCall(),
      text: argumentsIn(called),
      extra: callExtra(call).extra_content ?? null,
    };
  });
  const legacy = givenObject(message, 'function_call');
  if (legacy === null) return calls;
  const name = givenText(legacy, 'name') || unnamedCall();
  return [...calls, { id: 'call_legacy', name, text: argumentsIn(legacy), extra: null }];
}

export interface ChatChoice {
  readonly message: JsonObject;
  readonly text: string;
  readonly refusal: string;
  readonly calls: readonly AnsweredCall[];
  readonly images: readonly JsonObject[];
  readonly finish: string | null;
  /** Tokens of the text with their probabilities, where they were asked for. */
  readonly tokens: JsonObject[];
}

/** The tokens of a choice, in the form that chat and Responses share. */
export const tokensIn = (choice: JsonObject): JsonObject[] => givenObjects(asObject(choice.logprobs ?? {}), 'content');

/** The first choice of a chat completion, checked: 502 for one that cannot be read whole. */
export function firstChoice(body: JsonObject): ChatChoice {
  const [choice] = givenObjects(body, 'choices');
  const message = choice === undefined ? null : givenObject(choice, 'message');
  if (choice === undefined || message === null) throw invalidAnswer('The provider answered without a choice.');
  return {
    message,
    text: contentText(message),
    refusal: givenText(message, 'refusal') ?? '',
    calls: callsIn(message),
    images: givenObjects(message, 'images'),
    finish: givenText(choice, 'finish_reason'),
    tokens: tokensIn(choice),
  };
}

/** The pieces of the first choice in a chunk of a stream. */
export function firstDeltas(chunk: JsonObject): { readonly choice: JsonObject; readonly delta: JsonObject }[] {
  return givenObjects(chunk, 'choices')
    .filter((choice) => (givenNumber(choice, 'index') ?? 0) === 0)
    .map((choice) => ({ choice, delta: givenObject(choice, 'delta') ?? {} }));
}

/** The pieces of calls in a delta; the one of the days before `tool_calls` among them. */
export function callPieces(delta: JsonObject): JsonObject[] {
  const legacy = givenObject(delta, 'function_call');
  const pieces = givenObjects(delta, 'tool_calls');
  return legacy === null ? pieces : [...pieces, { index: 0, id: 'call_legacy', function: legacy }];
}

/** Web sources of a chat answer as annotations of Responses, which have no object inside. */
export function flatAnnotations(holder: JsonObject): JsonObject[] {
  const list: JsonValue = holder.annotations ?? [];
  return (Array.isArray(list) ? list : []).flatMap((note) => {
    const cited = isObject(note) && note.type === 'url_citation' ? note.url_citation : null;
    return isObject(cited) ? [{ type: 'url_citation', ...cited }] : [];
  });
}

/** The data of a picture the model painted, base64; 502 where it is not in the answer itself. */
export function paintedData(image: JsonObject): string {
  const url = givenText(givenObject(image, 'image_url') ?? {}, 'url') ?? '';
  const comma = url.indexOf(';base64,');
  if (!url.startsWith('data:') || comma < 0) throw invalidAnswer('The model painted a picture that cannot be shown.');
  return url.slice(comma + 8);
}
