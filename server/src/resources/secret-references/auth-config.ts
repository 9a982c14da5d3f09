/** How a secret manager is signed in to: checked, merged with what is stored, sealed, opened and masked. */
import { Secret } from '../../kernel/secret.ts';
import type { TenantContext } from '../../store/ports.ts';
import type { Row, SecretManagerType } from '../../store/schema.ts';
import type { SealPlace, Vault } from '../../store/vault.ts';
import { type CheckHost, maskOf } from '../body-fields.ts';
import { refuseIssues } from '../common.ts';
import { sendAgain } from '../integrations/configurations.ts';
import type { Issue } from '../issues.ts';
import type { SecretPlace } from './manager.ts';
import { type AuthConfig, type AuthField, MANAGERS } from './managers.ts';

type Texts = Record<string, string>;
type Reference = Row<'secret_references'>;

const sealPlace = (row: string): SealPlace => ({ table: 'secret_references', column: 'secret_auth_config', row });

/** The way of signing in that a config chooses, by name; empty where there is nothing to choose. */
function wayOf(type: SecretManagerType, config: Readonly<Record<string, unknown>>): string {
  const { selector } = MANAGERS[type];
  return selector === null ? '' : String(config[selector] ?? '');
}

export interface CheckedAuth {
  readonly plain: Texts;
  readonly secrets: Texts;
}

/**
 * What is stored after a change. Fields that are left out stay while the way of signing in has them; null clears one.
 * Throws 400 for fields of another way, for what is missing, and where secrets that are stored would go to a new address.
 */
export function checkAuth(
  type: SecretManagerType,
  given: AuthConfig,
  checkHost: CheckHost,
  stored: CheckedAuth = { plain: {}, secrets: {} },
): CheckedAuth {
  const { selector, ways } = MANAGERS[type];
  const issues: Issue[] = [];
  const way = wayOf(type, { ...stored.plain, ...given });
  if (selector !== null && ways[way] === undefined) {
    throw refuseIssues('auth_config', [
      { path: selector, message: `is required: one of ${Object.keys(ways).join(', ')}` },
    ]);
  }
  const fields: Readonly<Record<string, AuthField>> = {
    ...(selector === null ? {} : { [selector]: { required: true } }),
    ...ways[way],
  };
  const before = { ...stored.plain, ...stored.secrets };
  const out = { plain: {} as Texts, secrets: {} as Texts };
  const kept: string[] = [];
  for (const [name, { required, secret }] of Object.entries(fields)) {
    const sent = given[name as keyof AuthConfig];
    const value = sent === undefined ? before[name] : sent;
    if (value == null) {
      if (required)
        issues.push({ path: name, message: `is required${selector === null ? '' : ` with ${selector} ${way}`}` });
      continue;
    }
    if (secret && sent === undefined) kept.push(name);
    (secret ? out.secrets : out.plain)[name] = value;
  }
  for (const [name, value] of Object.entries(given)) {
    if (value != null && fields[name] === undefined) {
      issues.push({ path: name, message: `does not belong to ${selector === null ? type : `${selector} ${way}`}` });
    }
  }
  for (const [name, { address }] of Object.entries(fields)) {
    const value = out.plain[name];
    if (!address || value === undefined) continue;
    const problem = checkHost(value);
    if (problem !== null) issues.push({ path: name, message: problem });
    else if (kept.length > 0 && stored.plain[name] !== value) issues.push({ path: name, message: sendAgain(kept) });
  }
  if (
    (out.secrets.aws_access_key_id === undefined) !== (out.secrets.aws_secret_access_key === undefined) &&
    issues.length === 0
  ) {
    issues.push({
      path: 'aws_secret_access_key',
      message: 'and aws_access_key_id belong together: send both or neither',
    });
  }
  if (issues.length > 0) throw refuseIssues('auth_config', issues);
  return out;
}

/** Null when there is nothing secret. */
export async function sealAuth(
  vault: Vault,
  tenant: TenantContext,
  id: string,
  secrets: Texts,
): Promise<string | null> {
  if (Object.keys(secrets).length === 0) return null;
  return vault.seal(tenant, sealPlace(id), new Secret(JSON.stringify(secrets)));
}

/** The secret fields. Throws SluiceError('unavailable') when no key opens them. */
export async function openAuth(
  vault: Pick<Vault, 'open'>,
  tenant: TenantContext,
  row: Pick<Reference, 'id' | 'secret_auth_config'>,
): Promise<Texts> {
  if (row.secret_auth_config === null) return {};
  return JSON.parse((await vault.open(tenant, sealPlace(row.id), row.secret_auth_config)).reveal()) as Texts;
}

/** As it is answered: `masked_<name>` in place of each secret. */
export async function maskAuth(vault: Vault, tenant: TenantContext, row: Reference): Promise<Texts> {
  const sealed = row.secret_auth_config;
  if (sealed === null) return row.auth_config;
  const names = Object.keys(await openAuth(vault, tenant, row));
  return { ...row.auth_config, ...Object.fromEntries(names.map((name) => [`masked_${name}`, maskOf(sealed, name)])) };
}

/** Where the secret of a reference lies, with what signing in takes. Throws SluiceError('unavailable') when no key opens it. */
export async function placeOf(
  { vault, tenant }: { readonly vault: Pick<Vault, 'open'>; readonly tenant: TenantContext },
  row: Reference,
): Promise<SecretPlace> {
  const secrets = Object.entries(await openAuth(vault, tenant, row)).map(([name, value]) => [name, new Secret(value)]);
  return {
    organisationId: tenant.organisationId,
    slug: row.slug,
    manager: row.manager_type,
    path: row.secret_path,
    auth: { ...row.auth_config, ...Object.fromEntries(secrets) },
  };
}
