import type { Migration, Types } from './migration.ts';

/** How far each node came with a destination, and what others send in its place. */
export const handedOverDestinations: Migration = { name: '0044-handed-over-destinations', statements };

function statements(types: Types): string[] {
  const { text, int } = types;
  return [
    `ALTER TABLE log_destination_feeds ADD COLUMN mark ${text}`,
    `ALTER TABLE log_destination_feeds ADD COLUMN handed ${text}`,
    `ALTER TABLE log_destination_feeds ADD COLUMN taken_by ${text}`,
    `ALTER TABLE log_destination_feeds ADD COLUMN taken_until ${int}`,
  ];
}
