import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { anthropicError, messages, messagesBody, common as messagesFields } from '../anthropic-upstream.ts';
import { type StrictRoute, type StrictUpstream, startStrictUpstream } from '../strict-upstream.ts';
import { type Received, sendJson } from '../upstream.ts';
import { googleError } from './gcs.ts';
import { asEvents, GENERATE, generate, generateBody, imagenBody, modelIn, paint } from './gemini.ts';

/** Models of several makers on Vertex AI v1, in one project and region. */

const text = z.string();
const num = z.number();
export const VERTEX_PARENT = 'projects/test-project/locations/us-central1';
const HERE = `/v1/${VERTEX_PARENT}`;
const google = (method: string): RegExp =>
  new RegExp(
    `^(?:${HERE}/publishers/google/models/[\\w.@-]+|${HERE}/endpoints/\\d+|/v1/publishers/google/models/[\\w.-]+):${method}$`,
  );
const raw = (publisher: string, method: string): RegExp =>
  new RegExp(`^${HERE}/publishers/${publisher}/models/[\\w.@-]+:${method}$`);

const vertexGenerate = z.strictObject({ ...GENERATE, labels: z.record(text, text).optional() });

function generated(body: Record<string, unknown>, response: ServerResponse, { path }: Received, stream: boolean): void {
  const { labels: _, ...rest } = body;
  generateBody.parse(rest);
  generate(rest, response, modelIn(path), stream);
}

/** A Messages body as Vertex AI takes it: the model stands in the path, the version in the body. */
const version = z.literal('vertex-2023-10-16');
const claudeBody = z.looseObject({ anthropic_version: version, model: z.undefined().optional() });

function claude(body: Record<string, unknown>, response: ServerResponse, { path }: Received, stream: boolean): void {
  const { anthropic_version: _, ...rest } = body;
  // Names carry their date behind an `@`, which the first-party API does not know.
  const model = modelIn(path).split('@')[0] ?? '';
  const parsed = messagesBody.safeParse({ ...rest, model });
  if (!parsed.success || (parsed.data.stream ?? false) !== stream) {
    throw new Error(parsed.success ? 'stream and method differ' : z.prettifyError(parsed.error));
  }
  messages({ ...rest, model }, response);
}

const chatBody = z.strictObject({
  model: text.regex(/^[a-z-]+\/[\w.-]+$/),
  messages: z.array(z.looseObject({ role: z.enum(['system', 'user', 'assistant', 'tool']) })).min(1),
  max_tokens: num.optional(),
  temperature: num.optional(),
  stream: z.boolean().optional(),
  stream_options: z.strictObject({ include_usage: z.boolean() }).optional(),
});
const mistralBody = chatBody
  .extend({ model: text.regex(/^[\w.-]+$/), random_seed: num.optional() })
  .omit({ stream_options: true });

function chat(body: Record<string, unknown>, response: ServerResponse): void {
  const usage = { prompt_tokens: 9, completion_tokens: 4, total_tokens: 13 };
  const base = { id: 'c1', created: 1, model: body.model };
  if (body.stream !== true) {
    const message = { role: 'assistant', content: `I am ${body.model}` };
    const choices = [{ index: 0, message, finish_reason: 'stop' }];
    sendJson(response, 200, { ...base, object: 'chat.completion', choices, usage });
    return;
  }
  const chunk = (delta: unknown, finish_reason: string | null, more?: unknown): string =>
    `data: ${JSON.stringify({ ...base, object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason }], ...(more as object) })}\n\n`;
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(chunk({ role: 'assistant', content: 'I am ' }, null));
  response.write(chunk({ content: String(body.model) }, null));
  response.end(`${chunk({}, 'stop', { usage })}data: [DONE]\n\n`);
}

const ROUTES: readonly StrictRoute[] = [
  {
    method: 'POST',
    path: google('generateContent'),
    body: vertexGenerate,
    answer: (body, response, request) => generated(body, response, request, false),
  },
  {
    method: 'POST',
    path: google('streamGenerateContent'),
    query: ['alt'],
    body: vertexGenerate,
    answer(body, response, request) {
      if (!asEvents(request.path)) throw new Error('a stream without alt=sse');
      generated(body, response, request, true);
    },
  },
  {
    method: 'POST',
    path: google('countTokens'),
    body: vertexGenerate,
    answer: (_, response) => sendJson(response, 200, { totalTokens: 11, totalBillableCharacters: 20 }),
  },
  {
    method: 'POST',
    path: google('embedContent'),
    body: z.strictObject({
      content: z.strictObject({ parts: z.array(z.strictObject({ text })).length(1) }),
      taskType: text.optional(),
      title: text.optional(),
      outputDimensionality: num.int().optional(),
    }),
    answer: (_, response) =>
      sendJson(response, 200, { embedding: { values: [0.25, 0.5] }, usageMetadata: { promptTokenCount: 3 } }),
  },
  {
    method: 'POST',
    path: google('predict'),
    body: z.union([
      imagenBody,
      z.strictObject({
        instances: z
          .array(z.strictObject({ content: text, task_type: text.optional(), title: text.optional() }))
          .min(1),
        parameters: z.strictObject({ outputDimensionality: num.int().optional() }).optional(),
      }),
      z.strictObject({
        instances: z
          .array(
            z.strictObject({
              text: text.optional(),
              image: z
                .strictObject({
                  bytesBase64Encoded: text.optional(),
                  gcsUri: text.optional(),
                  mimeType: text.optional(),
                })
                .optional(),
            }),
          )
          .min(1),
        parameters: z.strictObject({ dimension: num.int().optional() }).optional(),
      }),
    ]),
    answer(body, response, { path }) {
      const model = modelIn(path);
      const instances = body.instances as Record<string, unknown>[];
      if (model.startsWith('imagen')) paint(body, response);
      else if (model.startsWith('multimodal'))
        sendJson(response, 200, {
          predictions: instances.map((one) =>
            'image' in one ? { imageEmbedding: [1, 2] } : { textEmbedding: [3, 4] },
          ),
        });
      else
        sendJson(response, 200, {
          predictions: instances.map((_, index) => ({
            embeddings: { values: [index, 0.5], statistics: { token_count: 4, truncated: false } },
          })),
        });
    },
  },
  {
    method: 'POST',
    path: raw('anthropic', 'rawPredict'),
    body: z.union([
      claudeBody,
      z.strictObject({ ...messagesFields, model: text.regex(/^[\w.@-]+$/), anthropic_version: version }),
    ]),
    answer(body, response, request) {
      if (modelIn(request.path) === 'count-tokens') sendJson(response, 200, { input_tokens: 9 });
      else claude(body, response, request, false);
    },
  },
  {
    method: 'POST',
    path: raw('anthropic', 'streamRawPredict'),
    body: claudeBody,
    answer: (body, response, request) => claude(body, response, request, true),
  },
  {
    method: 'GET',
    path: /^\/v1\/publishers\/(google|anthropic|mistralai)\/models$/,
    query: ['pageSize'],
    body: null,
    answer(_body, response, { path }) {
      const maker = path.split('/')[3];
      // A maker without models in the region.
      if (maker === 'mistralai') return sendJson(response, 200, {});
      const [name, versionId] =
        maker === 'google' ? ['gemini-2.5-flash', 'default'] : ['claude-sonnet-4-5', '20250929'];
      sendJson(response, 200, { publisherModels: [{ name: `publishers/${maker}/models/${name}`, versionId }] });
    },
  },
  {
    method: 'GET',
    path: /^\/v1\/publishers\/anthropic\/models\/claude-sonnet-4-5@20250929$/,
    body: null,
    answer: (_body, response) =>
      sendJson(response, 200, { name: 'publishers/anthropic/models/claude-sonnet-4-5', versionId: '20250929' }),
  },
  { method: 'POST', path: raw('mistralai', '(?:rawPredict|streamRawPredict)'), body: mistralBody, answer: chat },
  { method: 'POST', path: new RegExp(`^${HERE}/endpoints/openapi/chat/completions$`), body: chatBody, answer: chat },
];

export const VERTEX_TOKEN = 'ya29.token-of-nobody';

/** `key`: what accounts sign in with, an access token or an API key. */
export function startVertexModels(key = VERTEX_TOKEN): Promise<StrictUpstream> {
  const auth: Record<string, RegExp> = key.startsWith('AIza')
    ? { 'x-goog-api-key': new RegExp(`^${key}$`) }
    : { authorization: new RegExp(`^Bearer ${key}$`) };
  return startStrictUpstream({
    routes: ROUTES,
    headers: { ...auth, 'x-vertex-ai-llm-request-type': /^(dedicated|shared)$/, 'anthropic-beta': /^[\w,.-]+$/ },
    optional: ['x-vertex-ai-llm-request-type', 'anthropic-beta'],
    error: (status, message) =>
      message.includes('anthropic') ? anthropicError(status, message) : googleError(status, message),
  });
}
