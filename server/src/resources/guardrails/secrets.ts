/**
 * What is secret in the parameters of a check: its `credentials`, and the values of the `headers` it sends. They are sealed
 * together, bound to the version and to the check's place in it.
 */
import { URL_PARAMETERS } from '../../guardrails/checks/support.ts';
import { Secret } from '../../kernel/secret.ts';
import type { TenantContext } from '../../store/ports.ts';
import type { StoredCheck } from '../../store/schema.ts';
import type { SealPlace, Vault } from '../../store/vault.ts';
import { type CheckHost, maskOf } from '../body-fields.ts';
import { refuse } from '../common.ts';

/** Parameters of checks whose values are secret. */
export const SECRET_GROUPS = ['credentials', 'headers'] as const;
type Group = Record<string, unknown>;
/** `urls` are addresses that stand among the parameters themselves. */
const SEALED = [...SECRET_GROUPS, 'urls'] as const;
type Secrets = Partial<Record<(typeof SEALED)[number], Group>>;

const place = (versionId: string, index: number): SealPlace => ({
  table: 'guardrail_versions',
  column: `checks[${index}]`,
  row: versionId,
});

const isGroup = (value: unknown): value is Group =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && Object.keys(value).length > 0;

/** A version and what it holds. */
interface Version {
  readonly id: string;
  readonly checks: readonly StoredCheck[];
}

/**
 * Checks as they are stored. A value that is the mask under which the former version showed it stays what it was, wherever
 * in the list the check stands now. Throws 400 for other masks, and where the check would now send the secret elsewhere.
 *
 * @param former the version before, for an update
 */
export async function sealChecks(
  vault: Vault,
  tenant: TenantContext,
  versionId: string,
  checks: readonly StoredCheck[],
  former: Version | null,
): Promise<StoredCheck[]> {
  return Promise.all(
    checks.map(async (check, index) => {
      const parameters = { ...check.parameters };
      const secrets: Secrets = {};
      for (const name of SECRET_GROUPS) {
        const group = parameters[name];
        if (!isGroup(group)) continue;
        secrets[name] = { ...group };
        delete parameters[name];
      }
      for (const name of URL_PARAMETERS) {
        if (parameters[name] === undefined) continue;
        secrets.urls = { ...secrets.urls, [name]: parameters[name] };
        delete parameters[name];
      }
      if (Object.keys(secrets).length === 0) return { ...check, parameters };
      await keepMasked(vault, tenant, former, { ...check, parameters }, secrets, `checks[${index}].parameters`);
      const sealed = await vault.seal(tenant, place(versionId, index), new Secret(JSON.stringify(secrets)));
      return { ...check, parameters, sealed };
    }),
  );
}

/** How a secret of a check is shown; of an address, scheme and host stand before it. */
export const CHECK_MASK = /^(?:https?:\/\/[^/]+\/)?\*{7}[0-9a-f]{8}$/;

const MASK_ALONE = /^\*{7}[0-9a-f]{8}$/;

/** An address as it is shown. */
export const shownAddress = (url: unknown, mask: string): string => `${URL.parse(String(url))?.origin ?? ''}/${mask}`;

/** Names of parameters and credentials that are addresses: `jwksUri`, `analyzerURL`, `endpoint`. */
const ADDRESS = /(?:url|uri|endpoint|host)$/i;

/** What is wrong with the addresses among the parameters and credentials of a check; `name` is a path in the parameters. */
export function urlFaults(
  parameters: Readonly<Group>,
  checkHost: CheckHost,
): { readonly name: string; readonly problem: string }[] {
  const { credentials } = parameters;
  const secret = isGroup(credentials) ? Object.entries(credentials) : [];
  const given = [
    ...Object.entries(parameters),
    ...secret.map(([name, value]) => [`credentials.${name}`, value] as const),
  ];
  return given.flatMap(([name, url]) => {
    if (typeof url !== 'string' || !ADDRESS.test(name) || MASK_ALONE.test(url)) return [];
    const problem = checkHost(url);
    return problem === null ? [] : [{ name, problem }];
  });
}

/** Puts what was stored in the place of its masks. */
async function keepMasked(
  vault: Vault,
  tenant: TenantContext,
  former: Version | null,
  check: StoredCheck,
  secrets: Secrets,
  path: string,
): Promise<void> {
  const kept: [StoredCheck, Secrets][] = [];
  for (const name of SEALED) {
    for (const [key, value] of Object.entries(secrets[name] ?? {})) {
      if (typeof value !== 'string' || !CHECK_MASK.test(value)) continue;
      const mask = value.slice(value.lastIndexOf('/') + 1);
      const at = (former?.checks ?? []).findIndex(
        ({ id, sealed }) => id === check.id && sealed !== undefined && maskOf(sealed, `${name}.${key}`) === mask,
      );
      const before = former?.checks[at];
      if (former === null || before === undefined) {
        throw refuse(
          name === 'urls' ? `${path}.${key}` : `${path}.${name}.${key}`,
          'is a mask, not a secret: send the secret itself',
        );
      }
      const opened = await openSecrets(vault, tenant, former.id, at, before);
      Object.assign(secrets[name] ?? {}, { [key]: opened[name]?.[key] });
      kept.push([before, opened]);
    }
  }
  // A caller that may change a guardrail may not thereby learn what it sends.
  const goesTo = addresses(check, secrets);
  if (kept.some(([before, opened]) => addresses(before, opened) !== goesTo)) {
    throw refuse(path, 'has another address than before: send its secrets again, not their masks');
  }
}

const addresses = ({ parameters }: StoredCheck, { urls, ...groups }: Secrets): string =>
  addressesIn({ ...parameters, ...urls, ...groups });

/** The addresses that a check with these parameters calls, in one text. */
export function addressesIn(parameters: Readonly<Group>): string {
  const { credentials = {}, headers = {}, ...own } = parameters;
  const values = [own, credentials, headers].flatMap((group) => (isGroup(group) ? Object.values(group) : []));
  return values.filter((value) => typeof value === 'string' && /^https?:/i.test(value)).join(' ');
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
  const { urls, ...groups } = await openSecrets(vault, tenant, versionId, index, check);
  return { ...check.parameters, ...urls, ...groups };
}

/** The checks of a version with its addresses sealed; null when they are already. For what an older version stored. */
export async function resealChecks(
  vault: Vault,
  tenant: TenantContext,
  version: Version,
): Promise<StoredCheck[] | null> {
  if (!version.checks.some(({ parameters }) => URL_PARAMETERS.some((name) => parameters?.[name] !== undefined)))
    return null;
  const opened = version.checks.map(async ({ sealed, ...check }, index) => ({
    ...check,
    parameters: await openParameters(vault, tenant, version.id, index, { ...check, ...(sealed ? { sealed } : {}) }),
  }));
  return sealChecks(vault, tenant, version.id, await Promise.all(opened), null);
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
  for (const name of SECRET_GROUPS) {
    const group = secrets[name];
    if (group === undefined) continue;
    parameters[name] = Object.fromEntries(Object.keys(group).map((key) => [key, maskOf(sealed, `${name}.${key}`)]));
  }
  for (const [name, url] of Object.entries(secrets.urls ?? {})) {
    parameters[name] = shownAddress(url, maskOf(sealed, `urls.${name}`));
  }
  return { ...rest, parameters };
}
