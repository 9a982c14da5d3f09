/**
 * Raw provider credentials inside a config (`api_key` and the like, at the root or on any target) are sealed one by
 * one before a version is stored. The seal is bound to the version and to the place in the tree.
 */
import { Secret } from '../../kernel/secret.ts';
import type { TenantContext } from '../../store/ports.ts';
import type { SealPlace, Vault } from '../../store/vault.ts';
import { formatPath } from '../issues.ts';
import { maskOf } from '../shapes.ts';
import { walk } from './rules.ts';
import { type Config, SECRET_KEYS } from './structure.ts';

/** A config as it is stored: secrets are envelopes. */
export type StoredConfig = Record<string, unknown>;

function place(versionId: string, path: (string | number)[], key: string): SealPlace {
  return { table: 'config_versions', column: `config:${formatPath([...path, key])}`, row: versionId };
}

/** Runs over every secret of a copy and puts what `change` answers in its place. */
async function eachSecret(
  config: StoredConfig,
  change: (node: Record<string, unknown>, path: (string | number)[], key: string) => Promise<void>,
): Promise<StoredConfig> {
  const copy = structuredClone(config);
  const found: { node: Record<string, unknown>; path: (string | number)[]; key: string }[] = [];
  walk(copy as Config, [], (node, path) => {
    for (const key of SECRET_KEYS) {
      if (node[key] !== undefined) found.push({ node: node as Record<string, unknown>, path, key });
    }
  });
  for (const { node, path, key } of found) await change(node, path, key);
  return copy;
}

export function sealConfig(
  vault: Vault,
  tenant: TenantContext,
  versionId: string,
  config: Config,
): Promise<StoredConfig> {
  return eachSecret({ ...config }, async (node, path, key) => {
    const value = node[key];
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    node[key] = await vault.seal(tenant, place(versionId, path, key), new Secret(text));
  });
}

/** Throws SluiceError('unavailable') when a secret does not open. */
export async function openConfig(
  vault: Vault,
  tenant: TenantContext,
  versionId: string,
  stored: StoredConfig,
): Promise<Config> {
  const opened = await eachSecret(stored, async (node, path, key) => {
    const secret = await vault.open(tenant, place(versionId, path, key), String(node[key]));
    node[key] = key === 'vertex_service_account_json' ? JSON.parse(secret.reveal()) : secret.reveal();
  });
  return opened as Config;
}

/** The config as it is answered: `masked_api_key` in place of `api_key`. */
export function maskConfig(stored: StoredConfig): Promise<StoredConfig> {
  return eachSecret(stored, async (node, _path, key) => {
    node[`masked_${key}`] = maskOf(String(node[key]));
    delete node[key];
  });
}
