/**
 * OpenTelemetry's semantic conventions of generative AI, version 1.41, as data: names change between versions, and what
 * uses them does not. Durations are seconds.
 */

const DURATIONS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92] as const;

export const V1_41 = {
  attributes: {
    operation: 'gen_ai.operation.name',
    provider: 'gen_ai.provider.name',
    requestModel: 'gen_ai.request.model',
    tokenType: 'gen_ai.token.type',
    errorType: 'error.type',
    responseModel: 'gen_ai.response.model',
    stream: 'gen_ai.request.stream',
    inputTokens: 'gen_ai.usage.input_tokens',
    outputTokens: 'gen_ai.usage.output_tokens',
    cacheReadTokens: 'gen_ai.usage.cache_read.input_tokens',
    cacheWriteTokens: 'gen_ai.usage.cache_creation.input_tokens',
    reasoningTokens: 'gen_ai.usage.reasoning.output_tokens',
    timeToFirstChunk: 'gen_ai.response.time_to_first_chunk',
  },
  /** By the family of `metrics/families.ts` that shows it. */
  metrics: {
    gen_ai_client_token_usage: {
      name: 'gen_ai.client.token.usage',
      unit: '{token}',
      buckets: [1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864],
    },
    gen_ai_client_operation_duration_seconds: {
      name: 'gen_ai.client.operation.duration',
      unit: 's',
      buckets: DURATIONS,
    },
    gen_ai_server_request_duration_seconds: {
      name: 'gen_ai.server.request.duration',
      unit: 's',
      buckets: DURATIONS,
    },
    gen_ai_server_time_to_first_token_seconds: {
      name: 'gen_ai.server.time_to_first_token',
      unit: 's',
      buckets: [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10],
    },
    gen_ai_server_time_per_output_token_seconds: {
      name: 'gen_ai.server.time_per_output_token',
      unit: 's',
      buckets: [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5],
    },
  },
} as const;

/** The conventions' names of providers, by Sluice's id; others have no name there and keep their id. */
export const PROVIDER_NAMES: Readonly<Record<string, string>> = {
  'azure-ai': 'azure.ai.inference',
  'azure-openai': 'azure.ai.openai',
  bedrock: 'aws.bedrock',
  google: 'gcp.gemini',
  'mistral-ai': 'mistral_ai',
  moonshot: 'moonshot_ai',
  'vertex-ai': 'gcp.vertex_ai',
  xai: 'x_ai',
};
