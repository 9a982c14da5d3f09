import type { Migration, Types } from './migration.ts';

/** What a user is shown of an approval, and when the sign-in began in which it was given. */
export const approvals: Migration = { name: '0046-approvals', statements };

function statements({ text, int }: Types): string[] {
  return ['oauth_codes', 'oauth_families'].flatMap((table) => [
    `ALTER TABLE ${table} ADD COLUMN client_name ${text}`,
    `ALTER TABLE ${table} ADD COLUMN signed_in_at ${int}`,
  ]);
}
