/** How the users of an organisation may sign in: section `auth_settings` of its settings. */
import { isObject } from '../kernel/json.ts';
import type { Row } from '../store/schema.ts';

export interface AuthSettings {
  /** A sign-in through an identity provider makes no account for who has none and no invite. */
  readonly disableAutoProvisionUser: boolean;
  /** Only owners sign in by a link. */
  readonly disableLinkSignIn: boolean;
}

/** Whether a user of this role signs in by links. Owners always do: it is their way back when the provider is away. */
export const mayUseLinks = (
  organisation: Pick<Row<'organisations'>, 'settings'>,
  role: Row<'users'>['role'],
): boolean => role === 'owner' || !authSettingsOf(organisation).disableLinkSignIn;

export function authSettingsOf({ settings }: Pick<Row<'organisations'>, 'settings'>): AuthSettings {
  const section: unknown = settings.auth_settings;
  const on = (key: string) => isObject(section) && section[key] === true;
  return { disableAutoProvisionUser: on('disable_auto_provision_user'), disableLinkSignIn: on('disable_link_sign_in') };
}
