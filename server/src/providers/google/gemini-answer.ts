/** A Gemini `GenerateContentResponse` as a chat completion. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { unnamedCall } from '../../operations/convert/chat-choice.ts';
import {
  asArray,
  asObject,
  asString,
  givenNumber,
  givenObject,
  givenObjects,
  givenText,
  invalidAnswer,
} from '../../operations/convert/fields.ts';
import { readAnyUsage } from '../../operations/shapes/any-usage.ts';
import { chatUsage } from '../../operations/shapes/chat/usage.ts';
import { NO_TOKENS } from '../../operations/usage.ts';
import { epochOf, integerOf, textOf } from '../training-calls.ts';

/** Native reasons that hide or cut content; every other one is a plain stop. */
const FILTERED = new Set([
  'SAFETY',
  'RECITATION',
  'BLOCKLIST',
  'PROHIBITED_CONTENT',
  'SPII',
  'LANGUAGE',
  'IMAGE_SAFETY',
  'IMAGE_PROHIBITED_CONTENT',
  'IMAGE_RECITATION',
]);

/** What Google says of a candidate beyond its content, under its own names; shown outside strict shape. */
const BESIDE = ['safetyRatings', 'groundingMetadata', 'citationMetadata', 'urlContextMetadata', 'avgLogprobs'] as const;

export function finishOf(reason: string | null, calls: boolean): string {
  if (reason === 'MAX_TOKENS') return 'length';
  if (reason !== null && FILTERED.has(reason)) return 'content_filter';
  return calls ? 'tool_calls' : 'stop';
}

/** The model wrote a call that is none, and nothing else. */
export const malformedCall = (): Error =>
  invalidAnswer('The model made a function call that cannot be read. Try again.');

export const usageOfAnswer = (usage: JsonObject): JsonObject => chatUsage.write(readAnyUsage(usage) ?? NO_TOKENS);

/** A part with a picture as chat clients know it from other gateways: an `image_url` with a data URL. */
export function imageOf(part: JsonObject): JsonObject | null {
  const inline = givenObject(part, 'inlineData') ?? {};
  const [mimeType, data] = [givenText(inline, 'mimeType'), givenText(inline, 'data')];
  if (mimeType?.startsWith('image/') !== true || data === null) return null;
  return { type: 'image_url', image_url: { url: `data:${mimeType};base64,${data}` } };
}

/**
 * A call as chat writes it, the signature with it, which must come back with the call. `answer` and `at` make an id where
 * the model gave none: no other call of the conversation may have it.
 */
export function callOf(part: JsonObject, answer: string, at: string): JsonObject {
  const call = givenObject(part, 'functionCall') ?? {};
  const signature = asString(part.thoughtSignature);
  return {
    id: givenText(call, 'id') || `call_${answer}_${at}`,
    type: 'function',
    function: {
      name: givenText(call, 'name') || unnamedCall(),
      arguments: JSON.stringify(givenObject(call, 'args') ?? {}),
    },
    ...(signature === null ? null : { extra_content: { google: { thought_signature: signature } } }),
  };
}

const token = (value: JsonObject): JsonObject => ({
  token: asString(value.token) ?? '',
  logprob: typeof value.logProbability === 'number' ? value.logProbability : 0,
  bytes: [...Buffer.from(asString(value.token) ?? '')],
});

/** `logprobsResult` as chat writes it; null when there is none. */
export function logprobsOf(candidate: JsonObject): JsonObject | null {
  const { chosenCandidates, topCandidates } = asObject(candidate.logprobsResult);
  if (!Array.isArray(chosenCandidates)) return null;
  const content = chosenCandidates.filter(isObject).map((chosen, at) => ({
    ...token(chosen),
    top_logprobs: asArray(asObject(asArray(topCandidates)[at]).candidates)
      .filter(isObject)
      .map(token),
  }));
  return { content, refusal: null };
}

export function besideOf(candidate: JsonObject): JsonObject {
  const out: JsonObject = {};
  for (const name of BESIDE) if (candidate[name] !== undefined) out[name] = candidate[name];
  return out;
}

/** Where in `text` a byte offset of its UTF-8 form lies. */
const charAt = (bytes: Buffer, offset: number): number => bytes.subarray(0, offset).toString('utf8').length;

/** Sources of a grounded text as citations. Segments are measured in bytes. */
export function annotationsOf(grounding: JsonObject, text: string): JsonObject[] {
  const { groundingSupports, groundingChunks } = grounding;
  const chunks = asArray(groundingChunks);
  const bytes = Buffer.from(text);
  const out: JsonObject[] = [];
  for (const support of asArray(groundingSupports)) {
    const { segment, groundingChunkIndices } = asObject(support);
    const [from, to] = [integerOf(asObject(segment).startIndex) ?? 0, integerOf(asObject(segment).endIndex)];
    for (const index of asArray(groundingChunkIndices)) {
      const { uri, title } = asObject(asObject(typeof index === 'number' ? chunks[index] : undefined).web);
      if (typeof uri !== 'string' || to === null) continue;
      const place = { start_index: charAt(bytes, from), end_index: charAt(bytes, to) };
      out.push({ type: 'url_citation', url_citation: { url: uri, title: asString(title) ?? '', ...place } });
    }
  }
  return out;
}

/** What a candidate says, checked: what cannot be read is not left out. */
export const partsIn = (candidate: JsonObject): JsonObject[] =>
  givenObjects(givenObject(candidate, 'content') ?? {}, 'parts');

export function isThought({ thought }: JsonObject): boolean {
  if (thought === undefined || thought === null || typeof thought === 'boolean') return thought === true;
  throw invalidAnswer('The provider sent a part that is neither thought nor answer.');
}

const noCandidate = (): Error => invalidAnswer('The provider answered without a candidate.');

interface Known {
  readonly id: string;
  readonly model: string;
  /** Seconds since the epoch. */
  readonly created: number;
  /** False shows thoughts, native reasons and the members beside the content. Default true. */
  readonly strict?: boolean;
}

function choice(candidate: JsonObject, at: number, id: string, strict: boolean): JsonObject {
  let [text, thought, signature]: [string, string, string | null] = ['', '', null];
  const calls: JsonObject[] = [];
  const images: JsonObject[] = [];
  for (const part of partsIn(candidate)) {
    const image = imageOf(part);
    if (givenObject(part, 'functionCall') !== null) calls.push(callOf(part, id, `${at}_${calls.length}`));
    else if (image !== null) images.push(image);
    else if (isThought(part)) thought += givenText(part, 'text') ?? '';
    else {
      text += givenText(part, 'text') ?? '';
      signature = asString(part.thoughtSignature) ?? signature;
    }
  }
  const native = givenText(candidate, 'finishReason');
  if (native === null && candidate.content === undefined) throw noCandidate();
  if (native === 'MALFORMED_FUNCTION_CALL' && text === '' && calls.length === 0) throw malformedCall();
  const notes = annotationsOf(asObject(candidate.groundingMetadata), text);
  const extra: JsonObject = {};
  if (!strict && thought !== '') extra.reasoning_content = thought;
  if (!strict && signature !== null) extra.extra_content = { google: { thought_signature: signature } };
  return {
    index: givenNumber(candidate, 'index') ?? at,
    message: {
      role: 'assistant',
      content: text === '' && calls.length > 0 ? null : text,
      refusal: null,
      ...(calls.length === 0 ? null : { tool_calls: calls }),
      ...(images.length === 0 ? null : { images }),
      ...(notes.length === 0 ? null : { annotations: notes }),
      ...extra,
    },
    logprobs: logprobsOf(candidate),
    finish_reason: finishOf(native, calls.length > 0),
    ...(strict ? null : { ...(native === null ? null : { native_finish_reason: native }), ...besideOf(candidate) }),
  };
}

/** Why a prompt was not answered at all; null when it was. */
export function blockReason(answer: JsonObject): string | null {
  return givenText(givenObject(answer, 'promptFeedback') ?? {}, 'blockReason');
}

/** The candidates of an answer: one that is empty and filtered where the prompt itself was blocked. */
export function candidatesOf(answer: JsonObject): JsonObject[] {
  const candidates = givenObjects(answer, 'candidates');
  if (candidates.length > 0) return candidates;
  return blockReason(answer) === null ? [] : [{ index: 0, finishReason: 'SAFETY' }];
}

/** `id` and `created` are used where the answer has none. Throws `upstream_invalid` for one without content. */
export function geminiToChat(answer: JsonObject, known: Known): JsonObject {
  const strict = known.strict !== false;
  const id = textOf(answer.responseId) ?? known.id;
  const candidates = candidatesOf(answer);
  if (candidates.length === 0) throw noCandidate();
  const feedback: JsonValue | undefined = strict ? undefined : answer.promptFeedback;
  return {
    id,
    object: 'chat.completion',
    created: epochOf(answer.createTime) ?? known.created,
    model: textOf(answer.modelVersion) ?? known.model,
    choices: candidates.map((one, at) => choice(one, at, id, strict)),
    ...(isObject(answer.usageMetadata) ? { usage: usageOfAnswer(answer.usageMetadata) } : null),
    ...(feedback === undefined ? null : { promptFeedback: feedback }),
  };
}
