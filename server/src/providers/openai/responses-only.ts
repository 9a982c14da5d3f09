import type { Bindings } from '../provider.ts';

/**
 * Models that OpenAI, and Azure after it, serve by the Responses API and not by chat completions: the pro and codex models,
 * deep research, computer use, and those for single trades. Told by name: no list of models says which API answers for one.
 */
const RESPONSES_ONLY =
  /^(?:o\d+-(?:pro|(?:mini-)?deep-research)|gpt-(?:\d+(?:\.\d+)?-(?:pro|codex|cyber|rosalind)|(?:daybreak|rosalind)-)|codex-mini|computer-use-preview)/;

/** Whether `model` refuses chat completions, so that callers of chat and Messages are served by its Responses API. */
export function isResponsesOnly(model: string): boolean {
  return RESPONSES_ONLY.test(model);
}

/** The operations of such a model. Bindings are shared with `all`: they are the same calls. */
export function withoutChat(all: Bindings): Bindings {
  const { chat: _, ...rest } = all;
  return rest;
}

/** Deep research knows the older of the tools that search. */
export const searchTool = (model: string): string =>
  model.includes('deep-research') ? 'web_search_preview' : 'web_search';
