import { invalid } from '../../operations/convert/fields.ts';

/** What is known of a Gemini model by its name alone. */
export interface GeminiModel {
  /** Without the prefixes callers put in front. */
  readonly name: string;
  /** How much it thinks is set by a level (generation 3 and later), a number of tokens (2.5), or not at all. */
  readonly thinking: 'level' | 'budget' | null;
  /** Calls have ids, and results must repeat them. */
  readonly callIds: boolean;
  /** Calls of the current turn must come back with the signature they were given. */
  readonly signsCalls: boolean;
}

const PREFIX = /^(?:publishers\/google\/models\/|models\/|google\/)/;
/** It becomes part of a path. */
const NAME = /^(?:tunedModels\/)?[A-Za-z0-9][A-Za-z0-9._-]{0,127}(?:@[A-Za-z0-9._-]{1,64})?$/;

/** `google/gemini-2.5-pro`, `models/gemini-2.5-pro` and the like as the name alone. */
export const bareName = (model: string): string => model.replace(PREFIX, '');

/** 400 for what cannot be a model's name. */
export function checkedName(model: string): string {
  const name = bareName(model);
  if (!NAME.test(name)) invalid('model', 'The model must be named as Google names it, for example "gemini-2.5-flash".');
  return name;
}

export function geminiModel(model: string): GeminiModel {
  const name = bareName(model);
  // Names without a number (`gemini-flash-latest`) stand for the newest.
  const later = /gemini-(?:[3-9]|[1-9]\d)(?![\d])/.test(name) || /^gemini-(?:pro|flash|flash-lite)-latest$/.test(name);
  return {
    name,
    thinking: later ? 'level' : name.includes('gemini-2.5') ? 'budget' : null,
    callIds: later,
    signsCalls: later,
  };
}
