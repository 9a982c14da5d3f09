/**
 * The account of a provider, as data. A provider declares each setting once, with its name on integrations; from that
 * follow the fields of integrations and virtual keys, the keys of configs and the `x-gateway-` headers of requests.
 */
import type { z } from 'zod';

/** A setting of an account, by the name that integrations and the data plane know it by. */
export interface AccountField {
  /** What it holds. Absent: a text of 1 to 255 characters; of a secret up to 16384; of a host what `custom_host` takes. */
  readonly schema?: z.ZodType;
  readonly required?: boolean;
  /** Sealed at rest, answered as `masked_<name>`, and never shown in what a provider answers. */
  readonly secret?: boolean;
  /** The text of an address: it passes the host check when it is stored, and says where calls go. */
  readonly host?: boolean;
  /** Says where calls and secrets go, or is part of it. Secrets that are stored do not follow when it changes. */
  readonly address?: boolean;
  /** Ways of signing in, by value: the field takes one of these names, and the chosen way adds its own fields. */
  readonly choices?: Readonly<Record<string, SignIn>>;
  /** False: only requests and configs say it; no account is stored with it. */
  readonly stored?: false;
  /** Its name on virtual keys, or more where they also write it in another way. Absent: virtual keys do not have it. */
  readonly virtualKey?: string | VirtualKeyField;
  /** As a key of configs. Absent: configs do not have it. */
  readonly config?: ConfigField;
  /** As the request header `x-gateway-<name>`. Absent: requests cannot say it. */
  readonly request?: RequestField;
}

export type AccountFields = Readonly<Record<string, AccountField>>;

/** One way of signing in. */
export interface SignIn {
  /** Whether it uses the key of the account. */
  readonly needsKey: boolean;
  readonly fields: AccountFields;
}

export interface VirtualKeyField {
  readonly name: string;
  /** Content in the spelling of virtual keys; absent: the content of the setting itself. */
  readonly schema?: z.ZodType;
  /** From the spelling of virtual keys to that of the setting; content that does not fit its schema stays as it is. */
  toStored?(value: unknown): unknown;
  toShown?(value: unknown): unknown;
  /** The part of an issue's path below the setting, as virtual keys write it. */
  shownPath?(rest: string): string;
  /** Whether an update of a virtual key may change it. */
  readonly updates?: boolean;
}

export interface ConfigField {
  /** Key in a config; absent: the name of the setting. */
  readonly name?: string;
  /** Absent: a text of 1 to 255 characters; of a secret up to 16384. */
  readonly schema?: z.ZodType;
  /** A secret that is an object, not a text. */
  readonly json?: boolean;
  /** Counts beside a stored account, whatever requests may say of it. */
  readonly besideStored?: boolean;
  /** From the spelling of configs to that of the setting. */
  toSetting?(value: unknown): unknown;
}

export interface RequestField {
  /** A credential of the caller's own, or part of where it goes: it never counts beside a stored account. */
  readonly own?: boolean;
  /** Says who is billed and read: a caller may give one that a stored account leaves open, and may not change it. */
  readonly pinned?: boolean;
  /** Points a call at another endpoint: ignored beside a stored account, refused where only saved ones are allowed. */
  readonly redirects?: boolean;
  /** The provider's own header, in lower case, that says the same. */
  readonly header?: string;
  /** Another header of the provider, in lower case, whose value must not differ from the setting of a stored account. */
  readonly bound?: string;
}

export interface Account {
  readonly fields: AccountFields;
  /** Names of the secret settings, those of every way of signing in included. */
  readonly secrets: readonly string[];
  /** Completes settings that come from a virtual key: older callers name no way of signing in. Changes them in place. */
  fromVirtualKey?(settings: Record<string, unknown>, hasKey: boolean): void;
}

/** A setting with its name. */
export type NamedField = readonly [name: string, field: AccountField];

/** Every field in any way of signing in, in order; one that several ways have is there for each. */
export function eachField(fields: AccountFields): NamedField[] {
  return Object.entries(fields).flatMap(([name, field]): NamedField[] => [
    [name, field],
    ...Object.values(field.choices ?? {}).flatMap((way) => eachField(way.fields)),
  ]);
}

export function account(fields: AccountFields = {}, fromVirtualKey?: Account['fromVirtualKey']): Account {
  const secrets = eachField(fields).flatMap(([name, field]) => (field.secret ? [name] : []));
  return { fields, secrets: [...new Set(secrets)], ...(fromVirtualKey ? { fromVirtualKey } : null) };
}

/** An account without settings beyond those that every provider has. */
export const NO_SETTINGS: Account = account();
