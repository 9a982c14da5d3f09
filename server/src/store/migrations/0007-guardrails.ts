import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Guardrails, their versions, and the MCP servers they watch. */
export const guardrails: Migration = { name: '0007-guardrails', statements };

function statements(types: Types): string[] {
  const { text } = types;
  const { T, I, audit, inOrganisation, part, table, one, refers, index, unique } = ddl(types);
  const guardrail = refers('guardrail_id', 'guardrails', part);

  return [
    table(
      'guardrails',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        workspace_id: text,
        slug: T,
        name: T,
        target: one('llm', 'mcp_tools'),
        status: one('active', 'archived'),
        version_id: T,
        owner_id: T,
        updated_by: text,
        ...audit,
      },
      inOrganisation,
      refers('workspace_id', 'workspaces'),
    ),
    unique('guardrails_slug', 'guardrails (organisation_id, slug)'),
    index('guardrails_list', 'guardrails (organisation_id, workspace_id, status, created_at)'),
    table(
      'guardrail_versions',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        guardrail_id: T,
        number: I,
        checks: T,
        actions: T,
        created_by: T,
        created_at: I,
      },
      guardrail,
    ),
    unique('guardrail_versions_number', 'guardrail_versions (guardrail_id, number)'),
    table(
      'guardrail_mcp_servers',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        guardrail_id: T,
        mcp_server_id: T,
        run_on: T,
        capability_ids: T,
        ...audit,
      },
      guardrail,
    ),
    unique('guardrail_mcp_servers_once', 'guardrail_mcp_servers (guardrail_id, mcp_server_id)'),
    index('guardrail_mcp_servers_of', 'guardrail_mcp_servers (organisation_id, mcp_server_id)'),
  ];
}
