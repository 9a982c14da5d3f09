/** A secret reference of one organisation, without the columns that all rows have. */
export const secretReferenceRow = (name: string, workspace: string) => ({
  id: `${name}-secret-reference`,
  slug: `${name}-secret-reference`,
  name: `${name} secret reference`,
  description: null,
  manager_type: 'hashicorp_vault' as const,
  auth_config: { vault_auth_type: 'token', vault_addr: 'https://vault.example' },
  secret_auth_config: null,
  secret_path: 'secret/data/openai',
  secret_key: 'api_key',
  allowed_workspaces: [workspace],
  tags: { team: name },
  status: 'active' as const,
  created_by: `${name}-by`,
});
