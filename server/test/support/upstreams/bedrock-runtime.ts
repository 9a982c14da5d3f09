/**
 * Bedrock's runtime and the reads of its control plane on loopback: signature, path, query, headers and body are checked
 * against the published definitions (service models `bedrock-runtime` 2023-09-30 and `bedrock` 2023-04-20).
 */
import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { awsChunk, awsEvent, awsException } from '../aws-frames.ts';
import { signatureFault } from '../sigv4.ts';
import { isTrace } from '../strict-upstream.ts';
import { type FakeUpstream, type Received, sendJson, startUpstream } from '../upstream.ts';
import { AWS_KEYS, BEDROCK_KEY, BEDROCK_REGION, type Failure, type Fields, ROLE_KEYS } from './bedrock.ts';

const base64 = z.base64().min(4);
const text = z.strictObject({ text: z.string().regex(/\S/) });
const cachePoint = z.strictObject({
  cachePoint: z.strictObject({ type: z.literal('default'), ttl: z.enum(['5m', '1h']).optional() }),
});
const s3 = z.strictObject({ s3Location: z.strictObject({ uri: z.string().startsWith('s3://') }) });
const source = z.union([z.strictObject({ bytes: base64 }), s3]);
const image = z.strictObject({ image: z.strictObject({ format: z.enum(['png', 'jpeg', 'gif', 'webp']), source }) });
const document = z.strictObject({
  document: z.strictObject({
    format: z.enum(['pdf', 'csv', 'doc', 'docx', 'xls', 'xlsx', 'html', 'txt', 'md']),
    name: z
      .string()
      .max(200)
      .regex(/^[A-Za-z0-9()[\]-]+( [A-Za-z0-9()[\]-]+)*$/),
    source,
  }),
});
const video = z.strictObject({
  video: z.strictObject({
    format: z.enum(['mkv', 'mov', 'mp4', 'webm', 'flv', 'mpeg', 'mpg', 'wmv', 'three_gp']),
    source,
  }),
});
const audio = z.strictObject({ audio: z.strictObject({ format: z.enum(['mp3', 'wav', 'flac', 'ogg']), source }) });
const toolUseId = z.string().regex(/^[a-zA-Z0-9_.:-]{1,64}$/);
const toolName = z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/);
const toolUse = z.strictObject({
  toolUse: z.strictObject({ toolUseId, name: toolName, input: z.record(z.string(), z.unknown()) }),
});
const toolResult = z.strictObject({
  toolResult: z.strictObject({
    toolUseId,
    content: z.array(z.union([z.strictObject({ text: z.string() }), image, document, video])),
    status: z.enum(['success', 'error']).optional(),
  }),
});
const reasoning = z.strictObject({
  reasoningContent: z.union([
    z.strictObject({ reasoningText: z.strictObject({ text: z.string(), signature: z.string().min(1) }) }),
    z.strictObject({ redactedContent: base64 }),
  ]),
});
const message = z.discriminatedUnion('role', [
  z.strictObject({
    role: z.literal('user'),
    content: z.array(z.union([text, image, document, video, audio, toolResult, cachePoint])).min(1),
  }),
  z.strictObject({
    role: z.literal('assistant'),
    content: z.array(z.union([text, toolUse, reasoning, cachePoint])).min(1),
  }),
]);
const tool = z.union([
  cachePoint,
  z.strictObject({
    toolSpec: z.strictObject({
      name: toolName,
      description: z.string().min(1).optional(),
      inputSchema: z.strictObject({ json: z.record(z.string(), z.unknown()) }),
      strict: z.boolean().optional(),
    }),
  }),
]);
const toolChoice = z.union([
  z.strictObject({ auto: z.strictObject({}) }),
  z.strictObject({ any: z.strictObject({}) }),
  z.strictObject({ tool: z.strictObject({ name: toolName }) }),
]);
const guardrail = {
  guardrailIdentifier: z.string().regex(/^([a-z0-9]+|arn:aws:bedrock:[a-z0-9-]{1,20}:\d{12}:guardrail\/[a-z0-9]+)$/),
  guardrailVersion: z.string().regex(/^([1-9]\d{0,7}|DRAFT)$/),
  trace: z.enum(['enabled', 'disabled', 'enabled_full']).optional(),
};
const metadataText = z.string().regex(/^[a-zA-Z0-9\s:_@$#=/+,\-.]{0,256}$/);

const converse = {
  messages: z.array(message).min(1),
  system: z.array(z.union([text, cachePoint])).optional(),
  inferenceConfig: z
    .strictObject({
      maxTokens: z.int().min(1).optional(),
      temperature: z.number().min(0).max(1).optional(),
      topP: z.number().min(0).max(1).optional(),
      stopSequences: z.array(z.string().min(1)).max(2500).optional(),
    })
    .optional(),
  toolConfig: z.strictObject({ tools: z.array(tool).min(1), toolChoice: toolChoice.optional() }).optional(),
  additionalModelRequestFields: z.record(z.string(), z.unknown()).optional(),
  additionalModelResponseFieldPaths: z.array(z.string().min(1)).max(10).optional(),
  outputConfig: z
    .strictObject({
      textFormat: z.strictObject({
        type: z.literal('json_schema'),
        structure: z.strictObject({
          jsonSchema: z.strictObject({
            schema: z.string().refine((schema) => JSON.parse(schema) !== null),
            name: z.string().optional(),
            description: z.string().optional(),
          }),
        }),
      }),
    })
    .optional(),
  performanceConfig: z.strictObject({ latency: z.enum(['standard', 'optimized']) }).optional(),
  serviceTier: z.strictObject({ type: z.enum(['priority', 'default', 'flex', 'reserved']) }).optional(),
  requestMetadata: z.record(metadataText.min(1), metadataText).optional(),
};
const converseBody = z.strictObject({ ...converse, guardrailConfig: z.strictObject(guardrail).optional() });
const converseStreamBody = z.strictObject({
  ...converse,
  guardrailConfig: z
    .strictObject({ ...guardrail, streamProcessingMode: z.enum(['sync', 'async']).optional() })
    .optional(),
});

/** A Messages body inside InvokeModel: fields of Anthropic's own API that Bedrock refuses are not here. */
export const claudeBody = z.strictObject({
  anthropic_version: z.literal('bedrock-2023-05-31'),
  anthropic_beta: z.array(z.string().min(1)).optional(),
  max_tokens: z.int().min(1),
  messages: z.array(z.looseObject({ role: z.enum(['user', 'assistant']) })).min(1),
  system: z.union([z.string(), z.array(z.looseObject({ type: z.literal('text') }))]).optional(),
  temperature: z.number().optional(),
  top_p: z.number().optional(),
  top_k: z.int().optional(),
  stop_sequences: z.array(z.string()).optional(),
  tools: z.array(z.looseObject({ name: z.string() })).optional(),
  tool_choice: z.looseObject({ type: z.string() }).optional(),
  thinking: z.looseObject({ type: z.string() }).optional(),
  output_config: z.looseObject({}).optional(),
  metadata: z.strictObject({ user_id: z.string() }).optional(),
});
const titanV2 = z.strictObject({
  inputText: z.string().min(1),
  dimensions: z.union([z.literal(256), z.literal(512), z.literal(1024)]).optional(),
  normalize: z.boolean().optional(),
});
const titanV1 = z.strictObject({ inputText: z.string().min(1) });
const titanImage = z.strictObject({
  inputText: z.string().optional(),
  inputImage: base64.optional(),
  embeddingConfig: z.strictObject({ outputEmbeddingLength: z.int() }).optional(),
});
const novaEmbed = z.strictObject({
  taskType: z.literal('SINGLE_EMBEDDING'),
  singleEmbeddingParams: z.strictObject({
    embeddingPurpose: z.string(),
    embeddingDimension: z.int().optional(),
    text: z.strictObject({ truncationMode: z.enum(['START', 'END', 'NONE']), value: z.string() }),
  }),
});
const cohereEmbed = z.strictObject({
  texts: z.array(z.string()).min(1).max(96),
  input_type: z.enum(['search_document', 'search_query', 'classification', 'clustering', 'image']),
  truncate: z.enum(['NONE', 'LEFT', 'RIGHT', 'START', 'END']).optional(),
  embedding_types: z.array(z.string()).optional(),
});
const rerankBody = z.strictObject({
  query: z.string().min(1),
  documents: z.array(z.string()).min(1),
  top_n: z.int().min(1).optional(),
});
const canvas = z.strictObject({
  taskType: z.literal('TEXT_IMAGE'),
  textToImageParams: z.strictObject({ text: z.string().min(1).max(1024), negativeText: z.string().optional() }),
  imageGenerationConfig: z.strictObject({
    numberOfImages: z.int().min(1).max(5),
    width: z.int().optional(),
    height: z.int().optional(),
    quality: z.enum(['standard', 'premium']).optional(),
    cfgScale: z.number().optional(),
    seed: z.int().optional(),
  }),
});
const stability = z.strictObject({
  prompt: z.string().min(1),
  aspect_ratio: z.enum(['16:9', '1:1', '21:9', '2:3', '3:2', '4:5', '5:4', '9:16', '9:21']).optional(),
  negative_prompt: z.string().optional(),
  output_format: z.enum(['jpeg', 'png', 'webp']).optional(),
  seed: z.int().optional(),
});

/** Bodies of InvokeModel by the foundation model. */
const INVOKE: readonly (readonly [RegExp, z.ZodType])[] = [
  [/^anthropic\./, claudeBody],
  [/^amazon\.titan-embed-text-v1/, titanV1],
  [/^amazon\.titan-embed-text-v2/, titanV2],
  [/^amazon\.titan-embed-image/, titanImage],
  [/^amazon\.nova-2-multimodal/, novaEmbed],
  [/^cohere\.embed-v4/, cohereEmbed.extend({ output_dimension: z.int().optional() })],
  [/^cohere\.embed/, cohereEmbed],
  [/^cohere\.rerank/, rerankBody.extend({ api_version: z.literal(2), max_tokens_per_doc: z.int().optional() })],
  [/^amazon\.rerank/, rerankBody],
  [/^amazon\.(nova-canvas|titan-image)/, canvas],
  [/^stability\./, stability],
];

const HEADERS = new Set([
  'host',
  'connection',
  'accept',
  'accept-encoding',
  'content-type',
  'content-length',
  'authorization',
  'x-amz-date',
  'x-amz-security-token',
  'x-amz-content-sha256',
]);
const INVOKE_HEADERS: Readonly<Record<string, RegExp>> = {
  'x-amzn-bedrock-trace': /^(ENABLED|DISABLED|ENABLED_FULL)$/,
  'x-amzn-bedrock-guardrailidentifier': /^([a-z0-9]+|arn:aws:.+)$/,
  'x-amzn-bedrock-guardrailversion': /^([1-9]\d{0,7}|DRAFT)$/,
  'x-amzn-bedrock-performanceconfig-latency': /^(standard|optimized)$/,
};

/** One call as it was understood. */
export interface RuntimeCall {
  /** `converse`, `converse-stream`, `invoke`, `invoke-with-response-stream`, `count-tokens`, or the path of a read. */
  readonly call: string;
  /** As it stands in the path, decoded. */
  readonly model: string;
  readonly body: Fields;
  readonly request: Received;
}

/** A whole answer, or the frames of a stream; null: the call was not expected. */
type Reply = Fields | readonly Buffer[] | null;

export interface BedrockRuntime extends FakeUpstream {
  /** What did not fit the published definitions; a test that leaves any has failed. */
  readonly faults: string[];
  readonly calls: RuntimeCall[];
  /** The next calls fail with this, or with what it says of each. */
  failure: Failure | ((call: RuntimeCall) => Failure | null) | null;
  /** Answer of the next calls. */
  reply: (call: RuntimeCall) => Reply | Promise<Reply>;
  /** Headers of the next answers. */
  answerHeaders: Readonly<Record<string, string>>;
  /** Bytes of a stream sent at once; by default each frame alone. */
  slice: number | null;
  /** The connection breaks where the stream ends. */
  cut: boolean;
}

/** A whole Converse answer. */
export function converseAnswer(content: readonly unknown[], stopReason: string, more: Fields = {}): Fields {
  return {
    output: { message: { role: 'assistant', content } },
    stopReason,
    usage: { inputTokens: 11, outputTokens: 7, totalTokens: 18 },
    metrics: { latencyMs: 12 },
    ...more,
  };
}

export const streamStart = (): Buffer => awsEvent('messageStart', { role: 'assistant' });
export const textDelta = (value: string, contentBlockIndex = 0): Buffer =>
  awsEvent('contentBlockDelta', { contentBlockIndex, delta: { text: value } });
export const blockStop = (contentBlockIndex = 0): Buffer => awsEvent('contentBlockStop', { contentBlockIndex });
export const streamEnd = (stopReason: string, usage: Fields = {}): Buffer[] => [
  awsEvent('messageStop', { stopReason }),
  awsEvent('metadata', {
    usage: { inputTokens: 11, outputTokens: 7, totalTokens: 18, ...usage },
    metrics: { latencyMs: 12 },
  }),
];
/** A call whose arguments come in pieces. */
export const callFrames = (index: number, toolUseId: string, name: string, pieces: readonly string[]): Buffer[] => [
  awsEvent('contentBlockStart', { contentBlockIndex: index, start: { toolUse: { toolUseId, name } } }),
  ...pieces.map((input) => awsEvent('contentBlockDelta', { contentBlockIndex: index, delta: { toolUse: { input } } })),
  blockStop(index),
];
/** A text as ConverseStream sends it: no start of a block. */
export const textFrames = (pieces: readonly string[], stopReason = 'end_turn', usage: Fields = {}): Buffer[] => [
  streamStart(),
  ...pieces.map((piece) => textDelta(piece)),
  blockStop(),
  ...streamEnd(stopReason, usage),
];

const MESSAGE = {
  id: 'msg_bdrk_01',
  type: 'message',
  role: 'assistant',
  model: 'claude-opus-4-1-20250805',
  content: [{ type: 'text', text: 'Grüße' }],
  stop_reason: 'end_turn',
  stop_sequence: null,
  usage: { input_tokens: 9, cache_creation_input_tokens: 0, cache_read_input_tokens: 4, output_tokens: 5 },
};
/** What a Claude model answers, and the same as the events of its stream. */
export const claudeAnswer = (more: Fields = {}): Fields => ({ ...MESSAGE, ...more });
export function claudeFrames(pieces: readonly string[]): Buffer[] {
  const start = { ...MESSAGE, content: [], stop_reason: null, usage: { ...MESSAGE.usage, output_tokens: 1 } };
  return [
    awsChunk({ type: 'message_start', message: start }),
    awsChunk({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } }),
    ...pieces.map((piece) =>
      awsChunk({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: piece } }),
    ),
    awsChunk({ type: 'content_block_stop', index: 0 }),
    awsChunk({
      type: 'message_delta',
      delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: 5 },
    }),
    awsChunk({
      type: 'message_stop',
      'amazon-bedrock-invocationMetrics': {
        inputTokenCount: 9,
        outputTokenCount: 5,
        invocationLatency: 300,
        firstByteLatency: 100,
        cacheReadInputTokenCount: 4,
      },
    }),
  ];
}

/** What the account's own profiles stand for. */
const OWN_PROFILES: Readonly<Record<string, string>> = { a1b2c3d4e5f6: 'anthropic.claude-opus-4-1-20250805-v1:0' };

function foundation(model: string): string {
  const own = OWN_PROFILES[model.split(':application-inference-profile/')[1] ?? ''];
  return own ?? model.replace(/^arn:.*\/(?=[a-z])/, '').replace(/^(us|eu|apac|global)\./, '');
}

function expectAlternating(body: Fields): void {
  const roles = (body.messages as { role: string }[]).map(({ role }) => role);
  if (roles.some((role, i) => role !== (i % 2 === 0 ? 'user' : 'assistant'))) {
    throw new Error(`roles do not alternate: ${roles.join(', ')}`);
  }
}

/** What Bedrock itself checks of calls and their results. */
function expectCallsAnswered(body: Fields): void {
  const messages = body.messages as { content: Fields[] }[];
  const config = body.toolConfig;
  messages.forEach(({ content }, i) => {
    const asked = content.flatMap((block) => (block.toolUse ? [(block.toolUse as Fields).toolUseId] : []));
    if (asked.length === 0) return;
    if (config === undefined) throw new Error('toolConfig is needed where messages hold toolUse');
    const next = messages[i + 1]?.content ?? [];
    const answered = next.flatMap((block) => (block.toolResult ? [(block.toolResult as Fields).toolUseId] : []));
    if (i + 1 < messages.length && JSON.stringify(asked) !== JSON.stringify(answered)) {
      throw new Error(`calls ${asked} are answered by ${answered}`);
    }
    const firstOther = next.findIndex((block) => !block.toolResult && !block.cachePoint);
    if (next.some((block, at) => block.toolResult && firstOther >= 0 && at > firstOther)) {
      throw new Error('results must come first');
    }
  });
}

/** Sends frames in whatever pieces, then ends; a cut breaks the connection instead. */
function sendFrames(response: ServerResponse, frames: readonly Buffer[], slice: number | null, cut: boolean): void {
  response.writeHead(200, {
    'content-type': 'application/vnd.amazon.eventstream',
    'x-amzn-requestid': 'request-of-aws',
  });
  const all = Buffer.concat(frames);
  const pieces =
    slice === null
      ? [...frames]
      : Array.from({ length: Math.ceil(all.length / slice) }, (_, i) => all.subarray(i * slice, (i + 1) * slice));
  const next = (): void => {
    const piece = pieces.shift();
    if (piece !== undefined) {
      response.write(piece);
      setImmediate(next);
    } else if (cut) response.destroy();
    else response.end();
  };
  next();
}

const PROFILES = /^\?maxResults=1000&type=(SYSTEM_DEFINED|APPLICATION)$/;

export async function startBedrockRuntime(options: { readonly now?: () => number } = {}): Promise<BedrockRuntime> {
  const faults: string[] = [];
  const calls: RuntimeCall[] = [];

  function understood(request: Received): RuntimeCall {
    const url = new URL(request.path, 'http://upstream');
    const listed = url.pathname === '/inference-profiles' && PROFILES.test(url.search);
    if (url.search !== '' && !listed) throw new Error(`unknown query ${url.search}`);
    const found = /^\/model\/([^/]+)\/([a-z-]+)$/.exec(url.pathname);
    const invoked = found?.[2] === 'invoke' || found?.[2] === 'invoke-with-response-stream';
    for (const [name, value] of Object.entries(request.headers)) {
      if (HEADERS.has(name) || isTrace(name, value)) continue;
      if (!invoked || INVOKE_HEADERS[name]?.test(String(value)) !== true) {
        throw new Error(`unknown header ${name}: ${value}`);
      }
    }
    if (found === null) {
      if (request.method !== 'GET' || request.body.length > 0) throw new Error('no such operation');
      if (!listed && !/^\/(foundation-models(\/[^/]+)?|inference-profiles\/[^/]+)$/.test(url.pathname)) {
        throw new Error('no such operation');
      }
      return { call: url.pathname + url.search, model: '', body: {}, request };
    }
    const [, segment = '', call = ''] = found;
    if (/[^A-Za-z0-9._~%-]/.test(segment)) throw new Error(`the model is not encoded: ${segment}`);
    const model = decodeURIComponent(segment);
    if (request.method !== 'POST') throw new Error('method');
    if (request.headers['content-type'] !== 'application/json') throw new Error('content-type');
    const given: unknown = JSON.parse(request.body.toString('utf8'));
    return { call, model, body: checked(call, model, given), request };
  }

  function checked(call: string, model: string, given: unknown): Fields {
    switch (call) {
      case 'converse':
      case 'converse-stream': {
        const body: Fields = (call === 'converse' ? converseBody : converseStreamBody).parse(given);
        expectAlternating(body);
        expectCallsAnswered(body);
        return body;
      }
      case 'invoke':
      case 'invoke-with-response-stream': {
        const schema = INVOKE.find(([name]) => name.test(foundation(model)))?.[1];
        if (schema === undefined) throw new Error(`no body is known for ${model}`);
        return schema.parse(given) as Fields;
      }
      case 'count-tokens': {
        if (foundation(model) !== model) throw new Error("The provided model doesn't support counting tokens.");
        const { input } = z
          .strictObject({
            input: z.union([
              z.strictObject({ invokeModel: z.strictObject({ body: base64 }) }),
              z.strictObject({
                converse: z.strictObject({
                  messages: converse.messages,
                  system: converse.system,
                  toolConfig: converse.toolConfig,
                  additionalModelRequestFields: converse.additionalModelRequestFields,
                }),
              }),
            ]),
          })
          .parse(given);
        if ('converse' in input) return input.converse;
        return claudeBody.parse(JSON.parse(Buffer.from(input.invokeModel.body, 'base64').toString()));
      }
      default:
        throw new Error('no such operation');
    }
  }

  function fail(response: ServerResponse, { status, name, message: said }: Failure): void {
    const body = JSON.stringify({ message: said });
    response.writeHead(status, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
      'x-amzn-errortype': `${name}:http://internal.amazon.com/coral/com.amazon.bedrock/`,
      'x-amzn-requestid': 'request-of-aws',
    });
    response.end(body);
  }

  const plain = await startUpstream(async (request, response) => {
    const { authorization } = request.headers;
    const signature =
      authorization === `Bearer ${BEDROCK_KEY}`
        ? null
        : signatureFault(
            { method: request.method, path: request.path, headers: request.headers, body: request.body },
            {
              service: 'bedrock',
              region: BEDROCK_REGION,
              keys: [AWS_KEYS, ROLE_KEYS],
              now: options.now ?? (() => Date.now()),
            },
          );
    let call: RuntimeCall;
    try {
      if (signature !== null) throw new Error(signature);
      call = understood(request);
    } catch (error) {
      const fault = error instanceof z.ZodError ? z.prettifyError(error) : String(error);
      faults.push(`${request.method} ${request.path}: ${fault}\n${request.body.toString('utf8').slice(0, 2000)}`);
      fail(response, { status: 400, name: 'ValidationException', message: fault });
      return;
    }
    calls.push(call);
    const failure = typeof upstream.failure === 'function' ? upstream.failure(call) : upstream.failure;
    if (failure !== null) return fail(response, failure);
    const answer = await upstream.reply(call);
    if (answer === null) return fail(response, { status: 500, name: 'InternalServerException', message: 'no answer' });
    if (isFrames(answer)) return sendFrames(response, answer, upstream.slice, upstream.cut);
    for (const [name, value] of Object.entries(upstream.answerHeaders)) response.setHeader(name, value);
    sendJson(response, 200, answer);
  });
  const upstream = Object.defineProperties(plain, {
    faults: { value: faults },
    calls: { value: calls },
    failure: { value: null, writable: true },
    reply: { value: () => null, writable: true },
    answerHeaders: { value: {}, writable: true },
    slice: { value: null, writable: true },
    cut: { value: false, writable: true },
  }) as BedrockRuntime;
  return upstream;
}

const isFrames = (answer: Fields | readonly Buffer[]): answer is readonly Buffer[] => Array.isArray(answer);

export { awsException };
