/** Models that may be called on Vertex AI: those of the makers whose names are known without saying the maker. */
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { asArray, asString, invalidAnswer } from '../../operations/convert/fields.ts';
import type { Binding } from '../provider.ts';
import { nameInPath, vertexModel } from './model.ts';
import { vertexBase } from './place.ts';

const MAKERS = ['google', 'anthropic', 'mistralai'] as const;
const listOf = (maker: string): string => `/publishers/${maker}/models?pageSize=1000`;

/** `publishers/anthropic/models/claude-opus-4-1` in version 20250805 is called `claude-opus-4-1@20250805`. */
function entry(row: JsonObject): JsonObject {
  const [, maker = 'google', , name = ''] = (asString(row.name) ?? '').split('/');
  const version = asString(row.versionId) ?? 'default';
  const id = version === 'default' || name.includes('@') ? name : `${name}@${version}`;
  return { ...row, id, object: 'model', created: 0, owned_by: maker };
}

export const models: Binding = {
  shape: 'models',
  // Lists are offered by the newer version of the API only.
  base: (credentials) => vertexBase(credentials).replace(/\/v1$/, '/v1beta1'),
  path: () => listOf(MAKERS[0]),
  ownQuery: true,
  fanOut: {
    places: () => MAKERS.slice(1).map(listOf),
    join(pages) {
      const nextPageToken = pages.map((page) => asString(page.nextPageToken)).find((token) => token) ?? null;
      return { publisherModels: pages.flatMap((page) => asArray(page.publisherModels)), nextPageToken };
    },
  },
  response(body) {
    // A maker without models has no list at all.
    if (body.publisherModels !== undefined && !Array.isArray(body.publisherModels))
      throw invalidAnswer('The provider answered without a list of models.');
    const more = asString(body.nextPageToken) === null ? null : { has_more: true };
    return { object: 'list', data: asArray(body.publisherModels).filter(isObject).map(entry), ...more };
  },
};

export const model: Binding = {
  shape: 'raw',
  path({ pathParams }) {
    const asked = pathParams.model ?? '';
    return `/publishers/${vertexModel(asked).publisher}/models/${nameInPath(asked)}`;
  },
  ownQuery: true,
  response: entry,
};
