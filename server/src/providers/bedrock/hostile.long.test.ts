import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { contextOf } from '../../../test/support/provider-fixtures.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject, JsonValue } from '../../kernel/json.ts';
import { errorStatus } from '../../operations/dialects/errors.ts';
import { bindingFor } from '../binding.ts';
import { providerById } from '../catalog.ts';
import type { Provider } from '../provider.ts';

const bedrock = providerById('bedrock') as Provider;
const MODELS = [
  'eu.amazon.nova-pro-v1:0',
  'us.anthropic.claude-opus-4-1-20250805-v1:0',
  'amazon.titan-embed-image-v1',
  'amazon.nova-2-multimodal-embeddings-v1:0',
  'cohere.embed-v4:0',
  'cohere.rerank-v3-5:0',
  'amazon.nova-canvas-v1:0',
  'stability.sd3-5-large-v1:0',
];
const OPERATIONS = [
  'chat',
  'messages',
  'responses',
  'count_tokens',
  'embeddings',
  'rerank',
  'images_generate',
] as const;
const words = (text: string) => fc.constantFrom(...text.split(' '));
const KEYS = words(
  'role content type text image_url url file file_data function name tool_calls id arguments cache_control __proto__ constructor latency guardrailIdentifier image base64 json_schema schema',
);
const FIELDS = words(
  'messages input tools tool_choice stop guardrailConfig performanceConfig metadata thinking reasoning_effort response_format documents query prompt size quality dimensions images anthropic_beta additionalModelRequestFields system max_tokens rank_fields input_type',
);
const EVENTS = words('messageStart contentBlockStart contentBlockDelta contentBlockStop messageStop metadata');
const PARTS = words(
  'contentBlockIndex delta start stopReason usage text toolUse input reasoningContent signature redactedContent toolUseId name',
);

const { value } = fc.letrec<{ value: JsonValue }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    fc.string(),
    fc.integer(),
    fc.boolean(),
    fc.constant(null),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(KEYS, tie('value'), { maxKeys: 4 }),
  ),
}));

/** Whether `step` does its work, or says by a SluiceError why it cannot. */
function isClear(step: () => void, most: number): boolean {
  try {
    step();
    return true;
  } catch (error) {
    return error instanceof SluiceError && errorStatus(error) < most;
  }
}

describe('whatever comes', () => {
  it('of a caller becomes a request, or a refusal that is the fault of the caller', () => {
    const bodies = fc.dictionary(FIELDS, value, { maxKeys: 6 });
    fc.assert(
      fc.property(fc.constantFrom(...OPERATIONS), fc.constantFrom(...MODELS), bodies, (operation, model, fields) => {
        const body: JsonObject = { ...fields, model };
        const bound = bindingFor(bedrock, operation, model);
        const context = contextOf(operation, { body });
        expect(
          isClear(() => {
            bound?.binding.headers?.(body, context);
            bound?.binding.fanOut?.split?.(body, context);
            bound?.request?.(body, context);
          }, 500),
        ).toBe(true);
      }),
      { numRuns: 4000, seed: 5 },
    );
  });

  it('of a model becomes an answer or an error of the provider', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...OPERATIONS),
        fc.constantFrom(...MODELS),
        value,
        value,
        (operation, model, a, b) => {
          const answer = { output: { message: { content: a } }, usage: b, stopReason: 'x', embeddings: a, results: a };
          const context = contextOf(operation, { body: { model, documents: b } });
          const respond = () => bindingFor(bedrock, operation, model)?.response?.({ ...answer, images: a }, context);
          expect(isClear(respond, 600)).toBe(true);
        },
      ),
      { numRuns: 2000, seed: 5 },
    );
  });

  it('in a stream never throws, and never looks complete without its usage', () => {
    const payloads = fc.dictionary(PARTS, value, { maxKeys: 4 });
    const events = fc.array(fc.dictionary(EVENTS, payloads, { maxKeys: 1 }), { maxLength: 8 });
    fc.assert(
      fc.property(fc.constantFrom('chat', 'messages', 'responses'), events, (operation, list) => {
        const body = { model: MODELS[0] ?? '', stream: true };
        const context = contextOf(operation, { body }, { stream: true, strict: false });
        const transform = bindingFor(bedrock, operation, body.model)?.stream?.(context);
        let out = '';
        for (const data of list) {
          transform?.event({ event: null, data: JSON.stringify(data) }, (event) => {
            out += event.data;
          });
        }
        transform?.end((event) => {
          out += event.data;
        });
        const whole = list.some((data) => data.messageStop) && list.some((data) => data.metadata);
        if (!whole) expect(out).toMatch(/upstream_stream_cut|"error"/);
      }),
      { numRuns: 2000, seed: 5 },
    );
  });
});
