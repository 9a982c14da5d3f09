/** Bindings that the Gemini developer API and Vertex AI have in common: only where they are reached differs. */
import { isObject, type JsonObject } from '../../kernel/json.ts';
import type { ConvertTarget } from '../../operations/convert/conversion.ts';
import { asArray, invalidAnswer } from '../../operations/convert/fields.ts';
import { conversion } from '../../operations/convert/index.ts';
import { readAnyUsage } from '../../operations/shapes/any-usage.ts';
import type { Binding, CallContext } from '../provider.ts';
import { integerOf, textOf } from '../training-calls.ts';
import { geminiToChat } from './gemini-answer.ts';
import { editRequest, imagesAnswer, imagesRequest, isImagen } from './gemini-images.ts';
import { bareName } from './gemini-model.ts';
import { chatToGemini } from './gemini-request.ts';
import { GeminiToChatStream } from './gemini-stream.ts';

export interface Surface {
  readonly vertex: boolean;
  /** Path of what a model is asked to do: `generateContent`, `predict` … */
  path(context: CallContext, method: string): string;
}

/** Callers of Messages and Responses are served over this. */
const TARGET: ConvertTarget = {
  extensions: new Set(['thinking', 'top_k', 'extra_content']),
  reasoning: { field: 'reasoning_content' },
};

const seconds = (context: CallContext): number => Math.floor(context.now() / 1000);

export function chatBinding({ vertex, path }: Surface): Binding {
  return {
    shape: 'chat',
    path: (context) => path(context, context.stream ? 'streamGenerateContent?alt=sse' : 'generateContent'),
    ownQuery: true,
    modelKey: 'modelVersion',
    request: (body, context) => chatToGemini(body, context.model, { vertex, thoughts: !context.strict }),
    response: (body, context) =>
      geminiToChat(body, {
        id: `gemini_${context.now()}`,
        model: bareName(context.model),
        created: seconds(context),
        strict: context.strict,
      }),
    stream: (context) => new GeminiToChatStream(context),
    // Read from what the provider says, and from the chat answers made of it.
    usage: readAnyUsage,
    target: TARGET,
  };
}

const fromMessages = conversion('messages', 'chat', TARGET);

/** Counting for callers of Messages: what would be sent is counted, and not sent. */
export function countBinding({ vertex, path }: Surface): Binding {
  return {
    shape: 'count_tokens',
    path: (context) => path(context, 'countTokens'),
    ownQuery: true,
    request(body, context) {
      // Counting needs no bound of the answer, a request does.
      const chat = fromMessages?.request({ ...body, max_tokens: 1 }, context) ?? body;
      const { generationConfig: _, ...counted } = chatToGemini(chat, context.model, { vertex });
      return vertex ? counted : { generateContentRequest: { model: `models/${bareName(context.model)}`, ...counted } };
    },
    response(body) {
      const tokens = integerOf(body.totalTokens);
      if (tokens === null) throw invalidAnswer('The provider answered without a count of tokens.');
      return { input_tokens: tokens };
    },
  };
}

export function imagesBinding({ path }: Surface): Binding {
  return {
    shape: 'images',
    path: (context) => path(context, isImagen(context.model) ? 'predict' : 'generateContent'),
    ownQuery: true,
    modelKey: 'modelVersion',
    request: (body, context) => imagesRequest(body, context.model),
    response: (body, context) => imagesAnswer(body, context.model, seconds(context)),
    usage: readAnyUsage,
  };
}

/** Edits: callers send a form, Google takes JSON. */
export function editsBinding(surface: Surface): Binding {
  const { request: _, ...rest } = imagesBinding(surface);
  return { ...rest, form: (parts, context) => editRequest(parts, context.model, surface.vertex) };
}

/** A model as Google lists it, its own fields kept. */
export function modelEntry(model: JsonObject): JsonObject {
  return { ...model, id: bareName(textOf(model.name) ?? ''), object: 'model', created: 0, owned_by: 'google' };
}

export function modelList(body: JsonObject): JsonObject {
  return { object: 'list', data: asArray(body.models).filter(isObject).map(modelEntry) };
}
