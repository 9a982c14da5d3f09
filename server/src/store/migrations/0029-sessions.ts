import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** How a session came to be, and the tokens that hang on it. */
export const sessions: Migration = { name: '0029-sessions', statements };

function statements(types: Types): string[] {
  const { text, int } = types;
  const { T, I, inOrganisation, part, table, one, refers, index, unique } = ddl(types);
  const add = (column: string, type: string) => `ALTER TABLE console_sessions ADD COLUMN ${column} ${type}`;
  return [
    add('client_id', text),
    add('auth_time', int),
    add('issuer', text),
    add('subject', text),
    add('sid', text),
    add('id_token', text),
    add('user_agent', text),
    add('browser', text),
    unique('console_sessions_digest', 'console_sessions (organisation_id, digest)'),
    index('console_sessions_client', 'console_sessions (organisation_id, client_id) WHERE client_id IS NOT NULL'),
    index('console_sessions_subject', 'console_sessions (organisation_id, issuer, subject) WHERE subject IS NOT NULL'),
    index('console_sessions_sid', 'console_sessions (organisation_id, sid) WHERE sid IS NOT NULL'),
    table(
      'session_families',
      { id: `${T} PRIMARY KEY`, organisation_id: T, session: T, created_at: I },
      inOrganisation,
      `FOREIGN KEY (organisation_id, session) REFERENCES console_sessions (organisation_id, digest)${part}`,
    ),
    index('session_families_session', 'session_families (organisation_id, session)'),
    table(
      'session_tokens',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        family_id: T,
        kind: one('auth', 'refresh'),
        digest: T,
        expires_at: I,
        used_at: int,
        created_at: I,
      },
      refers('family_id', 'session_families', part),
    ),
    index('session_tokens_family', 'session_tokens (organisation_id, family_id)'),
  ];
}
