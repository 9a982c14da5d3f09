/** What the account and config resources share beside field shapes: who acts, in which workspace, refusals, slugs. */
import type { Principal } from '../auth/principal.ts';
import { SluiceError } from '../kernel/errors.ts';
import { hexSuffix } from '../kernel/id.ts';
import type { TenantTx, Where } from '../store/ports.ts';
import type { Row, SecretMapping, TenantTable } from '../store/schema.ts';
import { isUuid } from './fields.ts';
import { furtherIssues, type Issue, problemsOf, sentenceOf } from './issues.ts';
import type { Call } from './resource.ts';
import { missingSecretReferences } from './secret-references/find.ts';

/** A change of a row while it is being put together. */
export type Patch<N extends TenantTable> = { -readonly [K in keyof Row<N>]?: Row<N>[K] };

/** The one that was presented of one row. */
export function only<T>(items: readonly T[]): T {
  const [item] = items;
  if (item === undefined || items.length > 1) throw new Error(`one row was presented as ${items.length}`);
  return item;
}

/** Id of the acting user, or of the key when it acts for no user. */
export function actorId(principal: Principal): string {
  return principal.userId ?? principal.keyId ?? principal.organisationId;
}

/** 400 `AB01` for one field: `param` and what it must be, as a phrase. */
export function refuse(param: string, message: string): SluiceError {
  return new SluiceError('validation', sentenceOf(param, message), { param });
}

/** 400 for the first of several issues, whose paths are relative to `prefix` (complete where it is empty); says where the others are. */
export function refuseIssues(prefix: string, issues: readonly Issue[]): SluiceError {
  const [first, ...more] = issues;
  const path = first?.path ?? '';
  const param = path === '' || prefix === '' ? prefix + path : `${prefix}.${path}`;
  const error = refuse(param, first?.message ?? 'is not valid');
  return more.length === 0
    ? error
    : new SluiceError('validation', error.message + furtherIssues(more, prefix), {
        param,
        problems: problemsOf(issues, prefix),
      });
}

/** 404 `AB02`: a body names something that does not exist or is not visible, the same answer for both. */
export function unknownReference(param: string, what: string): SluiceError {
  return new SluiceError('unknown_reference', `${param} names no ${what} that you can use here.`, { param });
}

/** The workspace a write goes to. Throws 400 when an organisation-wide caller named none. */
export function requireWorkspace(call: Call): string {
  const { workspaceId } = call.tenant;
  if (workspaceId !== null) return workspaceId;
  throw workspaceMissing('your credential is not bound to a workspace');
}

/** 400 for a request that has to name its workspace, and what to send. */
export function workspaceMissing(why: string): SluiceError {
  return new SluiceError(
    'validation',
    `workspace_id is required: ${why}. Send the id or slug in the query or the body; GET /v1/admin/workspaces lists them.`,
    { param: 'workspace_id' },
  );
}

/** The active workspace with this id or slug, within the organisation. */
export async function findWorkspace(tx: TenantTx, name: string): Promise<Row<'workspaces'> | undefined> {
  const byId = isUuid(name) ? await tx.find('workspaces', { id: name.toLowerCase(), status: 'active' }) : undefined;
  return byId ?? (await tx.find('workspaces', { slug: name, status: 'active' }));
}

/**
 * The workspace the caller works in, or null for the whole organisation. For routes that are organisation-wide,
 * because an organisation's own objects have no workspace; the handler has checked already that the name may be used.
 */
export async function workspaceOf(call: Call): Promise<string | null> {
  const bound = call.principal.workspaceId ?? call.tenant.workspaceId;
  if (bound !== null) return bound;
  const named = nameIn(call.query) ?? nameIn(call.body);
  if (named === null) return null;
  const workspace = await findWorkspace(call.tx, named);
  if (!workspace)
    throw new SluiceError(
      'unknown_reference',
      'workspace_id names no workspace of your organisation; GET /v1/admin/workspaces lists them.',
      {
        param: 'workspace_id',
      },
    );
  return workspace.id;
}

function nameIn(input: unknown): string | null {
  if (typeof input !== 'object' || input === null) return null;
  const value = (input as { workspace_id?: unknown }).workspace_id;
  return typeof value === 'string' ? value : null;
}

/** A row by id or slug among those `where` allows. */
export async function findNamed<N extends 'integrations' | 'configs' | 'providers' | 'virtual_keys'>(
  tx: TenantTx,
  table: N,
  reference: string,
  where: Where<N>,
): Promise<Row<N> | undefined> {
  const byId = isUuid(reference)
    ? await tx.find(table, { ...where, id: reference.toLowerCase() } as Where<N>)
    : undefined;
  return byId ?? (await tx.find(table, { ...where, slug: reference } as Where<N>));
}

/** Slugs under `/providers` and `/virtual-keys` that are separate paths. */
const RESERVED_SLUGS = new Set(['models', 'migrate']);

/**
 * Providers and virtual keys share one namespace, because a request names either with the same `@slug` or virtual-key
 * header: with two namespaces one of the two would be unreachable. Slugs are unique in the organisation; a
 * caller bound to a workspace sees the slugs of its workspace only, and for the rest the store's own unique index says
 * 409. A migrated virtual key lives on as the provider that took its slug over.
 */
export async function slugTaken(tx: TenantTx, slug: string): Promise<boolean> {
  const where = { slug, status: { not: 'archived' } } as const;
  if ((await tx.count('providers', { where })) > 0) return true;
  return (await tx.count('virtual_keys', { where: { ...where, integration_id: null } })) > 0;
}

/** Checks a slug that the caller chose. Throws 400 for a reserved one and 409 for a taken one. */
export async function claimSlug(tx: TenantTx, slug: string): Promise<string> {
  if (RESERVED_SLUGS.has(slug)) throw refuse('slug', 'is reserved: choose another one');
  if (!(await slugTaken(tx, slug))) return slug;
  throw new SluiceError('conflict', `slug is taken by another provider or virtual key: ${slug}.`, { param: 'slug' });
}

/** `base` when it is free, else `base` with a random tail. */
export async function freeSlug(tx: TenantTx, base: string): Promise<string> {
  if (!RESERVED_SLUGS.has(base) && !(await slugTaken(tx, base))) return base;
  return `${base.slice(0, 248)}-${hexSuffix()}`;
}

/** Refuses mappings to unknown fields (400) and to unknown references (404). Answers the names that are mapped. */
export async function checkMappings(
  tx: TenantTx,
  workspaceId: string | null,
  mappings: readonly SecretMapping[] | null | undefined,
  prefix: 'configurations' | 'model_config',
  fields: ReadonlySet<string>,
): Promise<Set<string>> {
  const mapped = new Set<string>();
  if (!mappings || mappings.length === 0) return mapped;
  for (const [index, mapping] of mappings.entries()) {
    const field = mapping.target_field === 'key' ? 'key' : mapping.target_field.slice(prefix.length + 1);
    if (field !== 'key' && !fields.has(field)) {
      throw refuse(`secret_mappings[${index}].target_field`, `names no field of the provider: ${field}`);
    }
    mapped.add(field);
  }
  const names = [...new Set(mappings.map((mapping) => mapping.secret_reference_id))];
  const missing = new Set(await missingSecretReferences(tx, workspaceId, names));
  const index = mappings.findIndex((mapping) => missing.has(mapping.secret_reference_id));
  if (index >= 0) throw unknownReference(`secret_mappings[${index}].secret_reference_id`, 'secret reference');
  return mapped;
}

/** `active` until `expires_at` has passed, unless the row says otherwise. */
export function statusOf<S extends string>(
  row: { readonly status: S; readonly expires_at: number | null },
  now: number,
): S | 'expired' {
  return row.status === 'active' && row.expires_at !== null && row.expires_at <= now ? 'expired' : row.status;
}

/** Reads a `tags` filter: JSON text of a flat string map. Throws 400. */
export function readTagsFilter(text: string): Record<string, string> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw refuse('tags', 'must be a JSON object of strings, such as {"team":"search"}');
  }
  const entries = typeof value === 'object' && value !== null && !Array.isArray(value) ? Object.entries(value) : null;
  if (entries === null || !entries.every(([, item]) => typeof item === 'string')) {
    throw refuse('tags', 'must be a JSON object of strings, such as {"team":"search"}');
  }
  return Object.fromEntries(entries) as Record<string, string>;
}

export function hasTags(tags: Record<string, string> | null, wanted: Readonly<Record<string, string>>): boolean {
  return Object.entries(wanted).every(
    ([key, value]) => tags !== null && Object.hasOwn(tags, key) && tags[key] === value,
  );
}
