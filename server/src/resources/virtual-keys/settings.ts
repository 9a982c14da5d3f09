/**
 * The settings of virtual keys and the names they have on integrations (`configurations.ts`), in which they are stored:
 * the data plane knows one spelling only. Providers declare both.
 */
import { z } from 'zod';
import type { VirtualKeyField } from '../../providers/account.ts';
import { ALL_FIELDS, accountKind } from '../../providers/accounts.ts';

/** For every provider, in one spelling. */
const COMMON: readonly Spelling[] = ['custom_host', 'custom_headers'].map((name) => ({ name, stored: name }));

interface Spelling extends VirtualKeyField {
  /** Name of the setting on an integration. */
  readonly stored: string;
}

/** By the name on a virtual key. Providers that share a setting share its names. */
const SHOWN: ReadonlyMap<string, Spelling> = new Map(
  [
    ...ALL_FIELDS.flatMap(([stored, { virtualKey }]): Spelling[] => {
      if (virtualKey === undefined) return [];
      return [typeof virtualKey === 'string' ? { name: virtualKey, stored } : { ...virtualKey, stored }];
    }),
    ...COMMON,
  ].map((spelling) => [spelling.name, spelling]),
);
const STORED: ReadonlyMap<string, Spelling> = new Map([...SHOWN.values()].map((one) => [one.stored, one]));

const bodyFields = (spellings: readonly Spelling[]): Record<string, z.ZodType> =>
  Object.fromEntries(spellings.map(({ name, schema }) => [name, (schema ?? z.unknown()).optional()]));

/** The settings as fields of a body. Their content is checked with the provider's own rules. */
export const settingFields: Record<string, z.ZodType> = bodyFields([...SHOWN.values()]);

/** Those that an update may change. */
export const updateFields: Record<string, z.ZodType> = bodyFields([...SHOWN.values()].filter(({ updates }) => updates));

/** Fields of a virtual key that a secret mapping may fill: `model_config.<name>`. */
export const settingNames: ReadonlySet<string> = new Set(SHOWN.keys());

export const storedName = (shown: string): string => SHOWN.get(shown)?.stored ?? shown;
export const shownName = (stored: string): string => STORED.get(stored)?.name ?? stored;

/** The settings that a body gives, in stored names; those it leaves out are not in it. */
export function givenSettings(body: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const { name, stored, toStored } of SHOWN.values()) {
    const value = body[name];
    if (value !== undefined) out[stored] = toStored ? toStored(value) : value;
  }
  return out;
}

/** What the body of a new key says, in stored names, with what its provider adds. */
export function toStored(provider: string, body: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const settings = givenSettings(body);
  accountKind(provider)?.account.fromVirtualKey?.(settings, body.key !== undefined);
  return settings;
}

/** Stored settings under the names of a virtual key. */
export function toShown(stored: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(stored)) {
    const { toShown: show } = STORED.get(name) ?? {};
    out[shownName(name)] = show ? show(value) : value;
  }
  return out;
}

/** A path of stored names (`azure_deployment_config[0].azure_api_version`) as the caller wrote it. */
export function shownPath(path: string): string {
  const [, head = '', rest = ''] = /^([A-Za-z0-9_]*)(.*)$/s.exec(path) ?? [];
  return shownName(head) + (STORED.get(head)?.shownPath?.(rest) ?? rest);
}
