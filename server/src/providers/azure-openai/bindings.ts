/** Inference on both surfaces of Azure OpenAI: the same bodies as OpenAI's, under other paths. */
import { SluiceError } from '../../kernel/errors.ts';
import type { OperationId } from '../../operations/operation.ts';
import { isResponsesOnly, searchTool, withoutChat } from '../openai/responses-only.ts';
import { plainBinding } from '../openai-compatible.ts';
import { operationPath, segment } from '../path.ts';
import type { Binding, Bindings, CallContext, Credentials } from '../provider.ts';
import { textSetting } from '../settings.ts';
import { deploymentFor, surfaceOf } from './settings.ts';

/** What both surfaces offer. The dated one names the deployment in the path of some of it. */
const SERVED = [
  'chat',
  'completions',
  'embeddings',
  'responses',
  'response',
  'response_delete',
  'response_items',
  'images_generate',
  'images_edit',
  'speech',
  'transcribe',
  'translate',
  'models',
  'model',
  'proxy',
] as const satisfies readonly OperationId[];

const BY_DEPLOYMENT: ReadonlySet<OperationId> = new Set([
  'chat',
  'completions',
  'embeddings',
  'images_generate',
  'images_edit',
  'speech',
  'transcribe',
  'translate',
]);

/** The account decides it. */
const VERSION: ReadonlySet<string> = new Set(['api-version']);

/** First version whose chat streams tell usage when asked. */
const STREAM_USAGE = '2024-09-01';

function pathOf(operation: OperationId): Binding['path'] {
  const plain = operationPath(operation);
  return (context) => {
    const { dated, version } = surfaceOf(context.credentials);
    const where = dated && BY_DEPLOYMENT.has(operation) ? `/deployments/${deploymentIn(context)}` : '';
    return `${where}${plain(context)}${version === null ? '' : `?api-version=${version}`}`;
  };
}

function deploymentIn({ model }: CallContext): string {
  if (model !== '' && model !== '.' && model !== '..') return segment(model);
  throw new SluiceError('invalid_request', 'Azure OpenAI needs to know the deployment; name it as the model.', {
    param: 'model',
  });
}

/** Whether a stream of this account tells its usage when asked. */
function tellsUsage({ credentials }: Pick<CallContext, 'credentials'>): boolean {
  const { dated, version } = surfaceOf(credentials);
  return !dated || version === null || version >= STREAM_USAGE;
}

export const azureBindings: Bindings = Object.fromEntries(
  SERVED.map((operation): [OperationId, Binding] => [
    operation,
    {
      ...plainBinding(operation),
      path: pathOf(operation),
      ownParameters: VERSION,
      ...(operation === 'chat' || operation === 'completions' ? { streamUsageOption: tellsUsage } : null),
      ...(operation === 'responses' ? { target: { searchTool } } : null),
    },
  ]),
);

/** Operations of the deployments of models that have no chat completions. */
export const azureResponsesOnly: Bindings = withoutChat(azureBindings);

/** Whether the deployment's model has no chat completions: its model where the account says it, else its own name. */
export function hasResponsesOnly(deployment: string, credentials: Credentials): boolean {
  const model = textSetting(credentials, 'azure_model_name') ?? deploymentFor(credentials, deployment)?.slug;
  return isResponsesOnly(model ?? deployment);
}
