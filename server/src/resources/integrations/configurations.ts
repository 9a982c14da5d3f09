/**
 * The settings of an account by base provider and way of signing in, as data: which fields there are,
 * which must be given, which are secret. Integrations store them under these names; virtual keys translate their
 * camel-case names into them (`virtual-keys/settings.ts`). Providers outside the table have the fields they declare
 * themselves in the provider catalog.
 */
import { z } from 'zod';
import { REGION } from '../../providers/aws/settings.ts';
import { RESOURCE_NAME } from '../../providers/azure-openai/settings.ts';
import { PROVIDERS, providerById } from '../../providers/catalog.ts';
import { isAddress } from '../../providers/settings.ts';
import { type Issue, issuesOf } from '../issues.ts';
import {
  type CheckHost,
  customHeaders,
  customHost,
  isMask,
  maskOf,
  REFUSED_MASK,
  secretText,
  text,
} from '../shapes.ts';

type Need = 'required' | 'optional';

interface Field {
  readonly schema: z.ZodType;
  readonly need: Need;
  /** Sealed at rest, answered as `masked_<name>`. */
  readonly secret: boolean;
  /** The text of an address: it passes the injected host check. */
  readonly host: boolean;
  /** Says where calls and secrets go, or is part of it. Secrets that are stored do not follow when it changes. */
  readonly address: boolean;
}

type Fields = Readonly<Record<string, Field>>;

interface Variant {
  readonly fields: Fields;
  /** Whether the `key` of the integration is needed with this way of signing in. */
  readonly needsKey: boolean;
}

interface Family {
  readonly fields: Fields;
  readonly needsKey: boolean;
  /** The field whose value picks a variant. */
  readonly selector?: { readonly field: string; readonly variants: Readonly<Record<string, Variant>> };
}

const short = text(255, 1);
/** Becomes part of a host name. */
const awsRegion = short.regex(REGION, { error: 'must be the name of an AWS region, such as eu-central-1' });
const field = (schema: z.ZodType, need: Need, extra: Partial<Field> = {}): Field => ({
  schema,
  need,
  secret: false,
  host: false,
  address: false,
  ...extra,
});
const optional = (schema: z.ZodType = short) => field(schema, 'optional');
const required = (schema: z.ZodType = short) => field(schema, 'required');
const secret = (schema: z.ZodType = secretText) => field(schema, 'required', { secret: true });
const optionalSecret = () => field(secretText, 'optional', { secret: true });
const host = (need: Need) => field(customHost, need, { host: true, address: true });
const place = (need: Need, schema: z.ZodType = short) => field(schema, need, { address: true });

/** It becomes part of a host name, and must not be able to become another one. */
const resourceName = z.string().regex(RESOURCE_NAME, { error: 'must be 1 to 63 letters, digits and hyphens' });

const azureDeployment = z.strictObject({
  azure_api_version: text(30, 1),
  azure_deployment_name: short,
  azure_model_slug: short,
  alias: short.optional(),
  is_default: z.boolean().optional(),
});

const AZURE_MODES: NonNullable<Family['selector']> = {
  field: 'azure_auth_mode',
  variants: {
    default: { needsKey: true, fields: {} },
    entra: {
      needsKey: false,
      fields: {
        azure_entra_tenant_id: place('required'),
        azure_entra_client_id: required(),
        azure_entra_client_secret: secret(),
      },
    },
    managed: { needsKey: false, fields: { azure_managed_client_id: optional() } },
    workload: {
      needsKey: false,
      fields: { azure_workload_client_id: required(), azure_workload_tenant_id: place('required') },
    },
    entraFederated: {
      needsKey: false,
      fields: { azure_entra_tenant_id: place('required'), azure_entra_client_id: required() },
    },
  },
};

const AWS_TYPES: NonNullable<Family['selector']> = {
  field: 'aws_auth_type',
  variants: {
    accessKey: { needsKey: false, fields: { aws_access_key_id: secret(), aws_secret_access_key: secret() } },
    assumedRole: {
      needsKey: false,
      fields: {
        aws_role_arn: required(text(2048, 1)),
        aws_external_id: optional(),
        // Who assumes the role; without them the server itself does.
        aws_access_key_id: optionalSecret(),
        aws_secret_access_key: optionalSecret(),
      },
    },
    serviceRole: { needsKey: false, fields: {} },
    apiKey: { needsKey: true, fields: {} },
  },
};

/** The key file of a cloud service account, as its JSON object. */
const serviceAccount = z
  .record(z.string(), z.unknown())
  .refine((value) => JSON.stringify(value).length <= 16_384, { error: 'must have at most 16384 characters as JSON' })
  .refine((value) => !Object.values(value).some(isMask), { error: REFUSED_MASK });

const FAMILIES: Readonly<Record<string, Family>> = {
  openai: { needsKey: true, fields: { openai_organization: optional(), openai_project: optional() } },
  'azure-openai': {
    needsKey: true,
    fields: {
      azure_resource_name: place('required', resourceName),
      azure_deployment_config: required(z.array(azureDeployment).min(1).max(200)),
    },
    selector: AZURE_MODES,
  },
  'azure-ai': {
    needsKey: true,
    fields: {
      azure_foundry_url: host('required'),
      azure_api_version: optional(text(30, 1)),
      azure_deployment_name: optional(),
    },
    selector: AZURE_MODES,
  },
  bedrock: {
    needsKey: false,
    fields: {
      aws_region: place('required', awsRegion),
      aws_s3_endpoint: host('optional'),
      aws_sts_endpoint: host('optional'),
    },
    selector: AWS_TYPES,
  },
  sagemaker: {
    needsKey: false,
    fields: {
      aws_region: place('required', awsRegion),
      ...Object.fromEntries(
        [
          'custom_attributes',
          'target_model',
          'target_variant',
          'target_container_hostname',
          'inference_id',
          'enable_explanations',
          'inference_component',
          'session_id',
          'model_name',
        ].map((name) => [`amzn_sagemaker_${name}`, optional(text(1024, 1))]),
      ),
    },
    selector: AWS_TYPES,
  },
  'vertex-ai': {
    needsKey: false,
    fields: { vertex_region: place('required'), vertex_skip_ptu_cost_attribution: optional(z.boolean()) },
    selector: {
      field: 'vertex_auth_type',
      variants: {
        basic: { needsKey: true, fields: { vertex_project_id: place('required') } },
        serviceAccount: {
          needsKey: false,
          fields: { vertex_service_account_json: secret(serviceAccount), vertex_project_id: place('optional') },
        },
        wif: { needsKey: false, fields: { vertex_project_id: place('optional') } },
      },
    },
  },
  'workers-ai': { needsKey: true, fields: { workers_ai_account_id: place('required') } },
  huggingface: { needsKey: true, fields: { huggingface_base_url: host('optional') } },
  cortex: { needsKey: true, fields: { snowflake_account: place('required') } },
  anthropic: { needsKey: true, fields: { anthropic_inspect_stream_for_overloaded_error: optional(z.boolean()) } },
};

/** For every provider: a host and headers of one's own. */
const COMMON: Fields = {
  custom_host: host('optional'),
  // Their values are what servers let callers in by.
  custom_headers: field(customHeaders, 'optional', { secret: true }),
};

/** For every provider without a selector of its own: OAuth client credentials in place of the key. */
const OAUTH: NonNullable<Family['selector']> = {
  field: 'auth_type',
  variants: {
    apiKey: { needsKey: true, fields: {} },
    oauthClientCredentials: {
      needsKey: false,
      fields: {
        oauth_token_endpoint: host('required'),
        oauth_client_id: required(),
        oauth_client_secret: secret(),
        oauth_scope: optional(text(2048, 1)),
      },
    },
  },
};

/** The base providers an account can be stored for: those of the table and of the provider catalog. */
export function isKnownProvider(id: string): boolean {
  return Object.hasOwn(FAMILIES, id) || providerById(id) !== undefined;
}

export function knownProviders(): string[] {
  return [...new Set([...Object.keys(FAMILIES), ...PROVIDERS.keys()])].sort();
}

interface Layout {
  readonly fields: Fields;
  readonly needsKey: boolean;
  readonly issues: readonly Issue[];
}

/** The fields that a provider declares for itself, where the table says nothing. */
function declaredFields(id: string): Record<string, Field> {
  const provider = providerById(id);
  if (!provider || !(provider.settings instanceof z.ZodObject)) return {};
  const out: Record<string, Field> = {};
  for (const [name, schema] of Object.entries(provider.settings.shape as Record<string, z.ZodType>)) {
    const isSecret = provider.secretSettings.includes(name);
    out[name] = field(schema, schema.safeParse(undefined).success ? 'optional' : 'required', {
      secret: isSecret,
      address: isAddress(schema),
    });
  }
  return out;
}

/** Fields and key need of `id` with the selectors as given in `value`; a missing or unknown selector is an issue. */
function layoutOf(id: string, value: Readonly<Record<string, unknown>>): Layout {
  const family = Object.hasOwn(FAMILIES, id) ? FAMILIES[id] : undefined;
  const own: Record<string, Field> = { ...declaredFields(id), ...COMMON, ...family?.fields };
  // What belongs to one way of signing in is not open to the others.
  for (const { fields } of Object.values(family?.selector?.variants ?? {})) {
    for (const name of Object.keys(fields)) if (!Object.hasOwn(family?.fields ?? {}, name)) delete own[name];
  }
  const needsKey = providerById(id)?.needsKey ?? family?.needsKey ?? true;
  const issues: Issue[] = [];
  let fields: Record<string, Field> = own;
  let key = needsKey;
  for (const [selector, need] of [
    [family?.selector, 'required'],
    [OAUTH, 'optional'],
  ] as const) {
    if (!selector) continue;
    const names = Object.keys(selector.variants);
    const chosen = value[selector.field];
    fields = { ...fields, [selector.field]: field(z.enum(names as [string, ...string[]]), need, { address: true }) };
    if (chosen === undefined) continue;
    const variant =
      typeof chosen === 'string' && Object.hasOwn(selector.variants, chosen) ? selector.variants[chosen] : undefined;
    if (!variant) {
      issues.push({ path: selector.field, message: `must be one of ${names.join(', ')}` });
      continue;
    }
    fields = { ...fields, ...variant.fields };
    if (selector === OAUTH) key = variant.needsKey ? key : false;
    else key = variant.needsKey;
  }
  return { fields, needsKey: key, issues };
}

/** Names of all fields of `id`, for checks of names alone (secret mappings). */
export const fieldNames = (id: string): Set<string> => new Set(Object.keys(allFields(id)));

export interface CheckOptions {
  readonly checkHost: CheckHost;
  /** Fields that a secret mapping fills at call time: they need not be given. */
  readonly mapped?: ReadonlySet<string>;
  /** What is stored already: secret settings stay when the caller leaves them out, or sends them back as their masks. */
  readonly stored?: StoredAccount;
}

/** Settings as they are stored, for an update. */
export interface StoredAccount {
  readonly plain: Readonly<Record<string, unknown>>;
  readonly secrets: Readonly<Record<string, unknown>>;
  /** Envelope of the secret settings, which their masks are made of. */
  readonly sealed: string | null;
  /** A key is stored and the body brings no other. */
  readonly keyStays: boolean;
}

export type CheckedSettings =
  | {
      readonly ok: true;
      /** Settings to store in the clear. */
      readonly plain: Record<string, unknown>;
      /** Settings to seal, kept ones included. */
      readonly secrets: Record<string, unknown>;
      /** Whether calls need the provider key beside them. */
      readonly needsKey: boolean;
    }
  | { readonly ok: false; readonly issues: readonly Issue[] };

/**
 * Checks the settings of an account of base provider `id` and parts them in plain and secret. Paths of issues are
 * relative to the settings object. Masked names are refused; a secret given as null is cleared, one left
 * out stays as it was while the way of signing in still has it.
 */
export function checkSettings(
  id: string,
  value: Readonly<Record<string, unknown>>,
  options: CheckOptions,
): CheckedSettings {
  const given = Object.entries(value);
  const layout = layoutOf(id, value);
  const issues: Issue[] = [...layout.issues];
  const plain: Record<string, unknown> = {};
  const secrets: Record<string, unknown> = {};
  const broken = new Set(layout.issues.map((issue) => issue.path));
  const { stored } = options;
  const kept: string[] = stored?.keyStays ? ['key'] : [];

  for (const [name, item] of Object.entries(layout.fields)) {
    if (item.secret && stored && Object.hasOwn(stored.secrets, name) && value[name] === undefined) {
      secrets[name] = stored.secrets[name];
      kept.push(name);
    }
  }
  for (const [name, content] of given) {
    if (content === undefined || broken.has(name)) continue;
    const item = Object.hasOwn(layout.fields, name) ? layout.fields[name] : undefined;
    if (!item) {
      issues.push({ path: name, message: unknownField(id, name) });
      continue;
    }
    if (content === null && item.secret && stored) continue;
    const parsed = item.schema.safeParse(name === 'custom_headers' ? unmask(content, stored, kept, issues) : content);
    if (!parsed.success) {
      issues.push(...issuesOf(parsed.error, name));
      continue;
    }
    const problem = item.host && typeof parsed.data === 'string' ? options.checkHost(parsed.data) : null;
    if (problem !== null) issues.push({ path: name, message: problem });
    (item.secret ? secrets : plain)[name] = parsed.data;
  }
  const reported = new Set(issues.map((issue) => issue.path));
  for (const [name, item] of Object.entries(layout.fields)) {
    const present = Object.hasOwn(plain, name) || Object.hasOwn(secrets, name) || options.mapped?.has(name);
    if (item.need === 'required' && !present && ![...reported].some((path) => path.startsWith(name))) {
      issues.push({ path: name, message: 'is required' });
    }
  }
  const moved = stored && kept.length > 0 ? changedAddress(layout, plain, stored.plain) : null;
  if (moved !== null && issues.length === 0) issues.push({ path: moved, message: sendAgain(kept) });
  return issues.length > 0 ? { ok: false, issues } : { ok: true, plain, secrets, needsKey: layout.needsKey };
}

/** What to tell someone who changes an address under secrets that are stored. */
export const sendAgain = (kept: readonly string[]): string =>
  `is another address than before, and stored secrets go only where they were given for: send its secrets again (${kept.join(', ')})`;

/** A field of an address that is another one than before, or null. The way of signing in is one, so the former way's are not asked. */
function changedAddress(
  { fields }: Layout,
  now: Readonly<Record<string, unknown>>,
  before: Readonly<Record<string, unknown>>,
): string | null {
  const names = Object.keys(fields).filter((name) => fields[name]?.address);
  return names.find((name) => JSON.stringify(now[name]) !== JSON.stringify(before[name])) ?? null;
}

/** Headers with what is stored in place of its masks; names of those that stay are added to `kept`. */
function unmask(content: unknown, stored: StoredAccount | undefined, kept: string[], issues: Issue[]): unknown {
  if (typeof content !== 'object' || content === null) return content;
  const { headers, missing } = unmaskHeaders(
    content as Record<string, unknown>,
    stored?.secrets,
    stored?.sealed ?? null,
  );
  for (const name of missing) issues.push({ path: `custom_headers.${name}`, message: REFUSED_MASK });
  const masked = Object.entries(content).filter(([, value]) => isMask(value));
  kept.push(...masked.map(([name]) => `custom_headers.${name}`));
  return headers;
}

/** The same for any owner of `custom_headers`; `missing` are masks of nothing that is stored. */
export function unmaskHeaders(
  given: Readonly<Record<string, unknown>>,
  secrets: Readonly<Record<string, unknown>> | undefined,
  sealed: string | null,
): { readonly headers: Record<string, unknown>; readonly missing: readonly string[] } {
  const before = Object.entries((secrets?.custom_headers ?? {}) as Record<string, unknown>);
  const headers: Record<string, unknown> = {};
  const missing: string[] = [];
  for (const [name, value] of Object.entries(given)) {
    headers[name] = value;
    if (!isMask(value)) continue;
    const found = before.find(([own]) => sealed !== null && maskOf(sealed, `custom_headers.${own}`) === value);
    if (found) headers[name] = found[1];
    else missing.push(name);
  }
  return { headers, missing };
}

/** Whether accounts of `id` with these settings have no other way of signing in than the key. */
export const signsByKeyAlone = (id: string, { auth_type: type }: Readonly<Record<string, unknown>>): boolean =>
  (Object.hasOwn(FAMILIES, id) ? FAMILIES[id] : undefined)?.selector === undefined && type !== 'oauthClientCredentials';

/** Every field of `id` in any way of signing in, with whether it is a secret or part of an address. */
export function allFields(id: string): Readonly<Record<string, Pick<Field, 'secret' | 'address' | 'host'>>> {
  const family = Object.hasOwn(FAMILIES, id) ? FAMILIES[id] : undefined;
  const out: Record<string, Field> = { ...declaredFields(id), ...COMMON, ...family?.fields };
  for (const selector of [family?.selector, OAUTH]) {
    if (!selector) continue;
    out[selector.field] = field(short, 'optional', { address: true });
    for (const variant of Object.values(selector.variants)) Object.assign(out, variant.fields);
  }
  return out;
}

function unknownField(id: string, name: string): string {
  if (name.startsWith('masked_')) {
    return `shows a stored secret in answers and cannot be written: send ${name.slice('masked_'.length)}, or leave it out to keep it`;
  }
  return fieldNames(id).has(name)
    ? 'does not belong to the chosen way of signing in'
    : `is not a setting of the provider "${id}"`;
}
