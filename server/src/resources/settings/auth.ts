/** How the users of an organisation sign in: `auth_settings` of its settings. */
import { z } from 'zod';
import { authSettingsOf } from '../../auth/auth-settings.ts';
import type { Row } from '../../store/schema.ts';
import { jwtSettings, jwtSettingsAnswer, presentJwt, storedJwt } from './jwt.ts';

export const MAX_DOMAINS = 50;

/** Of addresses, in ASCII. Becomes lower case. */
export const domain = z
  .string()
  .max(253)
  .transform((value) => value.toLowerCase())
  .pipe(
    z
      .string()
      .regex(
        /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])$/,
        'must be a domain in ASCII, such as example.com',
      ),
  );

export const authSettings = z
  .strictObject({
    disable_auto_provision_user: z
      .boolean()
      .nullable()
      .optional()
      .describe('True: a sign-in through an identity provider makes no user; an invite or SCIM does.'),
    disable_link_sign_in: z
      .boolean()
      .nullable()
      .optional()
      .describe('True: only owners sign in by a link; all others through an identity provider.'),
    allowed_domains: z
      .array(z.strictObject({ domain, allow_subdomains: z.boolean().default(false) }))
      .max(MAX_DOMAINS)
      .nullable()
      .optional()
      .describe(
        'Domains of the addresses of users, of which an identity provider may make users. A domain counts once it is verified: at once on an ' +
          'installation of one organisation, else by a TXT record, which is looked up whenever the list is saved.',
      ),
    jwt: jwtSettings.nullable().optional(),
  })
  .describe('How users sign in.');

export const authSettingsAnswer = z.object({
  disable_auto_provision_user: z.boolean(),
  disable_link_sign_in: z.boolean(),
  allowed_domains: z.array(
    z.object({
      domain: z.string(),
      allow_subdomains: z.boolean(),
      verified: z.boolean(),
      verification: z.object({ name: z.string(), value: z.string() }).describe('The TXT record that verifies it.'),
    }),
  ),
  jwt: jwtSettingsAnswer,
});

export function presentAuth(
  organisation: Pick<Row<'organisations'>, 'settings'>,
  domains: readonly Row<'organisation_domains'>[],
): z.output<typeof authSettingsAnswer> {
  const { disableAutoProvisionUser, disableLinkSignIn } = authSettingsOf(organisation);
  return {
    disable_auto_provision_user: disableAutoProvisionUser,
    disable_link_sign_in: disableLinkSignIn,
    allowed_domains: domains.map((row) => ({
      domain: row.domain,
      allow_subdomains: row.allow_subdomains,
      verified: row.verified_at !== null,
      verification: { name: `_sluice.${row.domain}`, value: `sluice-verification=${row.token}` },
    })),
    jwt: presentJwt(organisation),
  };
}

/**
 * `auth_settings` of a body as they are stored: `{ auth_settings }`, or nothing where the body says nothing of them. Throws as
 * `storedJwt`.
 */
export async function storedAuth(
  call: Parameters<typeof storedJwt>[0],
  given: z.output<typeof authSettings> | null | undefined,
  before: Row<'organisations'>,
): Promise<{ auth_settings?: Readonly<Record<string, unknown>> }> {
  if (given == null) return {};
  // Domains are in a table: each is one organisation's only.
  const { allowed_domains: _domains, ...own } = given;
  return { auth_settings: own.jwt == null ? own : { ...own, jwt: await storedJwt(call, own.jwt, before) } };
}
