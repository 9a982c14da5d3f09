/**
 * The settings of an account by base provider and way of signing in, as the providers declare them: which fields there
 * are, which must be given, which are secret. Integrations store them under these names; virtual keys translate their
 * camel-case names into them (`virtual-keys/settings.ts`).
 */
import { z } from 'zod';
import { isObject } from '../../kernel/json.ts';
import { type AccountField, type AccountFields, eachField } from '../../providers/account.ts';
import { accountKind } from '../../providers/accounts.ts';
import {
  type CheckHost,
  customHeaders,
  customHost,
  isMask,
  maskOf,
  REFUSED_MASK,
  secretText,
  text,
} from '../body-fields.ts';
import { refuse } from '../common.ts';
import { type Issue, issuesOf } from '../issues.ts';

/** For every provider: a host and headers of one's own, trace context, and OAuth client credentials in place of the key. */
const COMMON: AccountFields = {
  custom_host: { host: true },
  // Their values are what servers let callers in by.
  custom_headers: { schema: customHeaders, secret: true },
  // Whether a public provider is sent the trace that a request is part of.
  propagate: { schema: z.boolean() },
};
const AUTH_TYPE = 'auth_type';
const OAUTH: AccountField = {
  choices: {
    apiKey: { needsKey: true, fields: {} },
    oauthClientCredentials: {
      needsKey: false,
      fields: {
        oauth_token_endpoint: { host: true, required: true },
        oauth_client_id: { required: true },
        oauth_client_secret: { secret: true, required: true },
        oauth_scope: { schema: text(2048, 1) },
      },
    },
  },
};

const short = text(255, 1);

/** What a field holds: what its provider says, else what follows from what it is. */
function schemaOf(field: AccountField): z.ZodType {
  if (field.schema === undefined) return field.secret ? secretText : field.host ? customHost : short;
  // Masks among headers stand for what is stored; all others were read from an answer of ours.
  return field.secret && field.schema !== customHeaders ? unmasked(field.schema) : field.schema;
}

const unmasked = (schema: z.ZodType): z.ZodType =>
  schema.refine((value) => ![value, ...(isObject(value) ? Object.values(value) : [])].some(isMask), {
    error: REFUSED_MASK,
  });

/** A field as bodies are checked against it. */
interface Field extends AccountField {
  readonly schema: z.ZodType;
}

/** A provider's fields with those of every provider, ready to check: made once for each. */
const checked = new WeakMap<AccountField, Field>();

function ready(field: AccountField): Field {
  let found = checked.get(field);
  if (found === undefined) {
    const { choices } = field;
    const schema = choices ? z.enum(Object.keys(choices) as [string, ...string[]]) : schemaOf(field);
    found = { ...field, schema };
    checked.set(field, found);
  }
  return found;
}

const fieldsOf = (id: string): AccountFields => ({
  ...COMMON,
  ...accountKind(id)?.account.fields,
  [AUTH_TYPE]: OAUTH,
});

/** Whether a field says where calls go; the way of signing in does too, since another one asks another place. */
const isAddress = ({ address, host, choices }: AccountField): boolean =>
  address === true || host === true || choices !== undefined;

const described = (name: string, field: AccountField) => {
  const { $schema: _dialect, ...schema } = z.toJSONSchema(ready(field).schema, { io: 'input', unrepresentable: 'any' });
  return {
    name,
    required: field.required === true,
    secret: field.secret === true,
    address: isAddress(field),
    schema: schema as Record<string, unknown>,
  };
};

/** The settings of an account of `id` for who fills a form: in the order of the provider, then those of every provider. */
export function describedFields(id: string) {
  const { custom_host, custom_headers, propagate, ...own } = fieldsOf(id);
  const all = { ...own, custom_host, custom_headers, propagate };
  return Object.entries(all).flatMap(([name, field]) => {
    if (field === undefined || field.stored === false) return [];
    const { choices } = field;
    const ways = Object.entries(choices ?? {}).map(([value, { needsKey, fields }]) => ({
      value,
      needs_key: needsKey,
      fields: Object.entries(fields).map((inner) => described(...inner)),
    }));
    return [{ ...described(name, field), ways: choices === undefined ? null : ways }];
  });
}

interface Layout {
  readonly fields: Readonly<Record<string, Field>>;
  readonly needsKey: boolean;
  readonly issues: readonly Issue[];
}

/** Fields and key need of `id` with the ways of signing in as given in `value`; an unknown way is an issue. */
function layoutOf(id: string, value: Readonly<Record<string, unknown>>): Layout {
  const issues: Issue[] = [];
  const fields: Record<string, Field> = {};
  const own = Object.entries(fieldsOf(id)).filter(([, field]) => field.stored !== false);
  for (const [name, field] of own) fields[name] = ready(field);
  let needsKey = accountKind(id)?.needsKey ?? true;
  for (const [name, { choices }] of own) {
    const chosen = value[name];
    if (choices === undefined || chosen === undefined) continue;
    const way = typeof chosen === 'string' && Object.hasOwn(choices, chosen) ? choices[chosen] : undefined;
    if (way === undefined) {
      issues.push({ path: name, message: `must be one of ${Object.keys(choices).join(', ')}` });
      continue;
    }
    for (const [inner, field] of Object.entries(way.fields)) fields[inner] = ready(field);
    // OAuth takes the place of the key, and asks for none where there was none.
    needsKey = name === AUTH_TYPE ? needsKey && way.needsKey : way.needsKey;
  }
  return { fields, needsKey, issues };
}

/** Names of all fields of `id`, for checks of names alone (secret mappings). */
export const fieldNames = (id: string): Set<string> => new Set(Object.keys(allFields(id)));

export interface CheckOptions {
  readonly checkHost: CheckHost;
  /** Fields that a secret mapping fills at call time: they need not be given. */
  readonly mapped?: ReadonlySet<string>;
  /** What is stored already: secret settings stay when the caller leaves them out, or sends them back as their masks. */
  readonly stored?: StoredAccount;
}

/** Settings as they are stored, for an update. */
export interface StoredAccount {
  readonly plain: Readonly<Record<string, unknown>>;
  readonly secrets: Readonly<Record<string, unknown>>;
  /** Envelope of the secret settings, which their masks are made of. */
  readonly sealed: string | null;
  /** A key is stored and the body brings no other. */
  readonly keyStays: boolean;
}

export type CheckedSettings =
  | {
      readonly ok: true;
      /** Settings to store in the clear. */
      readonly plain: Record<string, unknown>;
      /** Settings to seal, kept ones included. */
      readonly secrets: Record<string, unknown>;
      /** Whether calls need the provider key beside them. */
      readonly needsKey: boolean;
    }
  | { readonly ok: false; readonly issues: readonly Issue[] };

/**
 * Checks the settings of an account of base provider `id` and parts them in plain and secret. Paths of issues are
 * relative to the settings object. Masked names are refused; a secret given as null is cleared, one left
 * out stays as it was while the way of signing in still has it.
 */
export function checkSettings(
  id: string,
  value: Readonly<Record<string, unknown>>,
  options: CheckOptions,
): CheckedSettings {
  const given = Object.entries(value);
  const layout = layoutOf(id, value);
  const issues: Issue[] = [...layout.issues];
  const plain: Record<string, unknown> = {};
  const secrets: Record<string, unknown> = {};
  const broken = new Set(layout.issues.map((issue) => issue.path));
  const { stored } = options;
  const kept: string[] = stored?.keyStays ? ['key'] : [];

  for (const [name, item] of Object.entries(layout.fields)) {
    if (item.secret && stored && Object.hasOwn(stored.secrets, name) && value[name] === undefined) {
      secrets[name] = stored.secrets[name];
      kept.push(name);
    }
  }
  for (const [name, content] of given) {
    if (content === undefined || broken.has(name)) continue;
    const item = Object.hasOwn(layout.fields, name) ? layout.fields[name] : undefined;
    if (!item) {
      issues.push({ path: name, message: unknownField(id, name) });
      continue;
    }
    if (content === null && item.secret && stored) continue;
    const parsed = item.schema.safeParse(name === 'custom_headers' ? unmask(content, stored, kept, issues) : content);
    if (!parsed.success) {
      issues.push(...issuesOf(parsed.error, name));
      continue;
    }
    const problem = item.host && typeof parsed.data === 'string' ? options.checkHost(parsed.data) : null;
    if (problem !== null) issues.push({ path: name, message: problem });
    (item.secret ? secrets : plain)[name] = parsed.data;
  }
  const reported = new Set(issues.map((issue) => issue.path));
  for (const [name, item] of Object.entries(layout.fields)) {
    const present = Object.hasOwn(plain, name) || Object.hasOwn(secrets, name) || options.mapped?.has(name);
    if (item.required && !present && ![...reported].some((path) => path.startsWith(name))) {
      issues.push({ path: name, message: 'is required' });
    }
  }
  const moved = stored && kept.length > 0 ? changedAddress(layout, plain, stored.plain) : null;
  if (moved !== null && issues.length === 0) issues.push({ path: moved, message: sendAgain(kept) });
  return issues.length > 0 ? { ok: false, issues } : { ok: true, plain, secrets, needsKey: layout.needsKey };
}

/** What to tell someone who changes an address under secrets that are stored. */
export const sendAgain = (kept: readonly string[]): string =>
  `is another address than before, and stored secrets go only where they were given for: send its secrets again (${kept.join(', ')})`;

/** A field of an address that is another one than before, or null. The way of signing in is one, so the former way's are not asked. */
function changedAddress(
  { fields }: Layout,
  now: Readonly<Record<string, unknown>>,
  before: Readonly<Record<string, unknown>>,
): string | null {
  const names = Object.keys(fields).filter((name) => isAddress(fields[name] ?? {}));
  return names.find((name) => JSON.stringify(now[name]) !== JSON.stringify(before[name])) ?? null;
}

/** Headers with what is stored in place of its masks; names of those that stay are added to `kept`. */
function unmask(content: unknown, stored: StoredAccount | undefined, kept: string[], issues: Issue[]): unknown {
  if (typeof content !== 'object' || content === null) return content;
  const { headers, missing } = unmaskHeaders(
    content as Record<string, unknown>,
    stored?.secrets,
    stored?.sealed ?? null,
  );
  for (const name of missing) issues.push({ path: `custom_headers.${name}`, message: REFUSED_MASK });
  const masked = Object.entries(content).filter(([, value]) => isMask(value));
  kept.push(...masked.map(([name]) => `custom_headers.${name}`));
  return headers;
}

/** The same for any owner of `custom_headers`; `missing` are masks of nothing that is stored. */
export function unmaskHeaders(
  given: Readonly<Record<string, unknown>>,
  secrets: Readonly<Record<string, unknown>> | undefined,
  sealed: string | null,
): { readonly headers: Record<string, unknown>; readonly missing: readonly string[] } {
  const before = Object.entries((secrets?.custom_headers ?? {}) as Record<string, unknown>);
  const headers: Record<string, unknown> = {};
  const missing: string[] = [];
  for (const [name, value] of Object.entries(given)) {
    headers[name] = value;
    if (!isMask(value)) continue;
    const found = before.find(([own]) => sealed !== null && maskOf(sealed, `custom_headers.${own}`) === value);
    if (found) headers[name] = found[1];
    else missing.push(name);
  }
  return { headers, missing };
}

/** Whether accounts of `id` with these settings have no other way of signing in than the key. */
export const signsByKeyAlone = (id: string, { auth_type: type }: Readonly<Record<string, unknown>>): boolean =>
  type !== 'oauthClientCredentials' &&
  !Object.values(accountKind(id)?.account.fields ?? {}).some(({ choices }) => choices !== undefined);

/** What is asked of a field by its name alone. */
export interface FieldTraits {
  readonly secret: boolean;
  readonly address: boolean;
  readonly host: boolean;
}

/** Every field of `id` in any way of signing in, with whether it is a secret or part of an address. */
export function allFields(id: string): Readonly<Record<string, FieldTraits>> {
  const stored = eachField(fieldsOf(id)).filter(([, field]) => field.stored !== false);
  return Object.fromEntries(
    stored.map(([name, field]) => [
      name,
      { secret: field.secret === true, address: isAddress(field), host: field.host === true },
    ]),
  );
}

/**
 * Refuses mappings that would say where calls go while secrets of the account are stored: these go only where they were given
 * for, and whoever writes into the secret manager would choose that. Throws 400.
 *
 * @param fields stored names of the mapped fields, in order
 */
export function checkMappedAddresses(id: string, fields: Iterable<string>, secretsStored: boolean): void {
  if (!secretsStored) return;
  const known = allFields(id);
  for (const [index, field] of [...fields].entries()) {
    if (Object.hasOwn(known, field) && known[field]?.address) {
      throw refuse(
        `secret_mappings[${index}].target_field`,
        `says where calls go, and secrets that are stored go only where they were given for: set ${field} itself, or map the secrets too`,
      );
    }
  }
}

/** What a secret manager gave for a field, as the field takes it; undefined when it does not fit. */
export function mappedValue(id: string, field: string, value: unknown): unknown {
  const schema = field === 'key' ? secretText : eachField(fieldsOf(id)).find(([name]) => name === field)?.[1];
  if (schema === undefined) return undefined;
  const parsed = (schema === secretText ? secretText : ready(schema as AccountField).schema).safeParse(value);
  return parsed.success ? parsed.data : undefined;
}

function unknownField(id: string, name: string): string {
  if (name.startsWith('masked_')) {
    return `shows a stored secret in answers and cannot be written: send ${name.slice('masked_'.length)}, or leave it out to keep it`;
  }
  return fieldNames(id).has(name)
    ? 'does not belong to the chosen way of signing in'
    : `is not a setting of the provider "${id}"`;
}
