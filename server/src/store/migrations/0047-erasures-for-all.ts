import type { Migration, Types } from './migration.ts';

/** When no record of an erasure was left where all nodes have theirs. */
export const erasuresForAll: Migration = { name: '0047-erasures-for-all', statements };

function statements({ int }: Types): string[] {
  return [`ALTER TABLE log_erasures ADD COLUMN rewritten_at ${int}`];
}
