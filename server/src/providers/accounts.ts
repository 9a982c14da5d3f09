/** Whose account has which settings, over all providers: tables that are made once, when the process starts. */
import { type Account, eachField, type NamedField } from './account.ts';
import { PROVIDERS, providerById } from './catalog.ts';
import { UNSERVED } from './unserved.ts';

/** What an account of a provider is made of. */
export interface AccountKind {
  readonly needsKey: boolean;
  readonly account: Account;
}

const storable = new Map(UNSERVED.filter((one) => one.storable).map((one) => [one.id, one]));

/** The kind of account of a base provider or its alias; undefined: none can be stored. */
export const accountKind = (id: string): AccountKind | undefined => storable.get(id) ?? providerById(id);

/** The base providers an account can be stored for, in order. */
export const storableProviders = (): string[] => [...new Set([...storable.keys(), ...PROVIDERS.keys()])].sort();

/** The settings of all providers. One that several have is there for each. */
export const ALL_FIELDS: readonly NamedField[] = [...PROVIDERS.values(), ...UNSERVED].flatMap(({ account }) =>
  eachField(account.fields),
);
