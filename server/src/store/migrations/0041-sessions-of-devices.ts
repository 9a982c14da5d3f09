import type { Migration, Types } from './migration.ts';

/** The session in which a user lets a command line in. */
export const sessionsOfDevices: Migration = { name: '0041-sessions-of-devices', statements };

function statements({ text }: Types): string[] {
  return [`ALTER TABLE oauth_devices ADD COLUMN session_digest ${text}`];
}
