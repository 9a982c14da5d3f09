/**
 * The config object: one schema for the root and for every target, each read by itself. Structure lives here, what one field
 * demands of another in `rules.ts`, conditions of the conditional strategy in `conditions.ts`.
 */
import { z } from 'zod';
import { MAX_CHECKS } from '../../guardrails/catalog.ts';
import type { ConfigField } from '../../providers/account.ts';
import { ALL_FIELDS } from '../../providers/accounts.ts';
import { customHost, text } from '../body-fields.ts';

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

/** Of one strategy. */
const MAX_CONDITIONS = 1_000;

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
  conditions: z.array(condition).min(1).max(MAX_CONDITIONS).optional(),
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
  log_content: z.enum(['withheld', 'as_sent']).optional(),
};

const parameters = z.record(
  z.string(),
  z.unknown(),
  'is neither a setting of a guardrail nor the id of a check with an object of parameters',
);

/** Of one list. */
const MAX_GUARDRAILS = 100;

/** Any further key is a check id with its parameters; `rules.ts` checks how it is spelled. */
const inlineGuardrail = z.object({ id: short.optional(), ...behaviour }).catchall(parameters);
const guardrails = z.array(z.union([short, inlineGuardrail])).max(MAX_GUARDRAILS);

const check = z.strictObject({
  id: short,
  name: text(255).optional(),
  is_enabled: z.boolean().optional(),
  parameters: json,
});

const hook = z.strictObject({
  type: z.enum(['guardrail', 'mutator']).optional(),
  id: short,
  checks: z.array(check).max(MAX_CHECKS).optional(),
  ...behaviour,
});
const hooks = z.array(hook).max(MAX_GUARDRAILS);

/** A base provider (`openai`) or a stored one (`@openai-prod`). Whether it exists is decided at request time. */
const providerRef = z
  .string()
  .max(256)
  .regex(
    /^@?[A-Za-z0-9][A-Za-z0-9._-]*$|^@[A-Za-z0-9_-]+$/,
    'must be the name of a provider, such as "openai", or "@" and a provider slug',
  );

/** A key of configs that is a setting of an account. */
interface AccountKey extends ConfigField {
  readonly key: string;
  /** Name of the setting in the account. */
  readonly setting: string;
  readonly schema: z.ZodType;
  readonly secret: boolean;
}

/** As the providers declare them. A setting that several have may have a key for each of its spellings. */
const accountKeys: readonly AccountKey[] = [
  ...new Map(
    ALL_FIELDS.flatMap(([setting, field]) => {
      if (field.config === undefined) return [];
      const { name: key = setting, schema = field.secret ? secret : short } = field.config;
      return [[key, { ...field.config, key, setting, schema, secret: field.secret === true }] as const];
    }),
  ).values(),
];

/** Settings of clouds and accounts. Any of them beside `provider` makes a target complete. */
const account: object = Object.fromEntries(accountKeys.map(({ key, schema }) => [key, schema.optional()]));

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
};

const withoutAccount = z.strictObject(keys);

/**
 * A valid config in its stored form: snake case, nothing unknown. Targets have the same type. The settings of accounts
 * are beside these keys; `accountValue` reads them.
 */
export interface Config extends z.output<typeof withoutAccount> {
  targets?: Config[] | undefined;
}

/** What no strategy takes; `rules.ts` says how many each does. */
export const MAX_TARGETS = 1_000;

/** A root or target by itself: what its `targets` hold is read by the same schema, one by one (`schema.ts`). */
export const levelSchema: z.ZodType<Omit<Config, 'targets'> & { targets?: unknown[] | undefined }> = z.strictObject({
  ...keys,
  ...account,
  targets: z.array(z.unknown()).min(1).max(MAX_TARGETS).optional(),
});

/** JSON Schema of the root, for the API description; a target is described by the same keys. */
export function describeConfig(): Record<string, unknown> {
  const targets = z.array(z.record(z.string(), z.unknown())).min(1).optional();
  const shown = z.strictObject({
    ...keys,
    ...account,
    targets: targets.describe('Each target has the keys of a config.'),
  });
  const { $schema: _, ...schema } = z.toJSONSchema(shown, { io: 'input' });
  return schema;
}

export type Strategy = z.output<typeof strategy>;
export type InlineGuardrail = z.output<typeof inlineGuardrail>;
export type Hook = z.output<typeof hook>;

export const ACCOUNT_KEYS: readonly string[] = accountKeys.map(({ key }) => key);

/** The value of a key by a name that is not in the type: one of `ACCOUNT_KEYS` or `SECRET_KEYS`. */
export const accountValue = (config: Config, key: string): unknown => (config as Record<string, unknown>)[key];

const settings: ReadonlyMap<string, AccountKey> = new Map(accountKeys.map((one) => [one.key, one]));

/**
 * The settings of an account that a config gives, by the names that accounts have for them.
 *
 * @param only names of settings that count, beside those that always do; null: all
 */
export function accountSettings(config: Config, only: ReadonlySet<string> | null): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(config)) {
    const found = settings.get(key);
    if (found === undefined || !(only === null || found.besideStored || only.has(found.setting))) continue;
    out[found.setting] = found.toSetting ? found.toSetting(value) : value;
  }
  return out;
}

/** Values that are sealed at rest and answered only as a mask, wherever in the tree they stand. */
export const SECRET_KEYS: readonly string[] = [
  'api_key',
  ...accountKeys.flatMap(({ key, secret }) => (secret ? [key] : [])),
];

/** Secrets that are objects, and are sealed as their JSON. */
export const JSON_SECRET_KEYS: ReadonlySet<string> = new Set(
  accountKeys.flatMap(({ key, secret, json }) => (secret && json ? [key] : [])),
);

/** The four lists of guardrails and mutators, and the two of raw hooks. */
export const GUARDRAIL_LISTS = [
  'input_guardrails',
  'output_guardrails',
  'input_mutators',
  'output_mutators',
] as const satisfies readonly (keyof Config)[];
export const HOOK_LISTS = ['before_request_hooks', 'after_request_hooks'] as const satisfies readonly (keyof Config)[];

/** One level of the object: which keys it knows, and the levels below them. The value of any other key is content, left as it is. */
export interface Level {
  readonly keys: readonly string[];
  readonly below: Readonly<Record<string, () => Level>>;
  /** Items that a list of it may have. A longer one is refused before anything is made of its items. */
  readonly most?: number;
}

const level = (schema: z.ZodObject, below: Level['below'] = {}, most?: number): Level => ({
  keys: Object.keys(schema.shape),
  below,
  ...(most === undefined ? {} : { most }),
});
const FEEDBACK: Level = { keys: ['value', 'weight', 'metadata'], below: {} };
const OUTCOME = level(outcome, { feedback: () => FEEDBACK });
const RETRY = level(retry);
const EMBEDDING: Level = { keys: ['provider', 'model'], below: {} };
const CACHE = level(cache, { embedding: () => EMBEDDING });
const TIMEOUTS = level(timeouts);
const STREAM = level(stream, { restart_within: () => ({ keys: ['bytes', 'tokens', 'ms'], below: {} }) });
const HEDGE = level(hedge);
/** Of settings that are lists of objects. */
const ACCOUNT_LEVELS = accountKeys.flatMap(({ key, schema }) => {
  if (!(schema instanceof z.ZodArray && schema.element instanceof z.ZodObject)) return [];
  const below = level(schema.element);
  return [[key, () => below] as const];
});
const CHECK = level(check, {}, MAX_CHECKS);
const CONDITION = level(condition, {}, MAX_CONDITIONS);
const STICKY = level(sticky);
const BREAKER = level(circuitBreaker);
const GUARDRAIL = level(inlineGuardrail, { on_success: () => OUTCOME, on_fail: () => OUTCOME }, MAX_GUARDRAILS);
const HOOK = level(hook, { checks: () => CHECK, on_success: () => OUTCOME, on_fail: () => OUTCOME }, MAX_GUARDRAILS);
const STRATEGY = level(strategy, {
  conditions: () => CONDITION,
  sticky: () => STICKY,
  cb_config: () => BREAKER,
});

/** Where the keys of the config format stand, for their camel-case spellings (`normalise.ts`). */
export const CONFIG_LEVEL: Level = {
  keys: [...Object.keys(keys), ...ACCOUNT_KEYS, 'targets'],
  most: MAX_TARGETS,
  below: {
    ...Object.fromEntries(ACCOUNT_LEVELS),
    targets: () => CONFIG_LEVEL,
    strategy: () => STRATEGY,
    retry: () => RETRY,
    timeouts: () => TIMEOUTS,
    stream: () => STREAM,
    hedge: () => HEDGE,
    cache: () => CACHE,
    cb_config: () => BREAKER,
    input_guardrails: () => GUARDRAIL,
    output_guardrails: () => GUARDRAIL,
    input_mutators: () => GUARDRAIL,
    output_mutators: () => GUARDRAIL,
    before_request_hooks: () => HOOK,
    after_request_hooks: () => HOOK,
  },
};
