import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Feedback on requests. */
export const feedback: Migration = { name: '0018-feedback', statements };

function statements(types: Types): string[] {
  const { text, int } = types;
  const { T, I, B, audit, organisation, refers, table, one, index } = ddl(types);
  return [
    table(
      'feedback',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        workspace_id: T,
        trace_id: T,
        value: `${int} NOT NULL CHECK (%s BETWEEN -10 AND 10)`,
        weight_micros: `${int} NOT NULL CHECK (%s BETWEEN 0 AND 1000000)`,
        weighted_micros: I,
        metadata: text,
        source: one('api', 'guardrail'),
        api_key_id: text,
        user_id: text,
        ai_model: text,
        provider: text,
        config_slug: text,
        matched: B,
        ...audit,
      },
      organisation,
      refers('workspace_id', 'workspaces'),
    ),
    // With all that graphs read, so that they read nothing else.
    index(
      'feedback_list',
      'feedback (organisation_id, workspace_id, created_at DESC, id, value, weighted_micros, ai_model)',
    ),
    index('feedback_trace', 'feedback (organisation_id, workspace_id, trace_id, created_at DESC, id)'),
    index('feedback_age', 'feedback (created_at, id)'),
  ];
}
