import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { type StrictRoute, type StrictUpstream, sendStream, startStrictUpstream } from '../strict-upstream.ts';
import { sendJson } from '../upstream.ts';
import { googleError } from './gcs.ts';

/** `generateContent` and its like, as the Gemini API and Vertex AI publish them; what they do not know is refused. */

const text = z.string();
const num = z.number();
const object = z.record(text, z.unknown());
const blob = z.strictObject({ mimeType: text.regex(/^[a-z]+\/[\w.+-]+$/), data: text.regex(/^[A-Za-z0-9+/=]+$/) });
const signature = { thoughtSignature: text.min(1).optional() };
const part = z.union([
  z.strictObject({ text: text.min(1), ...signature }),
  z.strictObject({ inlineData: blob }),
  z.strictObject({ fileData: z.strictObject({ mimeType: text.optional(), fileUri: text.regex(/^(https?|gs):/) }) }),
  z.strictObject({
    functionCall: z.strictObject({ id: text.optional(), name: text, args: object.optional() }),
    ...signature,
  }),
  z.strictObject({ functionResponse: z.strictObject({ id: text.optional(), name: text, response: object }) }),
]);
const content = z.strictObject({ role: z.enum(['user', 'model']), parts: z.array(part).min(1) });

/** The documented subset of JSON Schema. */
const KEYWORDS = new Set(
  '$id $defs $ref $anchor type format title description enum items prefixItems minItems maxItems minimum maximum anyOf oneOf properties additionalProperties required propertyOrdering'.split(
    ' ',
  ),
);
function schemaFault(value: unknown): string | null {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return null;
  for (const [key, inner] of Object.entries(value)) {
    if (!KEYWORDS.has(key)) return `keyword ${key}`;
    if ('$ref' in value && !key.startsWith('$')) return `${key} beside $ref`;
    const schemas = key === 'properties' || key === '$defs' ? Object.values(inner as object) : [inner].flat();
    const fault = key === 'enum' ? null : schemas.map(schemaFault).find((found) => found !== null);
    if (fault) return fault;
  }
  return null;
}
const jsonSchema = object.superRefine((value, context) => {
  const fault = schemaFault(value);
  if (fault !== null) context.addIssue(fault);
});

const toolFields = {
  functionDeclarations: z
    .array(
      z.strictObject({
        name: text.regex(/^[A-Za-z_][\w.:-]{0,127}$/),
        description: text.optional(),
        parametersJsonSchema: jsonSchema.optional(),
      }),
    )
    .optional(),
  googleSearch: object.optional(),
  codeExecution: z.strictObject({}).optional(),
};
const HARM = z.enum([
  'HARM_CATEGORY_HARASSMENT',
  'HARM_CATEGORY_HATE_SPEECH',
  'HARM_CATEGORY_SEXUALLY_EXPLICIT',
  'HARM_CATEGORY_DANGEROUS_CONTENT',
  'HARM_CATEGORY_CIVIC_INTEGRITY',
]);
const generationConfig = z
  .strictObject({
    maxOutputTokens: num.int().min(1).optional(),
    temperature: num.min(0).max(2).optional(),
    topP: num.optional(),
    topK: num.optional(),
    seed: num.int().optional(),
    presencePenalty: num.optional(),
    frequencyPenalty: num.optional(),
    candidateCount: num.int().min(1).max(8).optional(),
    stopSequences: z.array(text).max(5).optional(),
    responseLogprobs: z.boolean().optional(),
    logprobs: num.int().optional(),
    responseMimeType: z.enum(['text/plain', 'application/json']).optional(),
    responseJsonSchema: jsonSchema.optional(),
    responseModalities: z.array(z.enum(['TEXT', 'IMAGE'])).optional(),
    imageConfig: z.strictObject({ aspectRatio: text.optional(), imageSize: text.optional() }).optional(),
    mediaResolution: text.optional(),
    thinkingConfig: z
      .strictObject({
        includeThoughts: z.boolean().optional(),
        thinkingBudget: num.int().optional(),
        thinkingLevel: z.enum(['MINIMAL', 'LOW', 'MEDIUM', 'HIGH']).optional(),
      })
      .refine((one) => one.thinkingBudget === undefined || one.thinkingLevel === undefined, 'level or budget')
      .optional(),
  })
  .refine((one) => one.responseJsonSchema === undefined || one.responseMimeType === 'application/json', 'mime type');

export const GENERATE = {
  contents: z.array(content).min(1),
  systemInstruction: z.strictObject({ parts: z.array(z.strictObject({ text: text.min(1) })).min(1) }).optional(),
  tools: z.array(z.strictObject(toolFields)).optional(),
  toolConfig: z
    .strictObject({
      functionCallingConfig: z.strictObject({
        mode: z.enum(['AUTO', 'ANY', 'NONE', 'VALIDATED']),
        allowedFunctionNames: z.array(text).optional(),
      }),
    })
    .optional(),
  safetySettings: z
    .array(z.strictObject({ category: HARM, threshold: z.enum(['BLOCK_NONE', 'BLOCK_ONLY_HIGH', 'OFF']) }))
    .optional(),
  generationConfig: generationConfig.optional(),
  cachedContent: text.optional(),
};
export const generateBody = z.strictObject(GENERATE);
type Body = z.infer<typeof generateBody>;
type Part = z.infer<typeof part>;

const calls = (parts: readonly Part[]) => parts.filter((one) => 'functionCall' in one);
const results = (parts: readonly Part[]) => parts.filter((one) => 'functionResponse' in one);
const isLater = (model: string): boolean => /^gemini-[3-9]/.test(model);

/** Signatures this upstream has given, each with the call it belongs to. */
const given = new Map<string, string>();
export const LOST = 'skip_thought_signature_validator';

/** What the service refuses beyond the form of a body: turns, results and signatures. */
function fault(body: Body, model: string): string | null {
  if (body.contents[0]?.role !== 'user') return 'Please ensure that the first content is of the user.';
  const turn = body.contents.findLastIndex(({ role, parts }) => role === 'user' && results(parts).length === 0);
  for (const [at, { role, parts }] of body.contents.entries()) {
    if (role === body.contents[at - 1]?.role) return 'Please ensure that turns alternate.';
    const made = calls(parts);
    if (made.length === 0) continue;
    const answered = results(body.contents[at + 1]?.parts ?? []);
    const names = (list: readonly (string | undefined)[]): string => list.join();
    if (names(made.map((one) => one.functionCall.name)) !== names(answered.map((one) => one.functionResponse.name)))
      return 'Please ensure that the number of function response parts is equal to the number of function call parts.';
    if (!isLater(model)) continue;
    if (names(made.map((one) => one.functionCall.id)) !== names(answered.map((one) => one.functionResponse.id)))
      return 'A function response does not have the id of its call.';
    const [first] = made;
    const signed = first?.thoughtSignature;
    if (at > turn && signed === undefined)
      return `Function call \`${first?.functionCall.name}\` is missing a thought_signature.`;
    if (signed !== undefined && signed !== LOST && given.get(signed) !== first?.functionCall.name)
      return 'Thought signature is not valid.';
  }
  return null;
}

let serial = 0;

function callPart(model: string, first: boolean, city: string, name: string): Record<string, unknown> {
  if (!isLater(model)) return { functionCall: { name, args: { city } } };
  const id = `fc-${++serial}`;
  if (!first) return { functionCall: { id, name, args: { city } } };
  const thoughtSignature = `sig-${serial}/+==`;
  given.set(thoughtSignature, name);
  return { functionCall: { id, name, args: { city } }, thoughtSignature };
}

const SAFE = [{ category: 'HARM_CATEGORY_HARASSMENT', probability: 'NEGLIGIBLE' }];
export const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

function partsFor(body: Body, model: string): Record<string, unknown>[] {
  const last = body.contents.at(-1)?.parts ?? [];
  const said = last.map((one) => ('text' in one ? one.text : '')).join('');
  const thought = body.generationConfig?.thinkingConfig?.includeThoughts
    ? [{ text: 'Let me think.', thought: true }]
    : [];
  const result = results(last)[0]?.functionResponse.response;
  if (result !== undefined) return [...thought, { text: `The tool says: ${result.output ?? JSON.stringify(result)}` }];
  const tool = body.tools?.flatMap((one) => one.functionDeclarations ?? [])[0];
  if (tool && body.toolConfig?.functionCallingConfig.mode !== 'NONE') {
    const cities = said.includes('twice') ? ['Berlin', 'Paris'] : ['Berlin'];
    return [...thought, ...cities.map((city, at) => callPart(model, at === 0, city, tool.name))];
  }
  if (body.generationConfig?.responseJsonSchema) return [{ text: '{"city":"Berlin"}' }];
  if (body.generationConfig?.responseModalities?.includes('IMAGE'))
    return [{ inlineData: { mimeType: 'image/png', data: PIXEL } }];
  const media = last.map((one) =>
    'inlineData' in one ? one.inlineData.mimeType : 'fileData' in one ? one.fileData.fileUri : '',
  );
  return [...thought, { text: `You said: ${said}${media.join('')}` }];
}

const USAGE = {
  promptTokenCount: 9,
  candidatesTokenCount: 4,
  thoughtsTokenCount: 3,
  cachedContentTokenCount: 2,
  totalTokenCount: 16,
  promptTokensDetails: [{ modality: 'TEXT', tokenCount: 9 }],
};

/** Cuts texts of parts into pieces, as a stream brings them. */
const pieces = (parts: readonly Record<string, unknown>[]): Record<string, unknown>[] =>
  parts.flatMap((one) =>
    typeof one.text === 'string'
      ? (one.text.match(/.{1,5}/gsu) ?? []).map((piece) => ({ ...one, text: piece }))
      : [one],
  );

export const event = (data: unknown): string => `data: ${JSON.stringify(data)}\r\n\r\n`;

/** Errors with the status of a model called `error-429` and the like; true when it was one. */
export function failed(model: string, response: ServerResponse, stream: boolean): boolean {
  const [, code] = /^error-(\d{3})$/.exec(model) ?? [];
  if (code === undefined) return false;
  const status = Number(code);
  const name = { 400: 'INVALID_ARGUMENT', 429: 'RESOURCE_EXHAUSTED', 503: 'UNAVAILABLE' }[status] ?? 'INTERNAL';
  const body = {
    error: {
      code: status,
      message: status === 503 ? 'The model is overloaded. Please try again later.' : `It is ${name}.`,
      status: name,
      details: [
        ...(status === 429 ? [{ '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '6.2s' }] : []),
        ...(status === 400 ? [{ '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'API_KEY_INVALID' }] : []),
      ],
    },
  };
  // Without the framing of events, an error of a stream is a list of one.
  sendJson(response, status, stream ? [body] : body);
  return true;
}

/** Answers `generateContent`, or `streamGenerateContent` as events. */
export function generate(raw: Record<string, unknown>, response: ServerResponse, model: string, stream: boolean): void {
  if (failed(model, response, stream)) return;
  const body = generateBody.parse(raw);
  const wrong = fault(body, model);
  if (wrong !== null) {
    sendJson(response, 400, googleError(400, wrong));
    return;
  }
  const common = { modelVersion: model, responseId: `resp-${++serial}` };
  const said = JSON.stringify(body.contents.at(-1));
  if (said.includes('blocked prompt')) {
    const blocked = {
      ...common,
      promptFeedback: { blockReason: 'PROHIBITED_CONTENT' },
      usageMetadata: { promptTokenCount: 9 },
    };
    if (stream) sendStream(response, [event(blocked)]);
    else sendJson(response, 200, blocked);
    return;
  }
  const unsafe = said.includes('unsafe');
  const parts = unsafe ? [] : partsFor(body, model);
  const end = { finishReason: unsafe ? 'SAFETY' : 'STOP', safetyRatings: SAFE };
  const count = body.generationConfig?.candidateCount ?? 1;
  const indexes = Array.from({ length: count }, (_, index) => index);
  if (!stream) {
    const candidates = indexes.map((index) => ({
      ...(unsafe ? null : { content: { role: 'model', parts } }),
      index,
      ...end,
      ...(body.generationConfig?.responseLogprobs
        ? {
            logprobsResult: {
              chosenCandidates: [{ token: 'You', tokenId: 7, logProbability: -0.5 }],
              topCandidates: [{ candidates: [{ token: 'You', tokenId: 7, logProbability: -0.5 }] }],
            },
          }
        : null),
    }));
    sendJson(response, 200, { candidates, usageMetadata: USAGE, ...common });
    return;
  }
  const cut = model.endsWith('-cut');
  const events = pieces(parts).flatMap((one) =>
    indexes.map((index) => ({
      candidates: [{ content: { role: 'model', parts: [one] }, index }],
      usageMetadata: { promptTokenCount: 9, totalTokenCount: 9 },
      ...common,
    })),
  );
  const last = {
    candidates: indexes.map((index) => ({ content: { role: 'model', parts: [{ text: '' }] }, index, ...end })),
    usageMetadata: USAGE,
    ...common,
  };
  const broken = model.endsWith('-broken')
    ? [googleError(503, 'The service is currently unavailable.', 'UNAVAILABLE')]
    : [];
  sendStream(response, [...events, ...(cut ? [] : broken.length > 0 ? broken : [last])].map(event), cut);
}

/** The model a path names, between its collection and its method. */
export const modelIn = (path: string): string =>
  decodeURIComponent(/\/([^/:]+):[A-Za-z]+(?:\?|$)/.exec(path)?.[1] ?? '');

/** The query a stream must ask for: events, not a list. */
export const asEvents = (path: string): boolean => new URL(path, 'http://gemini').searchParams.get('alt') === 'sse';

/** What an edit starts from; on Vertex AI only. */
const references = z
  .array(
    z.strictObject({
      referenceType: z.literal('REFERENCE_TYPE_RAW'),
      referenceId: num.int().min(1),
      referenceImage: z.strictObject({ bytesBase64Encoded: text.min(1) }),
    }),
  )
  .min(1);

export const imagenBody = z.strictObject({
  instances: z.array(z.strictObject({ prompt: text.min(1), referenceImages: references.optional() })).length(1),
  parameters: z.strictObject({
    sampleCount: num.int().min(1).max(4),
    editMode: z.literal('EDIT_MODE_DEFAULT').optional(),
    aspectRatio: z.enum(['1:1', '3:4', '4:3', '9:16', '16:9']).optional(),
    outputOptions: z
      .strictObject({ mimeType: z.enum(['image/png', 'image/jpeg']).optional(), compressionQuality: num.optional() })
      .optional(),
  }),
});

export function paint(raw: Record<string, unknown>, response: ServerResponse): void {
  const { instances, parameters } = imagenBody.parse(raw);
  if ((instances[0]?.referenceImages === undefined) !== (parameters.editMode === undefined))
    throw new Error('editMode');
  const filtered = instances[0]?.prompt.includes('unsafe');
  const one = filtered
    ? { raiFilteredReason: 'Unable to show generated images.' }
    : { bytesBase64Encoded: PIXEL, mimeType: 'image/png' };
  sendJson(response, 200, { predictions: Array.from({ length: parameters.sampleCount }, () => one) });
}

const NAMED = /^\/v1beta\/models\/[\w.-]+/;
const at = (method: string): RegExp => new RegExp(`${NAMED.source}:${method}$`);

const MODEL = {
  name: 'models/gemini-2.5-flash',
  displayName: 'Gemini 2.5 Flash',
  inputTokenLimit: 1048576,
  outputTokenLimit: 65536,
  supportedGenerationMethods: ['generateContent', 'countTokens'],
};

const ROUTES: readonly StrictRoute[] = [
  {
    method: 'POST',
    path: at('generateContent'),
    body: generateBody,
    answer: (body, response, { path }) => generate(body, response, modelIn(path), false),
  },
  {
    method: 'POST',
    path: at('streamGenerateContent'),
    query: ['alt'],
    body: generateBody,
    answer(body, response, { path }) {
      if (!asEvents(path)) throw new Error('a stream without alt=sse');
      generate(body, response, modelIn(path), true);
    },
  },
  {
    method: 'POST',
    path: at('countTokens'),
    body: z.strictObject({
      generateContentRequest: z.strictObject({ ...GENERATE, model: text.regex(/^models\/[\w.-]+$/) }),
    }),
    answer: (_, response) => sendJson(response, 200, { totalTokens: 11 }),
  },
  {
    method: 'POST',
    path: at('batchEmbedContents'),
    body: z.strictObject({
      requests: z
        .array(
          z.strictObject({
            model: text.regex(/^models\/[\w.-]+$/),
            content: z.strictObject({ parts: z.array(z.strictObject({ text })).min(1) }),
            taskType: text.optional(),
            title: text.optional(),
            outputDimensionality: num.int().optional(),
          }),
        )
        .max(100),
    }),
    answer: (body, response) =>
      sendJson(response, 200, {
        embeddings: (body.requests as unknown[]).map((_, index) => ({ values: [index, 0.5] })),
        usageMetadata: { promptTokenCount: 7 },
      }),
  },
  { method: 'POST', path: at('predict'), body: imagenBody, answer: paint },
  {
    method: 'GET',
    path: /^\/v1beta\/models$/,
    query: ['pageSize', 'pageToken'],
    body: null,
    answer: (_, response) => sendJson(response, 200, { models: [MODEL] }),
  },
  {
    method: 'GET',
    path: new RegExp(`${NAMED.source}$`),
    body: null,
    answer: (_, response) => sendJson(response, 200, MODEL),
  },
];

export const GEMINI_KEY = 'AIzaSyTestKeyOfNobody';

/** The Gemini developer API, v1beta. */
export function startGemini(): Promise<StrictUpstream> {
  return startStrictUpstream({
    routes: ROUTES,
    headers: { 'x-goog-api-key': new RegExp(`^${GEMINI_KEY}$`) },
    optional: [],
    error: googleError,
  });
}
