import { isObject, type JsonObject } from '../kernel/json.ts';
import { chatUsage } from '../operations/shapes/chat/usage.ts';
import { type TokenUsage, tokenCount } from '../operations/usage.ts';
import { compatible } from './openai-compatible.ts';
import { drop, mapChoices, refuseFields } from './quirks.ts';

/** Reasoning tokens are at the top of the usage object. */
function usage(raw: JsonObject): TokenUsage | null {
  const read = chatUsage.read(raw);
  if (read === null) return null;
  const reasoning = Math.max(read.reasoning, tokenCount(raw.reasoning_tokens) ?? 0);
  return { ...read, reasoning, output: Math.max(read.output, reasoning) };
}

export const perplexity = compatible({
  id: 'perplexity',
  title: 'Perplexity',
  // Chat has no version path here.
  baseUrl: 'https://api.perplexity.ai',
  statelessPaths: ['POST search'],
  serves: ['embeddings'],
  chat: {
    request: [
      refuseFields(
        'tools',
        'tool_choice',
        'parallel_tool_calls',
        'n',
        'seed',
        'stop',
        'logit_bias',
        'logprobs',
        'top_logprobs',
      ),
      // Usage comes with every chunk unasked.
      drop('stream_options'),
    ],
    answer: [
      // Older streams repeat the whole message so far beside each delta.
      mapChoices(['"message"'], (choice) => {
        if (!isObject(choice.delta) || choice.message === undefined) return choice;
        const { message: _message, ...rest } = choice;
        return rest;
      }),
    ],
    streamUsageOption: false,
    usage,
    extensions: ['top_k'],
  },
});
