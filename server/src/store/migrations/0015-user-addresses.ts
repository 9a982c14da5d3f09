import { ddl } from './ddl.ts';
import type { Migration } from './migration.ts';

/** Who has an address, in every organisation: anybody may ask for a sign-in link, so it must cost little. */
export const userAddresses: Migration = {
  name: '0015-user-addresses',
  statements: (types) => [ddl(types).index('users_address', "users (email, created_at, id) WHERE status = 'active'")],
};
