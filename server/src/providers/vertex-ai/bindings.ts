/**
 * Calls of models on Vertex AI: Google's own as the Gemini API takes them, Claude by Messages, Mistral's in
 * their maker's form, every other by the OpenAI-compatible endpoint.
 */
import type { JsonObject } from '../../kernel/json.ts';
import { readAnyUsage } from '../../operations/shapes/any-usage.ts';
import { claudePrefill, traits } from '../anthropic/models.ts';
import { projectOf } from '../google/credentials.ts';
import { chatBinding, countBinding, editsBinding, imagesBinding, type Surface } from '../google/gemini-bindings.ts';
import { mistralAi } from '../mistral-ai/mistral-ai.ts';
import { compatible } from '../openai-compatible.ts';
import type { Binding, Bindings, CallContext, Credentials } from '../provider.ts';
import { embeddingMethod, embeddingRequest, embeddingsFanOut, vertexEmbeddings } from './embeddings.ts';
import { nameInPath, vertexModel } from './model.ts';
import { model, models } from './models.ts';
import { placeOf } from './place.ts';

/** What stands for the version header of Anthropic's own API. */
const ANTHROPIC_VERSION = 'vertex-2023-10-16';

/** API keys have these beginnings; access tokens have not. */
export const isApiKey = ({ key }: Credentials): boolean => /^(?:AIza|AQ\.)/.test(key?.reveal() ?? '');

/** `projects/…/locations/…` of the account; with an API key and no project, the place Google gives such keys. */
function publishers(credentials: Credentials): string {
  if (isApiKey(credentials) && projectOf(credentials) === null) return '/publishers';
  return `/${placeOf({ credentials }).parent}/publishers`;
}

function googlePath({ credentials, model }: CallContext, method: string): string {
  const { publisher, name } = vertexModel(model);
  if (publisher === 'endpoint') return `/${placeOf({ credentials }).parent}/endpoints/${name}:${method}`;
  return `${publishers(credentials)}/google/models/${nameInPath(model)}:${method}`;
}

const GEMINI: Surface = { vertex: true, path: googlePath };

export const GOOGLE: Bindings = {
  chat: chatBinding(GEMINI),
  count_tokens: countBinding(GEMINI),
  embeddings: {
    shape: 'embeddings',
    path: (context) => googlePath(context, embeddingMethod(vertexModel(context.model).name)),
    ownQuery: true,
    request: (body, context) => embeddingRequest(body, vertexModel(context.model).name),
    fanOut: embeddingsFanOut,
    response: (body, context) => vertexEmbeddings(body, vertexModel(context.model).name, context.body),
    usage: readAnyUsage,
  },
  images_generate: imagesBinding(GEMINI),
  images_edit: editsBinding(GEMINI),
  models,
  model,
};

const raw = (publisher: string, { credentials, model, stream }: CallContext): string =>
  `${publishers(credentials)}/${publisher}/models/${nameInPath(model)}:${stream ? 'streamRawPredict' : 'rawPredict'}`;

export const ANTHROPIC: Bindings = {
  messages: {
    shape: 'messages',
    path: (context) => raw('anthropic', context),
    ownQuery: true,
    request({ model: _, ...body }) {
      return { anthropic_version: ANTHROPIC_VERSION, ...body };
    },
    prefill: (model) => claudePrefill(vertexModel(model).name),
    target: { traits: (model) => traits(vertexModel(model).name) },
  },
  count_tokens: {
    shape: 'count_tokens',
    path: ({ credentials }) => `${publishers(credentials)}/anthropic/models/count-tokens:rawPredict`,
    ownQuery: true,
    request: (body, { model }) => ({ anthropic_version: ANTHROPIC_VERSION, ...body, model: nameInPath(model) }),
  },
};

const plain = (bindings: Bindings): Binding => {
  const { chat } = bindings;
  if (chat === undefined) throw new Error('the provider has no chat');
  // A model's name differs here, so that no body may pass as it is.
  const { requestTouches: _, ...rest } = chat;
  return rest;
};

const mistral = plain(mistralAi.bindings);

const MISTRAL: Bindings = {
  chat: {
    ...mistral,
    path: (context) => raw('mistralai', context),
    ownQuery: true,
    request(body, context) {
      const named: JsonObject = { ...body, model: nameInPath(context.model) };
      return mistral.request?.(named, context) ?? named;
    },
  },
};

const open = plain(
  compatible({ id: 'vertex-ai', title: 'Vertex AI', baseUrl: null, chat: { extensions: ['top_k'] } }).bindings,
);

export const OPEN: Bindings = {
  chat: {
    ...open,
    path: ({ credentials }) => `/${placeOf({ credentials }).parent}/endpoints/openapi/chat/completions`,
    ownQuery: true,
    request(body, context) {
      const { publisher } = vertexModel(context.model);
      const named: JsonObject = { ...body, model: `${publisher}/${nameInPath(context.model)}` };
      return open.request?.(named, context) ?? named;
    },
  },
};

export const TABLES = { google: GOOGLE, anthropic: ANTHROPIC, mistralai: MISTRAL, open: OPEN } as const;

/** The bindings of a model's maker. */
export function bindingsOf(model: string): Bindings {
  const { publisher } = vertexModel(model);
  if (publisher === 'google' || publisher === 'endpoint') return GOOGLE;
  if (publisher === 'anthropic') return ANTHROPIC;
  return publisher === 'mistralai' ? MISTRAL : OPEN;
}
