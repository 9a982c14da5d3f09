/**
 * What the settings of an organisation and of its workspaces come to. The organisation's are in
 * `organisations.settings`, a workspace's in `workspaces.settings` (user keys) and `workspaces.security_settings`.
 */

import { scopesOf } from '../../auth/scopes.ts';
import { categoryOf, isOpenToWorkspaces } from '../../auth/security-settings.ts';
import type { Row } from '../../store/schema.ts';
import { refuse } from '../common.ts';
import { unknownScopes } from '../unknown-scopes.ts';
import type { MetadataSchema } from './metadata.ts';
import type { WorkspaceSecurity, WorkspaceSettings } from './schema.ts';
import { part } from './section.ts';

type Organisation = Pick<Row<'organisations'>, 'settings'>;
type Workspace = Pick<Row<'workspaces'>, 'settings' | 'security_settings'>;
type Json = Readonly<Record<string, unknown>>;

/** Values of `workspaces.settings` with the type they were stored with. */
type Stored = { readonly [K in keyof WorkspaceSettings]-?: Exclude<WorkspaceSettings[K], null | undefined> };

/** The value that holds in a workspace, which replaces the organisation's; null when neither has set one. */
export function effectiveSetting<K extends keyof Stored>(
  organisation: Organisation,
  workspace: Pick<Workspace, 'settings'> | null,
  key: K,
): Stored[K] | null {
  return ((workspace?.settings[key] ?? organisation.settings[key]) as Stored[K] | undefined) ?? null;
}

/** Whether joining a workspace makes a user key. The default workspace has its own setting, of the organisation only. */
export function autoCreatesUserKeys(
  organisation: Organisation,
  workspace: Pick<Row<'workspaces'>, 'settings' | 'is_default'>,
): boolean {
  if (workspace.is_default) return organisation.settings.default_workspace_user_api_key_auto_create === true;
  return effectiveSetting(organisation, workspace, 'user_api_key_auto_create') === true;
}

/** The schema that the metadata of new and changed API keys or workspaces must satisfy; null without one. */
export function metadataSchemaOf(organisation: Organisation, of: 'api_key' | 'workspace'): MetadataSchema | null {
  return (part(organisation.settings, 'metadata_schemas')[of] as MetadataSchema | undefined) ?? null;
}

/** Default and upper bound of the age of cached answers, seconds; null without one. */
export function cacheMaxAge({ settings }: Organisation): number | null {
  const { cache_max_age: seconds } = settings as { readonly cache_max_age?: unknown };
  return typeof seconds === 'number' ? seconds : null;
}

/** What an organisation and its workspace say of keeping bodies of requests. */
export interface BodySettings {
  readonly debugLog: 0 | 1;
  /** Share of the traces, 0 to 1. */
  readonly sample: number;
  /** Null: as long as the installation keeps them. */
  readonly days: number | null;
}

/** Which bodies of a workspace's requests are kept, where their key does not say otherwise. */
export function bodySettings(organisation: Organisation, workspace: Pick<Workspace, 'settings'> | null): BodySettings {
  return {
    debugLog: effectiveSetting(organisation, workspace, 'debug_log') ?? 0,
    sample: effectiveSetting(organisation, workspace, 'debug_log_sample') ?? 1,
    days: effectiveSetting(organisation, workspace, 'bodies_days'),
  };
}

/**
 * Saved-only mode: the organisation's setting, and the workspace's own where the organisation has opened the
 * category; the stricter of the two holds. An organisation that says nothing is in saved-only mode.
 */
export function blocksInlineConfig(organisation: Organisation, workspace: Workspace): boolean {
  if (organisation.settings.block_inline_config !== false) return true;
  if (!isOpenToWorkspaces(organisation, 'data_plane_security_settings')) return false;
  return part(workspace.security_settings, 'data_plane_security_settings').block_inline_config === true;
}

/** Fields that no export of a workspace may contain, and who says so; the workspace's list replaces the organisation's. */
export function deniedExportFields(
  organisation: Organisation,
  workspace: Workspace | null,
): { readonly deniedFields: readonly string[]; readonly source: 'organisation' | 'workspace' | 'none' } {
  const own = isOpenToWorkspaces(organisation, 'export_settings')
    ? part(workspace?.security_settings ?? {}, 'export_settings').deniedFields
    : undefined;
  if (Array.isArray(own)) return { deniedFields: own, source: 'workspace' };
  const general = part(organisation.settings, 'export_settings').deniedFields;
  return Array.isArray(general)
    ? { deniedFields: general, source: 'organisation' }
    : { deniedFields: [], source: 'none' };
}

/** Refuses `security_settings` of a workspace that touch a category which is not open to it: 400. */
export function checkWorkspaceSecurity(organisation: Organisation, patch: WorkspaceSecurity | null | undefined): void {
  for (const [key, value] of Object.entries(patch ?? {})) {
    if (value === undefined) continue;
    const category = categoryOf(key);
    if (!isOpenToWorkspaces(organisation, category)) {
      throw refuse(
        `security_settings.${key}`,
        `cannot be set by a workspace: the organisation has not opened ${category} (workspace_overrides.${category})`,
      );
    }
  }
}

/**
 * Rules between the settings of user keys that no field can check alone. Throws 400.
 *
 * @param patch what was given, so that the error names a field of it
 * @param prefix path of the settings in the body, with its dot: `settings.`
 */
export function checkUserKeySettings(patch: Partial<WorkspaceSettings> | null | undefined, merged: Json, prefix = '') {
  const scopes = patch?.user_api_key_auto_create_scopes ?? [];
  const wrong = unknownScopes(
    scopes,
    scopesOf('workspace-user'),
    `${prefix}user_api_key_auto_create_scopes`,
    'user keys',
  );
  if (wrong !== null) throw wrong;
  const [ttl, max] = [merged.user_api_key_ttl, merged.user_api_key_max_ttl];
  if (typeof ttl === 'number' && typeof max === 'number' && max > 0 && ttl > max) {
    const field = patch?.user_api_key_ttl == null ? 'user_api_key_max_ttl' : 'user_api_key_ttl';
    throw refuse(
      `${prefix}${field}`,
      'would let keys live longer by default than at most: user_api_key_ttl is above user_api_key_max_ttl',
    );
  }
}

/** What a new workspace starts with: the organisation's own values of the sections that are copied, not inherited. */
export function settingsForNewWorkspace(organisation: Organisation): Workspace {
  return {
    settings: {},
    security_settings: copied(organisation, {}, ['export_settings', 'data_plane_security_settings']),
  };
}

/** Categories whose values are copied to the workspaces when they are opened; the others are inherited until set. */
export const COPIED_CATEGORIES = ['export_settings', 'data_plane_security_settings'] as const;

/** `security_settings` of a workspace with the organisation's values of the given categories. */
export function copied(
  organisation: Organisation,
  own: Json,
  categories: readonly (typeof COPIED_CATEGORIES)[number][],
): Record<string, unknown> {
  const out = { ...own };
  for (const category of categories) {
    const value =
      category === 'export_settings'
        ? organisation.settings.export_settings
        : { block_inline_config: organisation.settings.block_inline_config !== false };
    if (value === undefined) delete out[category];
    else out[category] = value;
  }
  return out;
}

/**
 * Settings with a change of them: what the change leaves out stays, null removes. Sections are merged field by field;
 * lists and schemas are replaced.
 */
export function mergeSettings(current: Json, patch: Json | null | undefined): Record<string, unknown> {
  const out: Record<string, unknown> = { ...current };
  for (const [key, value] of Object.entries(patch ?? {})) {
    if (value === undefined) continue;
    if (value === null) delete out[key];
    else if (SECTIONS.has(key)) out[key] = mergeFields(part(current, key), value as Json);
    else out[key] = value;
    if (SECTIONS.has(key) && Object.keys(part(out, key)).length === 0) delete out[key];
  }
  return out;
}

const SECTIONS: ReadonlySet<string> = new Set([
  'security_settings',
  'workspace_overrides',
  'session_settings',
  'auth_settings',
  'export_settings',
  'data_plane_security_settings',
  'metadata_schemas',
  'alerts',
]);

function mergeFields(current: Json, patch: Json): Json {
  const out: Record<string, unknown> = { ...current };
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete out[key];
    else if (value !== undefined) out[key] = value;
  }
  return out;
}
