import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Passkeys that users sign in with. */
export const passkeys: Migration = { name: '0037-passkeys', statements };

function statements(types: Types): string[] {
  const { int } = types;
  const { T, I, part, table, refers, index } = ddl(types);
  return [
    table(
      'passkeys',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        user_id: T,
        name: T,
        public_key: T,
        counter: I,
        transports: T,
        last_used_at: int,
        created_at: I,
      },
      refers('user_id', 'users', part),
    ),
    index('passkeys_user', 'passkeys (organisation_id, user_id)'),
    table('used_challenges', { digest: `${T} PRIMARY KEY`, expires_at: I }),
    index('used_challenges_expiry', 'used_challenges (expires_at)'),
  ];
}
