/** Models of a region: foundation models, and the inference profile that a name may be. */
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { asArray, asObject, asString, invalidAnswer } from '../../operations/convert/fields.ts';
import { encodeStrictly } from '../aws/encode.ts';
import type { Binding } from '../provider.ts';
import { epochOf } from '../training-calls.ts';
import { isProfile } from './families.ts';

/** What Bedrock says of a model, and the fields of an OpenAI model beside it. */
function entry(model: JsonObject): JsonObject {
  return {
    ...model,
    id: asString(model.modelId) ?? asString(model.inferenceProfileId) ?? '',
    object: 'model',
    created: epochOf(model.createdAt) ?? epochOf(asObject(model.modelLifecycle).startOfLifeTime) ?? 0,
    owned_by: asString(model.providerName) ?? (model.type === 'APPLICATION' ? 'account' : 'amazon'),
  };
}

export const models: Binding = {
  shape: 'models',
  path: () => '/foundation-models',
  ownQuery: true,
  response(body) {
    if (!Array.isArray(body.modelSummaries)) throw invalidAnswer('The provider answered without a list of models.');
    return { object: 'list', data: asArray(body.modelSummaries).filter(isObject).map(entry) };
  },
};

export const model: Binding = {
  shape: 'models',
  path({ pathParams }) {
    const id = pathParams.model ?? '';
    return `/${isProfile(id) ? 'inference-profiles' : 'foundation-models'}/${encodeStrictly(id)}`;
  },
  ownQuery: true,
  response: (body) => entry(isObject(body.modelDetails) ? body.modelDetails : body),
};
