/** What may be called in a region: foundation models, and inference profiles, system-defined and the account's own. */

import { encodeStrictly } from '../../kernel/aws-url.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { asArray, asObject, asString, invalidAnswer } from '../../operations/convert/fields.ts';
import type { Binding } from '../provider.ts';
import { epochOf } from '../training-calls.ts';
import { isProfile } from './families.ts';

/** What Bedrock says of a model, and the fields of an OpenAI model beside it. */
function entry(model: JsonObject): JsonObject {
  return {
    ...model,
    // A profile of the account's own is called by its ARN.
    id:
      asString(model.modelId) ??
      asString(model.type === 'APPLICATION' ? model.inferenceProfileArn : model.inferenceProfileId) ??
      '',
    object: 'model',
    created: epochOf(model.createdAt) ?? epochOf(asObject(model.modelLifecycle).startOfLifeTime) ?? 0,
    owned_by: asString(model.providerName) ?? (model.type === 'APPLICATION' ? 'account' : 'amazon'),
  };
}

/** The largest page there is: `has_more` reports more profiles than that. */
const profiles = (type: string): string => `/inference-profiles?maxResults=1000&type=${type}`;

export const models: Binding = {
  shape: 'models',
  path: () => '/foundation-models',
  ownQuery: true,
  fanOut: {
    places: () => [profiles('SYSTEM_DEFINED'), profiles('APPLICATION')],
    // Listing profiles is a separate right (`bedrock:ListInferenceProfiles`), which policies from before them do not give.
    without: (status) => status === 403,
    join([foundation = {}, ...rest]) {
      const inferenceProfileSummaries = rest.flatMap((page) => asArray(page.inferenceProfileSummaries));
      const nextToken = rest.map((page) => asString(page.nextToken)).find((token) => token !== null) ?? null;
      return { ...foundation, inferenceProfileSummaries, nextToken };
    },
  },
  response(body) {
    if (!Array.isArray(body.modelSummaries)) throw invalidAnswer('The provider answered without a list of models.');
    const rows = [...body.modelSummaries, ...asArray(body.inferenceProfileSummaries)];
    const more = asString(body.nextToken) === null ? null : { has_more: true };
    return { object: 'list', data: rows.filter(isObject).map(entry), ...more };
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
