/**
 * Security settings: what members, managers and organisation admins may do beyond or below their role, set
 * for the organisation and, for the categories it opens, by a workspace for itself.
 */
import type { Row } from '../store/schema.ts';

/** Category, its settings that are on unless set, and those that are off unless set. */
const TABLE = [
  [
    'logs',
    [
      'membersViewLogs',
      'managersViewLogs',
      'membersViewLogMetadata',
      'managersViewLogMetadata',
      'organisationAdminsViewLogs',
      'organisationAdminsViewLogMetadata',
    ],
    [],
  ],
  ['data_visibility', ['membersViewAllData', 'managersViewAllData'], []],
  ['analytics', ['membersViewAnalytics', 'managersViewAnalytics'], []],
  ['api_keys', ['membersViewApiKeys', 'membersWriteApiKeys', 'managersViewApiKeys', 'managersWriteApiKeys'], []],
  ['configs', ['membersViewConfigs', 'managersViewConfigs', 'managersWriteConfigs'], ['membersWriteConfigs']],
  ['prompts', ['membersViewPrompts', 'managersViewPrompts', 'managersWritePrompts'], ['membersWritePrompts']],
  [
    'guardrails',
    ['membersViewGuardrails', 'managersViewGuardrails', 'managersWriteGuardrails'],
    ['membersWriteGuardrails'],
  ],
  [
    'providers',
    ['membersViewVirtualKeys', 'membersWriteVirtualKeys', 'managersViewVirtualKeys', 'managersWriteVirtualKeys'],
    [],
  ],
  ['integrations', ['managersWriteWsIntegrations', 'managersWriteWsMcpIntegrations', 'managersWriteMcpServers'], []],
  ['workspace', ['managersUpdateWs', 'managersWriteWsUsers'], []],
] as const;

type Group = (typeof TABLE)[number];
/** A switch of the security settings. */
export type SecurityKey = Group[1][number] | Group[2][number];
/** Every setting that is a switch, with the value that holds. */
export type SecuritySettings = Readonly<Record<SecurityKey, boolean>>;

/** What a workspace may be allowed to set for itself; the last two are separate objects, not switches. */
export const OVERRIDE_CATEGORIES = [
  ...TABLE.map(([category]) => category),
  'export_settings',
  'data_plane_security_settings',
] as const;
export type OverrideCategory = (typeof OVERRIDE_CATEGORIES)[number];

/** Category of each switch. */
const SECURITY_CATEGORY = Object.fromEntries(
  TABLE.flatMap(([category, on, off]) => [...on, ...off].map((key) => [key, category])),
) as Readonly<Record<SecurityKey, OverrideCategory>>;

/** The category that decides about a field of a workspace's `security_settings`: a switch, or a separate object. */
export function categoryOf(field: string): OverrideCategory {
  return (SECURITY_CATEGORY as Record<string, OverrideCategory>)[field] ?? (field as OverrideCategory);
}

export const SECURITY_KEYS = Object.keys(SECURITY_CATEGORY) as readonly SecurityKey[];

/** What holds where nobody has set anything. */
export const SECURITY_DEFAULTS: SecuritySettings = Object.freeze(
  Object.fromEntries(
    TABLE.flatMap(([, on, off]) => [
      ...on.map((key) => [key, true] as const),
      ...off.map((key) => [key, false] as const),
    ]),
  ) as Record<SecurityKey, boolean>,
);

type Organisation = Pick<Row<'organisations'>, 'settings'>;

/** Whether the organisation lets its workspaces decide about a category (`workspace_overrides`); closed unless opened. */
export function isOpenToWorkspaces(organisation: Organisation, category: OverrideCategory): boolean {
  const { workspace_overrides: open } = organisation.settings;
  return isObject(open) && open[category] === true;
}

/**
 * The settings that hold in a workspace (or, without one, outside of any): the organisation's over the defaults, and the
 * workspace's own over those of the categories that the organisation has opened to override. What the organisation
 * withholds from its own admins no workspace gives back: they are admins there, too, and would do it themselves.
 */
export function securityOf(
  organisation: Organisation,
  workspace: Pick<Row<'workspaces'>, 'security_settings'> | null,
): SecuritySettings {
  const general = organisation.settings.security_settings;
  const own = workspace?.security_settings;
  if (!isObject(general) && (own === undefined || Object.keys(own).length === 0)) return SECURITY_DEFAULTS;
  const out: Record<SecurityKey, boolean> = { ...SECURITY_DEFAULTS };
  for (const key of SECURITY_KEYS) {
    if (isObject(general) && typeof general[key] === 'boolean') out[key] = general[key];
    const value = isOpenToWorkspaces(organisation, SECURITY_CATEGORY[key]) ? own?.[key] : undefined;
    if (typeof value === 'boolean') out[key] = key.startsWith('organisationAdmins') ? out[key] && value : value;
  }
  return out;
}

/** The longest life of a sign-in, milliseconds from signing in; null without a limit (`session_settings.max_session_ttl`). */
export function maxSessionMs(organisation: Organisation): number | null {
  const { session_settings: session } = organisation.settings;
  const seconds = isObject(session) ? session.max_session_ttl : null;
  return typeof seconds === 'number' ? seconds * 1000 : null;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
