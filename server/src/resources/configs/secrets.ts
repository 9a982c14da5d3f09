/**
 * What is secret inside a config is sealed value by value before a version is stored: raw provider credentials (`api_key`
 * and the like, at the root or on any target), and the `headers` and `credentials` of checks inside it. The seal is
 * bound to the version and to the place in the tree.
 */
import { URL_PARAMETERS } from '../../guardrails/checks/support.ts';
import { inlineChecks } from '../../guardrails/compile.ts';
import { isObject } from '../../kernel/json.ts';
import { Secret } from '../../kernel/secret.ts';
import type { TenantContext } from '../../store/ports.ts';
import { isEnvelope, type SealPlace, type Vault } from '../../store/vault.ts';
import { maskOf } from '../body-fields.ts';
import { refuse } from '../common.ts';
import { addressesIn, CHECK_MASK, SECRET_GROUPS, shownAddress } from '../guardrails/secrets.ts';
import { formatPath } from '../issues.ts';
import { walk } from './rules.ts';
import { accountValue, type Config, GUARDRAIL_LISTS, HOOK_LISTS, JSON_SECRET_KEYS, SECRET_KEYS } from './structure.ts';

/** A config as it is stored: secrets are envelopes. */
export type StoredConfig = Record<string, unknown>;

/** A version and what it holds. */
interface Version {
  readonly id: string;
  readonly config: StoredConfig;
}

type Path = (string | number)[];
type Holder = Record<string, unknown>;

interface Check {
  readonly id: string;
  readonly parameters: Holder;
}

/** A secret and where it stands. */
interface Place {
  readonly holder: Holder;
  readonly key: string;
  /** With the key. */
  readonly path: Path;
  /** The check it belongs to; null for a credential of a provider. */
  readonly check: Check | null;
  /** An address: its scheme and host follow the envelope in clear. */
  readonly url: boolean;
}

const sealPlace = (versionId: string, { path }: Place): SealPlace => ({
  table: 'config_versions',
  column: `config:${formatPath(path)}`,
  row: versionId,
});

function placesIn(config: StoredConfig): Place[] {
  const found: Place[] = [];
  const group = (check: Check, path: Path) => {
    for (const name of SECRET_GROUPS) {
      const holder = check.parameters[name];
      if (!isObject(holder)) continue;
      for (const key of Object.keys(holder)) found.push({ holder, key, path: [...path, name, key], check, url: false });
    }
    for (const key of URL_PARAMETERS) {
      if (check.parameters[key] === undefined) continue;
      found.push({ holder: check.parameters, key, path: [...path, key], check, url: true });
    }
  };
  walk(config as Config, [], (node, path) => {
    for (const key of SECRET_KEYS) {
      if (accountValue(node, key) !== undefined)
        found.push({ holder: node as Holder, key, path: [...path, key], check: null, url: false });
    }
    for (const list of [...GUARDRAIL_LISTS, ...HOOK_LISTS]) {
      for (const [index, entry] of (node[list] ?? []).entries()) {
        if (typeof entry === 'string') continue;
        const listed = Array.isArray(entry.checks);
        for (const [i, { id, parameters }] of inlineChecks(entry).entries()) {
          if (!isObject(parameters)) continue;
          const own: Path = listed ? ['checks', i, 'parameters'] : [id];
          group({ id, parameters }, [...path, list, index, ...own]);
        }
      }
    }
  });
  return found;
}

/** Values that are no text: secrets that are objects, and whatever a check is given. */
const isJson = ({ key, check }: Place): boolean => check !== null || JSON_SECRET_KEYS.has(key);

/**
 * Whether the value is an envelope. Checks of versions that were saved before theirs were sealed have their values as they
 * are; credentials of providers never had.
 */
const isSealed = ({ holder, key, check }: Place): boolean => check === null || isEnvelope(holder[key]);

function maskAt(place: Place): string {
  const stored = String(place.holder[place.key]);
  const [envelope = '', origin] = isSealed(place) ? stored.split(' ') : ['', stored];
  const mask = isSealed(place) ? maskOf(envelope) : maskOf('', formatPath(place.path));
  return place.url ? shownAddress(origin, mask) : mask;
}

async function openPlace(vault: Vault, tenant: TenantContext, versionId: string, place: Place): Promise<unknown> {
  if (!isSealed(place)) return place.holder[place.key];
  const secret = await vault.open(
    tenant,
    sealPlace(versionId, place),
    String(place.holder[place.key]).split(' ')[0] ?? '',
  );
  return isJson(place) ? JSON.parse(secret.reveal()) : secret.reveal();
}

/**
 * The config as it is stored. A value of a check that is the mask under which the former version showed it stays what it
 * was. Throws 400 for other masks, and where the check would now send the secret elsewhere.
 *
 * @param former the version before, for an update
 */
export async function sealConfig(
  vault: Vault,
  tenant: TenantContext,
  versionId: string,
  config: Config,
  former: Version | null,
): Promise<StoredConfig> {
  const copy = structuredClone<StoredConfig>({ ...config });
  const places = placesIn(copy);
  await keepMasked(vault, tenant, places, former);
  for (const place of places) {
    const { holder, key } = place;
    const value = isJson(place) ? JSON.stringify(holder[key]) : String(holder[key]);
    const sealed = await vault.seal(tenant, sealPlace(versionId, place), new Secret(value));
    holder[key] = place.url ? `${sealed} ${URL.parse(String(holder[key]))?.origin ?? ''}` : sealed;
  }
  return copy;
}

/** Puts what was stored in the place of its masks. */
async function keepMasked(
  vault: Vault,
  tenant: TenantContext,
  places: readonly Place[],
  former: Version | null,
): Promise<void> {
  const isMasked = ({ holder, key, check }: Place) => check !== null && CHECK_MASK.test(String(holder[key]));
  const masked = places.filter(isMasked);
  if (masked.length === 0) return;
  const before = former === null ? [] : placesIn(former.config).filter(({ check }) => check !== null);
  const masks = before.map(maskAt);
  const opened = former === null ? null : await openConfig(vault, tenant, former.id, former.config);
  const values = opened === null ? [] : placesIn(opened as StoredConfig).filter(({ check }) => check !== null);
  const kept: { readonly place: Place; readonly from: Check }[] = [];
  for (const place of masked) {
    const { holder, key, check } = place;
    const at = before.findIndex((one, i) => one.key === key && one.check?.id === check?.id && masks[i] === holder[key]);
    const value = values[at];
    if (value?.check == null) {
      throw refuse(formatPath(place.path, 'config'), 'is a mask, not a secret: send the secret itself');
    }
    holder[key] = value.holder[key];
    kept.push({ place, from: value.check });
  }
  // A caller that may change a config may not thereby learn what it sends.
  for (const { place, from } of kept) {
    if (place.check === null || addressesIn(place.check.parameters) === addressesIn(from.parameters)) continue;
    const message = 'has another address than before: send its secrets again, not their masks';
    throw refuse(formatPath(place.path.slice(0, -2), 'config'), message);
  }
}

/** Throws SluiceError('unavailable') when a secret does not open. */
export async function openConfig(
  vault: Vault,
  tenant: TenantContext,
  versionId: string,
  stored: StoredConfig,
): Promise<Config> {
  const copy = structuredClone(stored);
  for (const place of placesIn(copy)) place.holder[place.key] = await openPlace(vault, tenant, versionId, place);
  return copy as Config;
}

/** The config with everything in it sealed; null when it is already. For what an older version stored. */
export async function resealConfig(
  vault: Vault,
  tenant: TenantContext,
  { id, config }: Version,
): Promise<StoredConfig | null> {
  if (placesIn(structuredClone(config)).every(isSealed)) return null;
  return sealConfig(vault, tenant, id, await openConfig(vault, tenant, id, config), null);
}

/** The config as it is answered: `masked_api_key` in place of `api_key`, and masks as the values of checks. */
export function maskConfig(stored: StoredConfig): StoredConfig {
  const copy = structuredClone(stored);
  for (const place of placesIn(copy)) {
    const { holder, key, check } = place;
    const mask = maskAt(place);
    if (check !== null) holder[key] = mask;
    else {
      holder[`masked_${key}`] = mask;
      delete holder[key];
    }
  }
  return copy;
}
