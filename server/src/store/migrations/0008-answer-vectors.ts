import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Questions whose answers are in the cache. */
export const answerVectors: Migration = { name: '0008-answer-vectors', statements };

function statements(types: Types): string[] {
  const { T, I, inOrganisation, table, refers, index } = ddl(types);
  return [
    table(
      'answer_vectors',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        workspace_id: T,
        scope: T,
        vector: T,
        place: T,
        secret: T,
        created_at: I,
        expires_at: I,
      },
      inOrganisation,
      refers('workspace_id', 'workspaces'),
    ),
    index('answer_vectors_scope', 'answer_vectors (organisation_id, scope, created_at)'),
    index('answer_vectors_age', 'answer_vectors (organisation_id, workspace_id, created_at)'),
    index('answer_vectors_due', 'answer_vectors (expires_at)'),
  ];
}
