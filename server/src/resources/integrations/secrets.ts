/** Sealing, opening and masking the credentials of an account: the key, and the secret settings as one JSON object. */
import { Secret } from '../../kernel/secret.ts';
import type { TenantContext } from '../../store/ports.ts';
import type { Vault } from '../../store/vault.ts';
import { maskOf } from '../body-fields.ts';

/** Where an account's credentials are stored. */
export interface AccountPlace {
  readonly table: 'integrations' | 'virtual_keys';
  /** Column of the secret settings. */
  readonly column: 'secret_configurations' | 'secret_model_config';
  readonly row: string;
}

export function sealKey(vault: Vault, tenant: TenantContext, place: AccountPlace, key: string): Promise<string> {
  return vault.seal(tenant, { table: place.table, column: 'key', row: place.row }, new Secret(key));
}

/** Null when there is nothing secret. */
export async function sealSettings(
  vault: Vault,
  tenant: TenantContext,
  place: AccountPlace,
  secrets: Readonly<Record<string, unknown>>,
): Promise<string | null> {
  if (Object.keys(secrets).length === 0) return null;
  return vault.seal(tenant, place, new Secret(JSON.stringify(secrets)));
}

/** Throws SluiceError('unavailable') when no key opens it. */
export async function openKey(
  vault: Vault,
  tenant: TenantContext,
  place: AccountPlace,
  sealed: string | null,
): Promise<Secret | null> {
  return sealed === null ? null : vault.open(tenant, { table: place.table, column: 'key', row: place.row }, sealed);
}

/** Throws SluiceError('unavailable') when no key opens it. */
export async function openSettings(
  vault: Vault,
  tenant: TenantContext,
  place: AccountPlace,
  sealed: string | null,
): Promise<Record<string, unknown>> {
  if (sealed === null) return {};
  const text = await vault.open(tenant, place, sealed);
  return JSON.parse(text.reveal()) as Record<string, unknown>;
}

/**
 * `masked_<name>` for every secret setting, and custom headers with masks as their values. The names are inside the
 * envelope, so it is opened.
 */
export async function maskSettings(
  vault: Vault,
  tenant: TenantContext,
  place: AccountPlace,
  sealed: string | null,
): Promise<Record<string, unknown>> {
  if (sealed === null) return {};
  const settings = await openSettings(vault, tenant, place, sealed);
  return Object.fromEntries(
    Object.entries(settings).map(([name, value]) =>
      name === 'custom_headers' ? [name, maskHeaders(value, sealed)] : [`masked_${name}`, maskOf(sealed, name)],
    ),
  );
}

/** Custom headers as they are answered. */
export function maskHeaders(headers: unknown, sealed: string): Record<string, string> {
  const names = Object.keys((headers ?? {}) as Record<string, string>);
  return Object.fromEntries(names.map((name) => [name, maskOf(sealed, `custom_headers.${name}`)]));
}

/** Takes the custom host and headers out of an account's settings: they steer the call, the rest describes the account. */
export function splitSettings(all: Readonly<Record<string, unknown>>): {
  settings: Record<string, unknown>;
  customHost: string | null;
  customHeaders: Record<string, string>;
} {
  const { custom_host: host, custom_headers: headers, ...settings } = all;
  return {
    settings,
    customHost: typeof host === 'string' ? host : null,
    customHeaders: typeof headers === 'object' && headers !== null ? { ...(headers as Record<string, string>) } : {},
  };
}
