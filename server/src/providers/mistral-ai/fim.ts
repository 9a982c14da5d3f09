/** Completions by `/fim/completions`, which fill in what stands between `prompt` and `suffix` and answer as chat does. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asString, refuse } from '../../operations/convert/fields.ts';
import { requestOf } from '../openai-compatible.ts';
import type { Binding } from '../provider.ts';
import {
  ChunkTransform,
  drop,
  finishReasons,
  modelFailed,
  type RequestQuirk,
  refuseFields,
  rename,
} from '../quirks.ts';

const onePrompt: RequestQuirk = {
  touches: ['"prompt"'],
  apply: (body) => (Array.isArray(body.prompt) ? refuse('prompt', 'it must be one text there.') : body),
};

const ends = finishReasons({ model_length: 'length', error: modelFailed });

function textOf(holder: JsonValue | undefined): string {
  return isObject(holder) ? (asString(holder.content) ?? '') : '';
}

/** A chat answer or chunk as one of completions. */
function asText(body: JsonObject): JsonObject {
  const { choices, ...rest } = ends.apply(body);
  if (!Array.isArray(choices)) return body;
  return {
    ...rest,
    object: 'text_completion',
    choices: choices.map((choice) => {
      if (!isObject(choice)) return choice;
      const { message, delta, ...left } = choice;
      return { ...left, text: textOf(message ?? delta), logprobs: null };
    }),
  };
}

export const fim: Partial<Binding> = {
  path: () => '/fim/completions',
  ...requestOf([
    onePrompt,
    refuseFields('n', 'best_of', 'echo', 'logprobs', 'logit_bias', 'frequency_penalty', 'presence_penalty'),
    // Usage comes with the last chunk unasked.
    drop('stream_options', 'user'),
    rename('seed', 'random_seed'),
  ]),
  response: asText,
  stream: () => new ChunkTransform(asText),
};
