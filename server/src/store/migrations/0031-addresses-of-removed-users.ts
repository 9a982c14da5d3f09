import { ddl } from './ddl.ts';
import type { Migration } from './migration.ts';

/** Tokens name people by address, and those who were removed are looked up too: the index of addresses has the living alone. */
export const addressesOfRemovedUsers: Migration = {
  name: '0031-addresses-of-removed-users',
  statements: (types) => [
    ddl(types).index('users_removed', "users (organisation_id, email) WHERE status = 'archived'"),
  ],
};
