/** `gateway_options` and `provider_options` of a create request. */
import { SluiceError } from '../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import type { Account, ObjectCall } from '../runtime/object-call.ts';
import { checkBuckets } from './buckets.ts';
import { Faults, invalid, object, optionalText } from './fields.ts';

/** Headers for the calls to the provider, lower-case names; never sent upstream themselves. */
export type GatewayOptions = Readonly<Record<string, string>>;

const SLUG = /^@?[A-Za-z0-9_-]{1,255}$/;
/** What would bring another credential, or point a stored one at another host. */
const REFUSED = new Set(['x-gateway-api-key', 'x-gateway-custom-host', 'x-gateway-forward-headers']);
const MAX_VALUE = 8192;

/**
 * The headers of `gateway_options`, null when absent. `references`: names of which one must be there beside the
 * virtual key and the provider (a batch may name a config).
 */
export function readGatewayOptions(
  value: JsonValue | undefined,
  references: readonly string[] = [],
): GatewayOptions | null {
  if (value === undefined || value === null) return null;
  const out: Record<string, string> = Object.create(null);
  const faults = new Faults();
  for (const [given, entry] of Object.entries(object(value, 'gateway_options'))) {
    const name = given.toLowerCase();
    const param = `gateway_options.${given.slice(0, 100)}`;
    const read = () => {
      if (!/^x-gateway-[a-z0-9-]{1,80}$/.test(name))
        throw invalid(param, `${param} is not a name of the form x-gateway-….`);
      if (REFUSED.has(name)) throw invalid(param, `${param} cannot be used here; leave it out.`);
      // The request itself is what is tried out; taken for a header of its calls, it would be started.
      if (name === 'x-gateway-dry-run')
        throw invalid(param, 'Send x-gateway-dry-run as a header of the request instead.');
      if (name in out) throw invalid(param, `${param} is given twice.`);
      if (typeof entry !== 'string' || entry === '' || entry.length > MAX_VALUE || !/^[\t\x20-\x7e]+$/.test(entry)) {
        throw invalid(param, `${param} must be a text that can be a header.`);
      }
      return entry;
    };
    out[name] = faults.read(read, '');
  }
  faults.done();
  checkBuckets((name) => out[name], 'gateway_options.');
  const key = out['x-gateway-virtual-key'];
  const provider = out['x-gateway-provider'];
  if (key !== undefined && !SLUG.test(key)) {
    throw invalid('gateway_options.x-gateway-virtual-key', 'Send the slug of a virtual key or provider.');
  }
  if (provider !== undefined && !(provider.startsWith('@') && SLUG.test(provider))) {
    throw invalid('gateway_options.x-gateway-provider', 'Send a stored provider as @slug.');
  }
  if (key !== undefined && provider !== undefined && key.replace(/^@/, '') !== provider.slice(1)) {
    throw invalid(
      'gateway_options.x-gateway-provider',
      'It names another account than x-gateway-virtual-key; send one of the two.',
    );
  }
  if (key === undefined && provider === undefined && !references.some((name) => name in out)) {
    throw invalid(
      'gateway_options.x-gateway-virtual-key',
      'gateway_options.x-gateway-virtual-key is required: the slug of a virtual key or provider. x-gateway-provider: @slug says the same.',
    );
  }
  return out;
}

/** Slug of the virtual key or provider that `gateway_options` name, or null. */
export function slugOf(options: GatewayOptions | null): string | null {
  const slug = options?.['x-gateway-virtual-key'] ?? options?.['x-gateway-provider'];
  return slug === undefined ? null : slug.replace(/^@/, '');
}

export const METADATA = 'x-gateway-metadata';

/** The metadata that `gateway_options` name, null when they name none; 400 when it is no object of texts. */
export function metadataOf(options: GatewayOptions): Readonly<Record<string, string>> | null {
  const text = options[METADATA];
  if (text === undefined) return null;
  let value: unknown = null;
  try {
    value = JSON.parse(text);
  } catch {
    // Told below.
  }
  if (!isObject(value) || Object.values(value).some((entry) => typeof entry !== 'string')) {
    const param = `gateway_options.${METADATA}`;
    throw invalid(param, 'It must be a JSON object of texts, for example {"team":"search"}.');
  }
  return value as Record<string, string>;
}

/** The members of `provider_options`, each a text; null where absent. */
export function readProviderOptions<N extends string>(
  value: JsonValue | undefined,
  names: readonly N[],
): Readonly<Record<N, string | null>> | null {
  if (value === undefined || value === null) return null;
  const given: JsonObject = object(value, 'provider_options');
  const faults = new Faults();
  for (const name of Object.keys(given)) {
    if (names.some((known) => known === name)) continue;
    const param = `provider_options.${name.slice(0, 100)}`;
    faults.read(() => {
      throw invalid(param, `${param} is not known; known are ${names.join(', ')}.`);
    }, null);
  }
  const out = {} as Record<N, string | null>;
  for (const name of names) out[name] = faults.read(() => optionalText(given[name], `provider_options.${name}`), null);
  faults.done();
  return out;
}

/** 400 for a job or batch of Sluice that says nowhere at which account it is to run. */
export function unnamedAccount(): SluiceError {
  return new SluiceError(
    'malformed_call',
    'No provider is named for this job or batch. Send gateway_options with x-gateway-virtual-key in the body, or x-gateway-virtual-key or x-gateway-config as a header, or a model of the form @slug/model.',
  );
}

/** The account a create request uses: the one its `gateway_options` name, else that of its headers, config or key. */
export async function accountFor(call: ObjectCall, options: GatewayOptions | null): Promise<Account> {
  const slug = slugOf(options);
  if (slug !== null) {
    const { config_id: pinned, allow_config_override: override } = call.principal.defaults;
    if (override === false && pinned !== undefined && call.account?.stored?.slug !== slug) {
      throw invalid(
        'gateway_options',
        'This API key pins its config, which names another account; leave gateway_options out.',
      );
    }
    return call.accountOf(slug);
  }
  if (call.account !== null) return call.account;
  throw call.unnamed ?? new SluiceError('malformed_call', 'No provider is named; send x-gateway-provider: @slug.');
}

/** Gateway headers of a request, those of `gateway_options` over its own. */
export function headersWith(call: ObjectCall, options: GatewayOptions | null): (name: string) => string | undefined {
  return options === null ? call.header : (name) => options[name] ?? call.header(name);
}
