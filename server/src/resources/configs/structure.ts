/**
 * The config object: one schema for the root and for every target. Structure lives here, what one field
 * demands of another in `rules.ts`, conditions of the conditional strategy in `conditions.ts`.
 */
import { z } from 'zod';
import { customHost, text } from '../shapes.ts';

const json = z.record(z.string(), z.unknown());
const statusCode = z.int().min(100).max(599);
const statusCodes = z.array(statusCode).max(500);
const short = text(255, 1);
const secret = text(16_384, 1);
/** Above 2^31-1 a timer fires at once, so a larger number would mean the opposite of what it says. */
const MAX_MILLIS = 2_147_483_647;

const circuitBreaker = z.strictObject({
  failure_threshold: z.int().min(1).optional(),
  failure_threshold_percentage: z.number().min(1).max(100).optional(),
  minimum_requests: z.int().min(1).optional(),
  cooldown_interval: z.int().min(30_000).max(MAX_MILLIS),
  window_interval: z
    .int()
    .min(1000)
    .max(86_400_000)
    .optional()
    .describe('Milliseconds within which failures and requests are counted; 300000 without it.'),
  failure_status_codes: statusCodes.optional(),
});

const condition = z.strictObject({
  /** Checked by `conditions.ts`. */
  query: json,
  // biome-ignore lint/suspicious/noThenProperty: the name is the contract's
  then: short,
});

const sticky = z.strictObject({
  enabled: z.boolean().optional(),
  hash_fields: z.array(short).max(20).optional(),
  ttl: z.int().min(1).max(31_536_000).optional(),
});

const strategy = z.strictObject({
  mode: z.enum(['single', 'loadbalance', 'fallback', 'conditional']),
  on_status_codes: statusCodes.optional(),
  conditions: z.array(condition).min(1).max(1000).optional(),
  default: short.optional(),
  sticky: sticky.optional(),
  cb_config: circuitBreaker.optional(),
});

const retry = z.strictObject({
  attempts: z.int().min(0).max(5),
  on_status_codes: statusCodes.optional(),
  use_retry_after_headers: z.boolean().optional(),
});

const millis = z.int().min(1).max(MAX_MILLIS);

/** Limits of one attempt, milliseconds, beside `request_timeout`. */
const timeouts = z.strictObject({
  connect: millis.optional(),
  first_token: millis.optional(),
  stream_idle: millis.optional(),
});

/** What becomes of a stream that breaks after it began, and how much of it may wait for that. */
const stream = z.strictObject({
  on_break: z.enum(['error', 'restart', 'continue']),
  restart_within: z
    .strictObject({
      bytes: z.int().min(1).max(4_194_304).optional(),
      tokens: z.int().min(1).max(100_000).optional(),
      ms: z.int().min(1).max(600_000).optional(),
    })
    .optional(),
});

const hedge = z.strictObject({
  delay: millis,
  max: z.int().min(1).max(3).optional(),
});

const cache = z.strictObject({
  mode: z.enum(['simple', 'semantic']),
  max_age: z.int().min(60).max(7_776_000).optional(),
  /** Semantic: where questions become vectors. */
  embedding: z
    .strictObject({
      provider: z
        .string()
        .max(256)
        .regex(/^@[A-Za-z0-9_-]+$/, 'must be "@" and a provider slug'),
      model: short,
    })
    .optional(),
  /** Semantic: cosine similarity from which an answer is given again. */
  threshold: z.number().min(0).max(1).optional(),
  /** Semantic: whether answers to other system prompts count. */
  system: z.enum(['ignore', 'match']).optional(),
});

const outcome = z.strictObject({
  feedback: z
    .strictObject({
      value: z.number().min(-10).max(10).optional(),
      weight: z.number().min(0).max(1).optional(),
      metadata: z.union([text(4096), json]).optional(),
    })
    .optional(),
});

const behaviour = {
  deny: z.boolean().optional(),
  async: z.boolean().optional(),
  sequential: z.boolean().optional(),
  on_success: outcome.optional(),
  on_fail: outcome.optional(),
  soft_deny_200: z.boolean().optional(),
  on_error: z.enum(['allow', 'deny']).optional(),
  messages: z.enum(['all', 'new', 'last']).optional(),
  stream: z.enum(['incremental', 'buffer']).optional(),
};

const parameters = z.record(
  z.string(),
  z.unknown(),
  'is neither a setting of a guardrail nor the id of a check with an object of parameters',
);

/** Any further key is a check id with its parameters; `rules.ts` checks how it is spelled. */
const inlineGuardrail = z.object({ id: short.optional(), ...behaviour }).catchall(parameters);
const guardrails = z.array(z.union([short, inlineGuardrail])).max(100);

const check = z.strictObject({
  id: short,
  name: text(255).optional(),
  is_enabled: z.boolean().optional(),
  parameters: json,
});

const hook = z.strictObject({
  type: z.enum(['guardrail', 'mutator']).optional(),
  id: short,
  checks: z.array(check).max(100).optional(),
  ...behaviour,
});
const hooks = z.array(hook).max(100);

const deployment = z.strictObject({
  deployment_id: short,
  alias: short,
  api_version: text(30, 1),
  is_default: z.boolean().optional(),
});

/** A base provider (`openai`) or a stored one (`@openai-prod`). Whether it exists is decided at request time. */
const providerRef = z
  .string()
  .max(256)
  .regex(
    /^@?[A-Za-z0-9][A-Za-z0-9._-]*$|^@[A-Za-z0-9_-]+$/,
    'must be the name of a provider, such as "openai", or "@" and a provider slug',
  );

/** Settings of clouds and accounts. Any of them beside `provider` makes a target complete. */
const account = {
  resource_name: short.optional(),
  deployment_id: short.optional(),
  api_version: text(30, 1).optional(),
  deployments: z.array(deployment).min(1).max(100).optional(),
  openai_organization: short.optional(),
  openai_project: short.optional(),
  aws_access_key_id: short.optional(),
  aws_secret_access_key: secret.optional(),
  aws_region: short.optional(),
  aws_session_token: secret.optional(),
  vertex_project_id: short.optional(),
  vertex_region: short.optional(),
  vertex_service_account_json: json.optional(),
  azure_region: short.optional(),
  azure_deployment_name: short.optional(),
  azure_deployment_type: z.enum(['serverless', 'managed']).optional(),
  azure_endpoint_name: short.optional(),
  azure_api_version: text(30, 1).optional(),
  azure_auth_mode: short.optional(),
  azure_entra_scope: text(2048, 1).optional(),
  azure_model_name: short.optional(),
  anthropic_beta: text(2048, 1).optional(),
  anthropic_version: short.optional(),
};

const keys = {
  strategy: strategy.optional(),
  name: short.optional(),
  weight: z.number().min(0).max(1e12).optional(),
  provider: providerRef.optional(),
  virtual_key: z
    .string()
    .max(256)
    .regex(/^[A-Za-z0-9_-]+$/, 'must be the slug of a virtual key')
    .optional(),
  api_key: secret.optional(),
  prompt_id: short.optional(),
  custom_host: customHost.optional(),
  passthrough: z.boolean().optional(),
  fetch_integrated_models: z.boolean().optional(),
  override_params: json.optional(),
  default_params: json.optional(),
  drop_params: z.array(text(512, 1)).max(1000).optional(),
  forward_headers: z.array(short).max(100).optional(),
  request_timeout: z.int().min(1).max(MAX_MILLIS).optional(),
  timeouts: timeouts.optional(),
  stream: stream.optional(),
  hedge: hedge.optional(),
  retry: retry.optional(),
  cache: cache.optional(),
  on_status_codes: statusCodes.optional(),
  cb_config: circuitBreaker.optional(),
  input_guardrails: guardrails.optional(),
  output_guardrails: guardrails.optional(),
  before_request_hooks: hooks.optional(),
  after_request_hooks: hooks.optional(),
  input_mutators: guardrails.optional(),
  output_mutators: guardrails.optional(),
  strict_open_ai_compliance: z.boolean().optional(),
  metadata: z
    .record(text(128, 1), text(128))
    .refine((value) => Object.keys(value).length <= 64, 'must have at most 64 keys')
    .optional()
    .describe('Of the root only: added to the metadata of each request, where it says nothing else.'),
  ...account,
};

const withoutTargets = z.strictObject(keys);

/** A valid config in its stored form: snake case, nothing unknown. Targets have the same type. */
export interface Config extends z.output<typeof withoutTargets> {
  targets?: Config[] | undefined;
}

/** What no strategy takes; `rules.ts` says how many each does. */
const MAX_TARGETS = 1_000;

export const configSchema: z.ZodType<Config> = z.strictObject({
  ...keys,
  get targets() {
    return z.array(configSchema).min(1).max(MAX_TARGETS).optional();
  },
});
/** JSON Schema of the root, for the API description; a target is described by the same keys. */
export function describeConfig(): Record<string, unknown> {
  const targets = z.array(z.record(z.string(), z.unknown())).min(1).optional();
  const shown = z.strictObject({ ...keys, targets: targets.describe('Each target has the keys of a config.') });
  const { $schema: _, ...schema } = z.toJSONSchema(shown, { io: 'input' });
  return schema;
}

export type Strategy = z.output<typeof strategy>;
export type InlineGuardrail = z.output<typeof inlineGuardrail>;
export type Hook = z.output<typeof hook>;

export const ACCOUNT_KEYS = Object.keys(account) as (keyof typeof account)[];

/** Values that are sealed at rest and answered only as a mask, wherever in the tree they stand. */
export const SECRET_KEYS = [
  'api_key',
  'aws_access_key_id',
  'aws_secret_access_key',
  'aws_session_token',
  'vertex_service_account_json',
] as const satisfies readonly (keyof Config)[];

/** The four lists of guardrails and mutators, and the two of raw hooks. */
export const GUARDRAIL_LISTS = [
  'input_guardrails',
  'output_guardrails',
  'input_mutators',
  'output_mutators',
] as const satisfies readonly (keyof Config)[];
export const HOOK_LISTS = ['before_request_hooks', 'after_request_hooks'] as const satisfies readonly (keyof Config)[];

/** One level of the object: which keys it knows, and the levels below them. What stands below any other key is content, left as it is. */
export interface Level {
  readonly keys: readonly string[];
  readonly below: Readonly<Record<string, () => Level>>;
}

const level = (schema: z.ZodObject, below: Level['below'] = {}): Level => ({ keys: Object.keys(schema.shape), below });
const FEEDBACK: Level = { keys: ['value', 'weight', 'metadata'], below: {} };
const OUTCOME = level(outcome, { feedback: () => FEEDBACK });
const RETRY = level(retry);
const EMBEDDING: Level = { keys: ['provider', 'model'], below: {} };
const CACHE = level(cache, { embedding: () => EMBEDDING });
const TIMEOUTS = level(timeouts);
const STREAM = level(stream, { restart_within: () => ({ keys: ['bytes', 'tokens', 'ms'], below: {} }) });
const HEDGE = level(hedge);
const DEPLOYMENT = level(deployment);
const CHECK = level(check);
const CONDITION = level(condition);
const STICKY = level(sticky);
const BREAKER = level(circuitBreaker);
const GUARDRAIL = level(inlineGuardrail, { on_success: () => OUTCOME, on_fail: () => OUTCOME });
const HOOK = level(hook, { checks: () => CHECK, on_success: () => OUTCOME, on_fail: () => OUTCOME });
const STRATEGY = level(strategy, {
  conditions: () => CONDITION,
  sticky: () => STICKY,
  cb_config: () => BREAKER,
});

/** Where the keys of the config format stand, for their camel-case spellings (`normalise.ts`). */
export const CONFIG_LEVEL: Level = {
  keys: [...Object.keys(keys), 'targets'],
  below: {
    targets: () => CONFIG_LEVEL,
    strategy: () => STRATEGY,
    retry: () => RETRY,
    timeouts: () => TIMEOUTS,
    stream: () => STREAM,
    hedge: () => HEDGE,
    cache: () => CACHE,
    cb_config: () => BREAKER,
    deployments: () => DEPLOYMENT,
    input_guardrails: () => GUARDRAIL,
    output_guardrails: () => GUARDRAIL,
    input_mutators: () => GUARDRAIL,
    output_mutators: () => GUARDRAIL,
    before_request_hooks: () => HOOK,
    after_request_hooks: () => HOOK,
  },
};
