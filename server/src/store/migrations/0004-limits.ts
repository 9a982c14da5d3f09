import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Policies. */
export const limits: Migration = { name: '0004-limits', statements };

function statements(types: Types): string[] {
  const { text } = types;
  const { T, I, audit, inOrganisation, table, one, refers, index } = ddl(types);
  const inside = { id: `${T} PRIMARY KEY`, organisation_id: T, workspace_id: T };
  const workspace = refers('workspace_id', 'workspaces');

  return [
    table(
      'rate_policies',
      {
        ...inside,
        name: text,
        description: text,
        target: one('llm', 'mcp_tools'),
        conditions: T,
        group_by: T,
        type: one('requests', 'tokens'),
        unit: one('rpm', 'rph', 'rpd', 'rpw'),
        value: `${I} CHECK (%s >= 1)`,
        status: one('active', 'archived'),
        ...audit,
      },
      inOrganisation,
      workspace,
    ),
    index('rate_policies_list', 'rate_policies (workspace_id, status, created_at)'),
  ];
}
