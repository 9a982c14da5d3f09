import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** The chunks of kept bodies. */
export const bodyChunks: Migration = { name: '0020-body-chunks', statements };

function statements(types: Types): string[] {
  const { T, I, table, index } = ddl(types);
  return [
    table('body_chunks', {
      id: `${T} PRIMARY KEY`,
      organisation_id: T,
      workspace_id: T,
      day: I,
      records: I,
      bytes: I,
      created_at: I,
    }),
    index('body_chunks_old', 'body_chunks (day, id)'),
    index('body_chunks_list', 'body_chunks (organisation_id, workspace_id, day, id)'),
  ];
}
