/** What the name of a model tells about it: ids, inference profiles of a region and ARNs of both. */

import { encodeStrictly } from '../../kernel/aws-url.ts';
import { claudePrefill } from '../anthropic/models.ts';
import type { CallContext, Credentials, Prefill } from '../provider.ts';
import { textSetting } from '../settings.ts';

/** Places an inference profile stands for; what follows is the id of a model. */
const PLACE = /^(?:us-gov|us|eu|apac|ap|jp|au|ca|sa|me|af|il|mx|global)\.(?=[a-z0-9-]+\.)/;

/**
 * The id of the foundation model: `us.anthropic.claude-…` and the ARNs of models and system profiles lose what is in
 * front. Other ARNs (application profiles, provisioned and imported models) name none and stay as they are.
 */
export function foundationModel(model: string): string {
  const arn = /^arn:[^/]*:(?:foundation-model|inference-profile)\/(.+)$/.exec(model);
  return (arn?.[1] ?? model).replace(PLACE, '');
}

/** Whether a name is that of an inference profile, system-defined or the account's own. */
export function isProfile(model: string): boolean {
  return PLACE.test(model) || /^arn:[^/]*:(?:application-)?inference-profile\//.test(model);
}

/**
 * The foundation model behind a call. An application profile hides it; callers may tell it with
 * `x-gateway-aws-bedrock-model`.
 */
export function modelBehind({ model, credentials }: Pick<CallContext, 'model' | 'credentials'>): string {
  const found = foundationModel(model);
  return found.startsWith('arn:') ? foundationModel(textSetting(credentials, 'aws_bedrock_model') ?? found) : found;
}

export const isClaude = (model: string): boolean => foundationModel(model).startsWith('anthropic.');

/** The first generation of Nova continues an answer that was begun, as older Claude models do. */
export function conversePrefill(model: string, credentials: Credentials): Prefill | null {
  const name = modelBehind({ model, credentials });
  if (isClaude(name)) return claudePrefill(claudeName(name));
  return /^amazon\.nova-(?:micro|lite|pro|premier)-v1/.test(name) ? {} : null;
}

/** `anthropic.claude-opus-4-1-20250805-v1:0` is `claude-opus-4-1-20250805-v1:0`. */
export const claudeName = (model: string): string => model.slice('anthropic.'.length);

/** One segment of a path: an id, or an ARN with all its colons and slashes. */
export const modelPath = (model: string): string => `/model/${encodeStrictly(model)}`;
