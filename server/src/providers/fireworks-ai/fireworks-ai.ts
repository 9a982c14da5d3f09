import type { JsonObject } from '../../kernel/json.ts';
import { asArray, asString } from '../../operations/convert/fields.ts';
import { imagesAnswer, plainImages, ratioOf, refuseMany, refuseUrls } from '../images.ts';
import { compatible } from '../openai-compatible.ts';
import { restOfPath } from '../path.ts';
import type { Binding, CallContext, Provider } from '../provider.ts';
import { mapField, refuseValue } from '../quirks.ts';
import { headerValue } from '../settings.ts';
import { batchesOf } from './batches.ts';
import { files } from './files.ts';
import { jobs } from './jobs.ts';

function imagesRequest(given: JsonObject, context: CallContext): JsonObject {
  const { model: _model, n, size, response_format: format, ...body } = plainImages.apply(given, context);
  refuseMany(n);
  refuseUrls(format);
  const ratio = ratioOf(size);
  return { ...body, ...(ratio === null ? null : { aspect_ratio: ratio }) };
}

/** Each model that paints has its own address, which names it. */
const images: Partial<Binding> = {
  path: ({ model }) => `/workflows${restOfPath(model)}/text_to_image`,
  ownQuery: true,
  request: imagesRequest,
  response(body, context) {
    const reason = asString(body.finishReason);
    return imagesAnswer(asArray(body.base64), context.now(), reason === null || reason === 'SUCCESS' ? null : reason);
  },
};

/** Calls go to the inference paths, training to the control plane beside them, which needs the account id. */
export const fireworksAi: Provider = compatible({
  id: 'fireworks-ai',
  title: 'Fireworks AI',
  baseUrl: 'https://api.fireworks.ai/inference/v1',
  statelessPaths: ['POST workflows/accounts/*/models/*/text_to_image'],
  settings: { fireworks_account_id: { schema: headerValue, address: true, request: { pinned: true } } },
  serves: ['completions', 'embeddings', 'responses', 'messages', 'rerank'],
  chat: {
    maxCompletionTokens: true,
    request: [
      mapField('reasoning_effort', (value) => (value === 'minimal' ? 'low' : value === 'xhigh' ? 'high' : value)),
      refuseValue('reasoning_effort', (value) => value === 'max', 'the strongest effort there is "high".'),
    ],
    // Usage comes on the last chunk, asked for or not.
    extensions: ['top_k'],
    reasoning: { field: 'reasoning_content', history: true },
  },
  bindings: { images_generate: images },
  training: { jobs, files, batches: batchesOf(() => fireworksAi) },
});
