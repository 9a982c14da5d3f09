import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Log destinations that an erasure does not reach. */
export const fedDestinations: Migration = { name: '0035-fed-destinations', statements };

function statements(types: Types): string[] {
  const { T } = ddl(types);
  return [`ALTER TABLE log_erasures ADD COLUMN destinations ${T} DEFAULT '[]'`];
}
