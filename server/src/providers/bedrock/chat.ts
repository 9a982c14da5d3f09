/** Chat of every model over Converse and ConverseStream. */
import type { JsonObject } from '../../kernel/json.ts';
import { readAnyUsage } from '../../operations/shapes/any-usage.ts';
import type { Binding, CallContext } from '../provider.ts';
import { chatCompletion } from './converse-answer.ts';
import { converseRequest } from './converse-request.ts';
import { ConverseToChatStream } from './converse-stream.ts';
import { modelBehind, modelPath } from './families.ts';
import { runtimeBase } from './hosts.ts';

/** Bedrock gives an answer no id. */
const answerId = ({ requestId }: CallContext): string => `chatcmpl-${requestId ?? 'bedrock'}`;
const created = (context: CallContext): number => Math.floor(context.now() / 1000);

export const chat: Binding = {
  shape: 'chat',
  path: ({ model, stream }) => `${modelPath(model)}/${stream ? 'converse-stream' : 'converse'}`,
  base: runtimeBase,
  ownQuery: true,
  framing: 'aws-event-stream',
  request: (body, context) => converseRequest(body, modelBehind(context), context.header),
  response: (body, context) =>
    chatCompletion(body, {
      id: answerId(context),
      model: context.model,
      created: created(context),
      strict: context.strict,
    }),
  stream: (context) =>
    new ConverseToChatStream({
      id: answerId(context),
      model: context.model,
      created: created(context),
      strict: context.strict,
      includeUsage: context.includeUsage ?? wantsUsage(context.body),
    }),
  usage: readAnyUsage,
  usagePath: ['metadata', 'usage'],
  target: {
    extensions: new Set(['top_k', 'thinking', 'cache_control', 'service_tier']),
    reasoning: { field: 'reasoning_content' },
  },
};

function wantsUsage(body: JsonObject | undefined): boolean {
  const options = body?.stream_options;
  return (
    typeof options === 'object' && options !== null && 'include_usage' in options && options.include_usage === true
  );
}
