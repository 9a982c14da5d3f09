import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** What an organisation's next sign-in removes: its sign-ins that never came back, and its sessions that ended long ago. */
export const endedSignIns: Migration = { name: '0039-ended-sign-ins', statements };

function statements(types: Types): string[] {
  const { index } = ddl(types);
  return [
    'DROP INDEX login_attempts_end',
    index('login_attempts_end', 'login_attempts (organisation_id, expires_at)'),
    index('console_sessions_old', 'console_sessions (organisation_id, created_at)'),
  ];
}
