/**
 * Microsoft Foundry (providers §14): one resource, three APIs. The address of the account says which one is meant:
 * `…/openai/v1`, `…/anthropic`, or the model inference API, at `…/models` of a resource and at the root of an endpoint of
 * its own. Claude models of a resource are always asked for at its Anthropic API. A custom host stands for the resource.
 */
import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import type { OperationId } from '../../operations/operation.ts';
import { anthropic } from '../anthropic/anthropic.ts';
import { claudePrefill, traits } from '../anthropic/models.ts';
import { azureBindings } from '../azure-openai/bindings.ts';
import { type Audience, authorizeAzure, azureSigner } from '../azure-openai/credentials.ts';
import { azureError } from '../azure-openai/errors.ts';
import { placeModel } from '../azure-openai/settings.ts';
import { plainBinding, requestOf } from '../openai-compatible.ts';
import { operationPath } from '../path.ts';
import type { Binding, Bindings, CallContext, Credentials, Provider } from '../provider.ts';
import { developerAsSystem, type RequestQuirk, rename } from '../quirks.ts';
import { headerValue, settingsOf, textSetting } from '../settings.ts';

type Api = 'models' | 'endpoint' | 'openai' | 'anthropic';

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
const RESOURCE_HOST = /\.(?:services\.ai|cognitiveservices)\.azure\.(?:com|us|cn)$/;

function placeOf(credentials: Credentials): Place | null {
  const text = textSetting(credentials, 'azure_foundry_url');
  if (text === undefined) return null;
  const url = URL.parse(text);
  if (url === null || url.search !== '' || url.hash !== '') {
    throw new SluiceError(
      'bad_call',
      'azure_foundry_url must be an address without a query, such as https://my-resource.services.ai.azure.com/models.',
      { param: 'azure_foundry_url' },
    );
  }
  const path = url.pathname.replace(/\/+$/, '');
  for (const [suffix, api] of SUFFIXES) {
    if (path.endsWith(suffix)) return { api, root: url.origin + path.slice(0, -suffix.length) };
  }
  return { api: RESOURCE_HOST.test(url.hostname) ? 'models' : 'endpoint', root: url.origin + path };
}

const CLAUDE = /^(?:anthropic[./])?claude-/i;
/** Models that take the newer limit and tell the usage of a stream when asked. */
const OPENAI_NAMED = /^(?:gpt-|o\d|chatgpt-)/i;

function apiFor(credentials: Credentials, model: string): Api {
  const api = placeOf(credentials)?.api ?? 'models';
  return api === 'models' && CLAUDE.test(model) ? 'anthropic' : api;
}

const VERSION = '2024-05-01-preview';
const VERSION_FORM = /^[A-Za-z0-9.-]{1,30}$/;
const OWN: ReadonlySet<string> = new Set(['api-version']);

function inferencePath(operation: OperationId): Binding['path'] {
  const plain = operationPath(operation);
  return (context) => {
    const version = textSetting(context.credentials, 'azure_api_version') ?? VERSION;
    if (!VERSION_FORM.test(version)) {
      throw new SluiceError('bad_call', 'azure_api_version must be a version such as 2024-05-01-preview.', {
        param: 'azure_api_version',
      });
    }
    const prefix = apiFor(context.credentials, context.model) === 'endpoint' ? '' : '/models';
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
      }),
    ]),
);

const ANTHROPIC: Bindings = {
  messages: below('/anthropic/v1', { ...plainBinding('messages'), prefill: claudePrefill, target: { traits } }),
  count_tokens: below('/anthropic/v1', plainBinding('count_tokens')),
};

/** The published scope of the newer APIs; the older one keeps that of the cognitive services. */
function audienceOf({ credentials, model }: CallContext): Audience {
  const api = apiFor(credentials, model);
  return api === 'openai' || api === 'anthropic' ? 'https://ai.azure.com' : 'https://cognitiveservices.azure.com';
}

/** `extra-parameters` of the inference API: what becomes of fields that it does not define itself. */
const EXTRAS: ReadonlySet<string> = new Set(['pass-through', 'drop', 'error']);

function extras({ credentials }: CallContext): string {
  const given = textSetting(credentials, 'azure_extra_params') ?? 'pass-through';
  if (EXTRAS.has(given)) return given;
  throw new SluiceError('bad_call', 'azure_extra_params must be pass-through, drop or error.', {
    param: 'azure_extra_params',
  });
}

export const azureAi: Provider = {
  id: 'azure-ai',
  title: 'Azure AI Foundry',
  settings: settingsOf({
    azure_foundry_url: z.string().min(1).max(2048).optional(),
    azure_api_version: z.string().regex(VERSION_FORM).optional(),
    azure_deployment_name: z.string().min(1).max(255).optional(),
    azure_extra_params: z.enum(['pass-through', 'drop', 'error']).optional(),
    azure_entra_scope: z.string().min(1).max(2048).optional(),
    anthropic_version: headerValue.optional(),
    anthropic_beta: headerValue.optional(),
  }),
  secretSettings: ['azure_entra_client_secret', 'azure_ad_token'],
  // Accounts that sign in through Entra have no key; one that needs it and has none is refused before any call.
  needsKey: false,
  baseUrl: (credentials) => placeOf(credentials)?.root ?? null,
  hostHint: 'give azure_foundry_url',
  placeModel,
  authorize(headers, context) {
    const api = apiFor(context.credentials, context.model);
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
  sign: (context) => azureSigner(context, audienceOf(context)),
  bindings: INFERENCE,
  bindingsOf(model, credentials) {
    const api = apiFor(credentials, model);
    return api === 'openai' ? OPENAI : api === 'anthropic' ? ANTHROPIC : INFERENCE;
  },
  allBindings: { inference: INFERENCE, openai: OPENAI, anthropic: ANTHROPIC },
  passThrough: false,
  error: azureError,
};
