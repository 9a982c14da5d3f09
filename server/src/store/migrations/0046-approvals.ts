import type { Migration, Types } from './migration.ts';

/** What a user is shown of an approval, and when the sign-in began in which it was given. */
export const approvals: Migration = { name: '0046-approvals', statements };

function statements({ text, int }: Types): string[] {
  const columns = ['oauth_codes', 'oauth_families'].flatMap((table) => [
    `ALTER TABLE ${table} ADD COLUMN client_name ${text}`,
    `ALTER TABLE ${table} ADD COLUMN signed_in_at ${int}`,
  ]);
  return [
    ...columns,
    // Approvals are listed newest first.
    'DROP INDEX oauth_families_user',
    'CREATE INDEX oauth_families_user ON oauth_families (organisation_id, user_id, created_at, id)',
  ];
}
