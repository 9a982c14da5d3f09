/**
 * What is secret in the parameters of a check: its `credentials`, and the values of the `headers` it sends. They are sealed
 * together, bound to the version and to the check's place in it.
 */
import { Secret } from '../../kernel/secret.ts';
import type { TenantContext } from '../../store/ports.ts';
import type { StoredCheck } from '../../store/schema.ts';
import type { SealPlace, Vault } from '../../store/vault.ts';
import { maskOf } from '../shapes.ts';

const SECRET = ['credentials', 'headers'] as const;
type Group = Record<string, unknown>;
type Secrets = Partial<Record<(typeof SECRET)[number], Group>>;

const place = (versionId: string, index: number): SealPlace => ({
  table: 'guardrail_versions',
  column: `checks[${index}]`,
  row: versionId,
});

const isGroup = (value: unknown): value is Group =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && Object.keys(value).length > 0;

/**
 * Checks as they are stored. A value that is the mask under which the former version showed it stays what it was.
 *
 * @param former the version before, for an update
 */
export async function sealChecks(
  vault: Vault,
  tenant: TenantContext,
  versionId: string,
  checks: readonly StoredCheck[],
  former: { readonly versionId: string; readonly checks: readonly StoredCheck[] } | null,
): Promise<StoredCheck[]> {
  return Promise.all(
    checks.map(async (check, index) => {
      const parameters = { ...check.parameters };
      const secrets: Secrets = {};
      for (const name of SECRET) {
        const group = parameters[name];
        if (!isGroup(group)) continue;
        secrets[name] = { ...group };
        delete parameters[name];
      }
      if (Object.keys(secrets).length === 0) return { ...check, parameters };
      const before = former?.checks[index];
      if (former !== null && before?.id === check.id && before.sealed !== undefined) {
        await keepMasked(secrets, before.sealed, () => openSecrets(vault, tenant, former.versionId, index, before));
      }
      const sealed = await vault.seal(tenant, place(versionId, index), new Secret(JSON.stringify(secrets)));
      return { ...check, parameters, sealed };
    }),
  );
}

async function keepMasked(secrets: Secrets, sealed: string, open: () => Promise<Secrets>): Promise<void> {
  let stored: Secrets | null = null;
  for (const name of SECRET) {
    const group = secrets[name];
    if (group === undefined) continue;
    for (const key of Object.keys(group)) {
      if (group[key] !== maskOf(sealed, `${name}.${key}`)) continue;
      stored ??= await open();
      group[key] = stored[name]?.[key];
    }
  }
}

async function openSecrets(
  vault: Vault,
  tenant: TenantContext,
  versionId: string,
  index: number,
  check: StoredCheck,
): Promise<Secrets> {
  if (check.sealed === undefined) return {};
  const opened = await vault.open(tenant, place(versionId, index), check.sealed);
  return JSON.parse(opened.reveal()) as Secrets;
}

/** The parameters of a check whole, for whoever runs it. Throws SluiceError('unavailable') when they do not open. */
export async function openParameters(
  vault: Vault,
  tenant: TenantContext,
  versionId: string,
  index: number,
  check: StoredCheck,
): Promise<Record<string, unknown>> {
  return { ...check.parameters, ...(await openSecrets(vault, tenant, versionId, index, check)) };
}

/** A check as it is answered: every secret value is its mask. */
export async function maskCheck(
  vault: Vault,
  tenant: TenantContext,
  versionId: string,
  index: number,
  check: StoredCheck,
) {
  const { sealed, ...rest } = check;
  if (sealed === undefined) return rest;
  const secrets = await openSecrets(vault, tenant, versionId, index, check);
  const parameters: Record<string, unknown> = { ...rest.parameters };
  for (const name of SECRET) {
    const group = secrets[name];
    if (group === undefined) continue;
    parameters[name] = Object.fromEntries(Object.keys(group).map((key) => [key, maskOf(sealed, `${name}.${key}`)]));
  }
  return { ...rest, parameters };
}
