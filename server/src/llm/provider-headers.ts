import { SluiceError } from '../kernel/errors.ts';
import type { Provider } from '../providers/provider.ts';
import type { Exchange } from './exchange.ts';

/**
 * Settings that say whose organisation, project or account is billed and read, and where. A caller may give one that a
 * stored account leaves open, and may not change one that it holds.
 */
const PINS = [
  'openai-organization',
  'openai-project',
  'vertex-project-id',
  'vertex-region',
  'aws-region',
  'fireworks-account-id',
  'workers-ai-account-id',
  'snowflake-account',
];

/** Provider settings a caller may send as `x-gateway-<name>` headers, by the setting they become. */
const SETTINGS = [
  ...PINS,
  'anthropic-beta',
  'anthropic-version',
  'azure-resource-name',
  'azure-deployment-id',
  'azure-api-version',
  'azure-model-name',
  'azure-foundry-url',
  'azure-endpoint-name',
  'azure-deployment-name',
  'azure-extra-params',
  'aws-bedrock-model',
  'huggingface-base-url',
  'databricks-workspace',
].map((name) => ({ header: `x-gateway-${name}`, setting: name.replaceAll('-', '_') }));

/** Credentials of the caller's own: never beside stored ones, whose account they would change. */
const IDENTITY = [
  'aws-auth-type',
  'aws-access-key-id',
  'aws-secret-access-key',
  'aws-session-token',
  'aws-role-arn',
  'aws-external-id',
  'azure-ad-token',
  'azure-auth-mode',
  'azure-entra-tenant-id',
  'azure-entra-client-id',
  'azure-entra-client-secret',
  'azure-entra-scope',
  'azure-managed-client-id',
  'azure-workload-client-id',
  // Where the account lies: beside a stored one they would send its credential to another host.
  'azure-cloud',
  'azure-region',
  'azure-deployment-type',
  'vertex-auth-type',
  'vertex-service-account-json',
].map((name) => ({ header: `x-gateway-${name}`, setting: name.replaceAll('-', '_') }));

/** Headers that point a call at another endpoint: refused in saved-only mode, ignored beside a stored credential. */
export const REDIRECTING_HEADERS: readonly string[] = [
  'x-gateway-huggingface-base-url',
  'x-gateway-azure-foundry-url',
  'x-gateway-databricks-workspace',
  'x-gateway-azure-resource-name',
  'x-gateway-azure-endpoint-name',
  'x-gateway-snowflake-account',
];
const REDIRECTING = new Set(REDIRECTING_HEADERS);

/** Settings that may be given beside a stored credential. */
export const KEEPS_ACCOUNT: ReadonlySet<string> = new Set(
  SETTINGS.filter(({ header }) => !REDIRECTING.has(header)).map(({ setting }) => setting),
);

/** See `PINS`: refused with another value than a stored account's. */
export const PINNED_SETTINGS: readonly string[] = PINS.map((name) => name.replaceAll('-', '_'));

/** Pinned settings of an account that a header of its own holds as well. */
const HELD_BY_HEADERS: Readonly<Record<string, string>> = {
  'openai-organization': 'openai_organization',
  'openai-project': 'openai_project',
};

/** The pinned setting that a provider's header, in lower case, says; undefined for other headers. */
export const pinOf = (header: string): string | undefined =>
  header === 'x-goog-user-project' ? 'vertex_project_id' : HELD_BY_HEADERS[header];

/** Settings of a stored account with the pins that only its other settings, or headers of its own, hold. */
export function heldSettings(
  provider: Provider,
  settings: Readonly<Record<string, unknown>>,
  customHeaders: Readonly<Record<string, string>>,
): Readonly<Record<string, unknown>> {
  const held: Record<string, unknown> = { ...provider.implied?.(settings) };
  for (const [name, value] of Object.entries(customHeaders)) {
    const pin = HELD_BY_HEADERS[name.toLowerCase()];
    if (pin !== undefined) held[pin] = value;
  }
  for (const [name, value] of Object.entries(settings)) if (value !== undefined && value !== '') held[name] = value;
  return held;
}

/** The first pinned setting of a stored account that a caller asks to change, or null. */
export function movedPin(
  stored: Readonly<Record<string, unknown>>,
  asked: Readonly<Record<string, unknown>>,
): string | null {
  for (const name of PINNED_SETTINGS) {
    const value = stored[name];
    if (value === undefined || value === null || value === '' || asked[name] === undefined) continue;
    if (asked[name] !== value) return name;
  }
  return null;
}

/** @param pin the setting of the stored provider that a request asks to change */
export function pinRefused(slug: string, pin: string): SluiceError {
  return new SluiceError(
    'bad_call',
    `Provider @${slug} is stored with another ${pin}, and a request cannot change it. Leave out x-gateway-${pin.replaceAll('_', '-')}, or ${pin} in the config, or name a provider that is stored with that value.`,
    { param: pin },
  );
}

/** Settings from request headers. With a stored credential only those that cannot move it to another host count. */
export function headerSettings(x: Exchange, own: boolean): Record<string, string> {
  const out: Record<string, string> = {};
  for (const { header, setting } of own ? [...SETTINGS, ...IDENTITY] : SETTINGS) {
    if (!own && (x.snapshot?.blockInlineConfig || REDIRECTING.has(header))) continue;
    const value = x.header(header);
    if (value !== undefined) out[setting] = value;
  }
  return out;
}
