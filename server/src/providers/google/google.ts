import { readAnyUsage } from '../../operations/shapes/any-usage.ts';
import { NO_SETTINGS } from '../account.ts';
import { segment } from '../path.ts';
import type { CallContext, Provider } from '../provider.ts';
import {
  chatBinding,
  countBinding,
  editsBinding,
  imagesBinding,
  modelEntry,
  modelList,
  type Surface,
} from './gemini-bindings.ts';
import { inlinesMedia } from './gemini-contents.ts';
import { batchEmbedAnswer, batchEmbedRequest } from './gemini-embeddings.ts';
import { googleError } from './gemini-error.ts';
import { bareName, checkedName } from './gemini-model.ts';

function path(model: string, method: string): string {
  const name = checkedName(model);
  return `/${name.startsWith('tunedModels/') ? name : `models/${name}`}:${method}`;
}

const SURFACE: Surface = { vertex: false, path: (context, method) => path(context.model, method) };

/** Largest page of the list of models: it then has them all. */
const ALL = 1000;

/** The Gemini developer API. */
export const google: Provider = {
  id: 'google',
  title: 'Google Gemini',
  account: NO_SETTINGS,
  needsKey: true,
  baseUrl: () => 'https://generativelanguage.googleapis.com/v1beta',
  statelessPaths: ['POST models/*:predict'],
  authorize(headers: string[], { credentials: { key } }: Pick<CallContext, 'credentials'>) {
    if (key !== null) headers.push('x-goog-api-key', key.reveal());
  },
  bindings: {
    chat: { ...chatBinding(SURFACE), inlines: inlinesMedia },
    count_tokens: { ...countBinding(SURFACE), inlines: inlinesMedia },
    embeddings: {
      shape: 'embeddings',
      path: (context) => path(context.model, 'batchEmbedContents'),
      ownQuery: true,
      request: (body, context) => batchEmbedRequest(body, bareName(context.model)),
      response: (body, context) => batchEmbedAnswer(body, bareName(context.model), context.body),
      usage: readAnyUsage,
    },
    images_generate: imagesBinding(SURFACE),
    images_edit: editsBinding(SURFACE),
    models: { shape: 'models', path: () => `/models?pageSize=${ALL}`, ownQuery: true, response: modelList },
    model: {
      shape: 'raw',
      path: (context) => `/models/${segment(bareName(context.pathParams.model ?? ''))}`,
      ownQuery: true,
      response: modelEntry,
    },
  },
  passThrough: false,
  error: googleError,
};
