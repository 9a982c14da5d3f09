/** Messages of Claude models over InvokeModel, in their own words. */
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { invalidAnswer, without } from '../../operations/convert/fields.ts';
import { tokenCount } from '../../operations/usage.ts';
import { traits } from '../anthropic/models.ts';
import type { Binding, CallContext } from '../provider.ts';
import { betasOf, guardrailOf, latencyOf } from './converse-options.ts';
import { claudeName, foundationModel, modelBehind, modelPath } from './families.ts';
import { runtimeBase } from './hosts.ts';

const VERSION = 'bedrock-2023-05-31';

/** Said elsewhere: the model in the path, streaming by the operation, the rest in headers. Tiers are Anthropic's own. */
const ELSEWHERE = [
  'model',
  'stream',
  'service_tier',
  'guardrailConfig',
  'guardrail_config',
  'performanceConfig',
  'performance_config',
];

function invokeBody(body: JsonObject, context: CallContext): JsonObject {
  const betas = betasOf(body, context.header);
  const rest = without(body, [...ELSEWHERE, 'anthropic_beta', 'anthropic_version']);
  return {
    anthropic_version: typeof body.anthropic_version === 'string' ? body.anthropic_version : VERSION,
    ...(betas.length === 0 ? null : { anthropic_beta: betas }),
    ...rest,
  };
}

/** The guardrail and the latency a call names, which InvokeModel takes as headers. */
function invokeHeaders(body: JsonObject, context: CallContext): string[] {
  const out: string[] = [];
  const guardrail = guardrailOf(body, context.header);
  if (guardrail !== null) {
    out.push('x-amzn-bedrock-guardrailidentifier', guardrail.id, 'x-amzn-bedrock-guardrailversion', guardrail.version);
    if (guardrail.trace !== null) out.push('x-amzn-bedrock-trace', guardrail.trace.toUpperCase());
  }
  const latency = latencyOf(body, context.header);
  if (latency !== null) out.push('x-amzn-bedrock-performanceconfig-latency', latency);
  return out;
}

export const messages: Binding = {
  shape: 'messages',
  path: ({ model, stream }) => `${modelPath(model)}/${stream ? 'invoke-with-response-stream' : 'invoke'}`,
  base: runtimeBase,
  ownQuery: true,
  framing: 'aws-event-stream',
  request: invokeBody,
  headers: invokeHeaders,
  target: { traits: (model) => traits(claudeName(foundationModel(model))) },
};

/** Body of a call that is only counted: what a real one must have is there, at its least. */
function countedBody(body: JsonObject, context: CallContext): JsonObject {
  const budget = isObject(body.thinking) ? tokenCount(body.thinking.budget_tokens) : null;
  return { max_tokens: (budget ?? 0) + 1, ...invokeBody(body, context) };
}

export function countAnswer(body: JsonObject): JsonObject {
  const count = tokenCount(body.inputTokens);
  if (count === null) throw invalidAnswer('The provider answered without a count.');
  return { input_tokens: count };
}

/** Models are counted under their own id only: inference profiles are refused there. */
export const countPath: Binding['path'] = (context) => `${modelPath(modelBehind(context))}/count-tokens`;

export const countTokens: Binding = {
  shape: 'count_tokens',
  path: countPath,
  base: runtimeBase,
  ownQuery: true,
  request(body, context) {
    const counted = Buffer.from(JSON.stringify(countedBody(body, context)));
    return { input: { invokeModel: { body: counted.toString('base64') } } };
  },
  response: countAnswer,
};
