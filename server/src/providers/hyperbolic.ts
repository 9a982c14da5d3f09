import { isObject, type JsonObject } from '../kernel/json.ts';
import { asArray } from '../operations/convert/fields.ts';
import { imagesAnswer, plainImages, refuseMany, refuseUrls, sidesOf } from './images.ts';
import { compatible } from './openai-compatible.ts';
import type { CallContext } from './provider.ts';

/** Pictures have another path and other names there. */
function imagesRequest(given: JsonObject, context: CallContext): JsonObject {
  const { model: _model, n, size, response_format: format, ...body } = plainImages.apply(given, context);
  refuseMany(n);
  refuseUrls(format);
  return { model_name: context.model, ...body, ...sidesOf(size) };
}

export const hyperbolic = compatible({
  id: 'hyperbolic',
  title: 'Hyperbolic',
  baseUrl: 'https://api.hyperbolic.xyz/v1',
  statelessPaths: ['POST image/generation', 'POST audio/generation'],
  serves: ['completions'],
  chat: { extensions: ['top_k'] },
  bindings: {
    images_generate: {
      path: () => '/image/generation',
      request: imagesRequest,
      response: (body, context) =>
        imagesAnswer(
          asArray(body.images).map((one) => (isObject(one) ? (one.image ?? null) : null)),
          context.now(),
        ),
    },
  },
});
