/**
 * Microsoft Foundry: one resource, three APIs. The address of the account says which one is meant:
 * `…/openai/v1`, `…/anthropic`, or the model inference API, at `…/models` of a resource and at the root of a separate
 * endpoint. Endpoints, serverless or on machines of the customer's, may be given by name and region too. Claude models of a resource are always asked for at its Anthropic API. A custom host stands for the resource.
 */
import { SluiceError } from '../../kernel/errors.ts';
import type { OperationId } from '../../operations/operation.ts';
import { anthropic } from '../anthropic/anthropic.ts';
import { claudePrefill, traits } from '../anthropic/models.ts';
import { azureBindings, hasResponsesOnly } from '../azure-openai/bindings.ts';
import { type Audience, cloudOf } from '../azure-openai/clouds.ts';
import { authorizeAzure, azureSigner } from '../azure-openai/credentials.ts';
import { azureError } from '../azure-openai/errors.ts';
import { placeModel } from '../azure-openai/settings.ts';
import { searchTool, withoutChat } from '../openai/responses-only.ts';
import { plainBinding, requestOf } from '../openai-compatible.ts';
import { operationPath } from '../path.ts';
import type { Binding, Bindings, CallContext, Credentials, Provider } from '../provider.ts';
import { developerAsSystem, type RequestQuirk, rename } from '../quirks.ts';
import { headerValue, textSetting } from '../settings.ts';
import { azureAiAccount } from './account.ts';

type Api = 'models' | 'endpoint' | 'managed' | 'openai' | 'anthropic';

interface Place {
  readonly api: Api;
  /** Of the resource or endpoint, no trailing slash. */
  readonly root: string;
}

const SUFFIXES: readonly (readonly [string, Api])[] = [
  ['/openai/v1', 'openai'],
  ['/anthropic/v1', 'anthropic'],
  ['/anthropic', 'anthropic'],
  ['/models', 'models'],
];
/** The APIs of a resource share its host; any other host is an endpoint of one model. */
const MANAGED_HOST = /\.inference\.ml\.azure\.(?:com|us|cn)$/;
const RESOURCE_HOST = /\.(?:services\.ai|cognitiveservices)\.azure\.(?:com|us|cn)$/;

function placeOf(credentials: Credentials): Place | null {
  const text = textSetting(credentials, 'azure_foundry_url');
  if (text === undefined) return endpointOf(credentials);
  const url = URL.parse(text);
  if (url === null || url.search !== '' || url.hash !== '') {
    throw new SluiceError(
      'malformed_call',
      'azure_foundry_url must be an address without a query, such as https://my-resource.services.ai.azure.com/models.',
      { param: 'azure_foundry_url' },
    );
  }
  const path = url.pathname.replace(/\/+$/, '');
  for (const [suffix, api] of SUFFIXES) {
    if (path.endsWith(suffix)) return { api, root: url.origin + path.slice(0, -suffix.length) };
  }
  if (MANAGED_HOST.test(url.hostname)) return { api: 'managed', root: url.origin + path };
  return { api: RESOURCE_HOST.test(url.hostname) ? 'models' : 'endpoint', root: url.origin + path };
}

/** Names Azure gives out; nothing else may become part of a host name. */
const ENDPOINT = /^[a-zA-Z](?:[a-zA-Z0-9-]{0,62}[a-zA-Z0-9])?$/;
const REGION = /^[a-z][a-z0-9]{1,39}$/;

/**
 * An endpoint by its name: serverless, which speaks the inference API, or managed, whose servers speak OpenAI's. Null when
 * the account names none.
 */
function endpointOf(credentials: Credentials): Place | null {
  const name = textSetting(credentials, 'azure_endpoint_name');
  const type = textSetting(credentials, 'azure_deployment_type') ?? 'serverless';
  if (name === undefined) return null;
  const region = textSetting(credentials, 'azure_region') ?? '';
  const wrong = (param: string, message: string) => new SluiceError('malformed_call', message, { param });
  if (!ENDPOINT.test(name)) {
    throw wrong('azure_endpoint_name', 'azure_endpoint_name must be the name alone: letters, digits and hyphens.');
  }
  if (!REGION.test(region)) {
    throw wrong('azure_region', 'An endpoint needs azure_region, a name such as eastus2; send x-gateway-azure-region.');
  }
  const { suffix } = cloudOf(credentials);
  const place = `https://${name.toLowerCase()}.${region}`;
  if (type === 'serverless') return { api: 'endpoint', root: `${place}.models.ai.${suffix}` };
  if (type === 'managed') return { api: 'managed', root: `${place}.inference.ml.${suffix}/v1` };
  throw wrong('azure_deployment_type', 'azure_deployment_type must be serverless or managed.');
}

const CLAUDE = /^(?:anthropic[./])?claude-/i;
/** Models that take the newer limit and tell the usage of a stream when asked. */
const OPENAI_NAMED = /^(?:gpt-|o\d|chatgpt-)/i;

function apiFor(credentials: Credentials, model: string): Api {
  const api = placeOf(credentials)?.api ?? 'models';
  if (api !== 'models') return api;
  return CLAUDE.test(model) ? 'anthropic' : hasResponsesOnly(model, credentials) ? 'openai' : api;
}

const VERSION = '2024-05-01-preview';
const VERSION_FORM = /^[A-Za-z0-9.-]{1,30}$/;
const OWN: ReadonlySet<string> = new Set(['api-version']);

function inferencePath(operation: OperationId): Binding['path'] {
  const plain = operationPath(operation);
  return (context) => {
    const api = apiFor(context.credentials, context.model);
    if (api === 'managed') return plain(context);
    const version = textSetting(context.credentials, 'azure_api_version') ?? VERSION;
    if (!VERSION_FORM.test(version)) {
      throw new SluiceError('malformed_call', 'azure_api_version must be a version such as 2024-05-01-preview.', {
        param: 'azure_api_version',
      });
    }
    const prefix = api === 'endpoint' ? '' : '/models';
    return `${prefix}${plain(context)}?api-version=${version}`;
  };
}

const toMaxTokens = rename('max_completion_tokens', 'max_tokens');
const olderLimit: RequestQuirk = {
  touches: toMaxTokens.touches,
  apply: (body, context) => (OPENAI_NAMED.test(context.model) ? body : toMaxTokens.apply(body, context)),
};

const INFERENCE: Bindings = {
  chat: {
    ...plainBinding('chat'),
    path: inferencePath('chat'),
    ownParameters: OWN,
    ...requestOf([developerAsSystem, olderLimit]),
    streamUsageOption: ({ model }) => OPENAI_NAMED.test(model),
  },
  embeddings: { ...plainBinding('embeddings'), path: inferencePath('embeddings'), ownParameters: OWN },
};

function below(prefix: string, binding: Binding): Binding {
  return { ...binding, path: (context) => prefix + binding.path(context), ownParameters: OWN };
}

const OPENAI: Bindings = Object.fromEntries(
  (Object.keys(azureBindings) as OperationId[])
    .filter((operation) => operation !== 'proxy')
    .map((operation): [OperationId, Binding] => [
      operation,
      below('/openai/v1', {
        ...plainBinding(operation),
        ...(operation === 'chat' || operation === 'completions' ? { streamUsageOption: true } : null),
        ...(operation === 'responses' ? { target: { searchTool } } : null),
      }),
    ]),
);
const OPENAI_RESPONSES_ONLY = withoutChat(OPENAI);

const ANTHROPIC: Bindings = {
  messages: below('/anthropic/v1', { ...plainBinding('messages'), prefill: claudePrefill, target: { traits } }),
  count_tokens: below('/anthropic/v1', plainBinding('count_tokens')),
};

/** The published scope of the newer APIs; the older one keeps that of the cognitive services. */
function audienceFor({ credentials, model }: CallContext): Audience {
  const api = apiFor(credentials, model);
  if (api === 'managed') return 'ml';
  return api === 'openai' || api === 'anthropic' ? 'ai' : 'cognitiveservices';
}

/** The header by which a managed endpoint sends a call to one of its deployments. */
const DEPLOYMENT = 'azureml-model-deployment';

/** Endpoints take their key as a token, and the deployment beside it. */
function authorizeManaged(headers: string[], context: CallContext): void {
  const own: string[] = [];
  authorizeAzure(own, context);
  headers.push(...(own[0] === 'api-key' ? ['authorization', `Bearer ${own[1] ?? ''}`] : own));
  const deployment = textSetting(context.credentials, 'azure_deployment_name');
  if (deployment === undefined) return;
  if (!headerValue.safeParse(deployment).success) {
    throw new SluiceError('malformed_call', 'azure_deployment_name must be the name of a deployment.', {
      param: 'azure_deployment_name',
    });
  }
  headers.push(DEPLOYMENT, deployment);
}

/** The servers of a managed endpoint know the model by its own name; elsewhere the deployment is asked for in its place. */
const place: NonNullable<Provider['placeModel']> = (credentials, model) =>
  placeOf(credentials)?.api === 'managed'
    ? { credentials, model, priced: textSetting(credentials, 'azure_model_name') ?? null }
    : placeModel(credentials, model);

/** `extra-parameters` of the inference API: what becomes of fields that it does not define itself. */
const EXTRAS: ReadonlySet<string> = new Set(['pass-through', 'drop', 'error']);

function extras({ credentials }: CallContext): string {
  const given = textSetting(credentials, 'azure_extra_params') ?? 'pass-through';
  if (EXTRAS.has(given)) return given;
  throw new SluiceError('malformed_call', 'azure_extra_params must be pass-through, drop or error.', {
    param: 'azure_extra_params',
  });
}

export const azureAi: Provider = {
  id: 'azure-ai',
  title: 'Azure AI Foundry',
  account: azureAiAccount,
  // Accounts that sign in through Entra have no key; one that needs it and has none is refused before any call.
  needsKey: false,
  baseUrl: (credentials) => placeOf(credentials)?.root ?? null,
  hostHint: 'give azure_foundry_url, or azure_endpoint_name with azure_region',
  placeModel: place,
  authorize(headers, context) {
    const api = apiFor(context.credentials, context.model);
    if (api === 'managed') return authorizeManaged(headers, context);
    if (api !== 'anthropic') {
      authorizeAzure(headers, context);
      if (api !== 'openai') headers.push('extra-parameters', extras(context));
      return;
    }
    const own: string[] = [];
    authorizeAzure(own, context);
    anthropic.authorize(headers, { ...context, credentials: { ...context.credentials, key: null } });
    // The Anthropic API takes the key under its own name.
    headers.push(...(own[0] === 'api-key' ? ['x-api-key', own[1] ?? ''] : own));
  },
  sign: (context) => azureSigner(context, audienceFor(context)),
  bindings: INFERENCE,
  bindingsOf(model, credentials) {
    const api = apiFor(credentials, model);
    if (api === 'openai') return hasResponsesOnly(model, credentials) ? OPENAI_RESPONSES_ONLY : OPENAI;
    return api === 'anthropic' ? ANTHROPIC : INFERENCE;
  },
  allBindings: {
    inference: INFERENCE,
    openai: OPENAI,
    openaiResponsesOnly: OPENAI_RESPONSES_ONLY,
    anthropic: ANTHROPIC,
  },
  passThrough: false,
  error: azureError,
};
