/** Users of an organisation beside its first owner, and their sign-ins, for tests of the administration API. */
import { type ConsoleSessions, createLink } from '../../src/auth/console-session.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import type { Tables } from '../../src/store/ports.ts';
import type { Row } from '../../src/store/schema.ts';

/** SLUICE_PUBLIC_URL of `startAdmin`. */
export const PUBLIC_URL = 'https://sluice.example';

export async function addUser(
  tables: Tables,
  organisationId: string,
  fields: Partial<Row<'users'>> = {},
): Promise<Row<'users'>> {
  const id = uuidv7(systemClock);
  const row: Row<'users'> = {
    id,
    organisation_id: organisationId,
    email: `${id}@people.example`,
    first_name: 'Grace',
    last_name: 'Hopper',
    role: 'member',
    status: 'active',
    created_at: systemClock.now(),
    last_updated_at: systemClock.now(),
    ...fields,
  };
  await tables.systemWrite((tx) => tx.insert('users', row));
  return row;
}

/** The headers of a browser in which this user is signed in, for reads and writes. */
export async function signIn(
  tables: Tables,
  sessions: ConsoleSessions,
  user: { readonly id: string; readonly organisation_id: string },
): Promise<Record<string, string>> {
  const link = await createLink(tables, systemClock, user);
  const { token, session } = await sessions.exchange(link.token);
  return { cookie: `${sessions.cookieName}=${token}`, origin: PUBLIC_URL, 'x-csrf-token': session.csrf };
}
