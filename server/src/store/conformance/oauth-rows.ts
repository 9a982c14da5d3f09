/** What a user of one organisation gave a client, without the columns that all rows have. */
export function oauthRows<I extends { organisation_id: string; workspace_id: string }, C extends object>(
  name: string,
  user: string,
  inside: I,
  created: C,
) {
  const given = { user_id: user, client_id: 'client', scope: 'mcp', resource: 'https://sluice.example/tools/mcp' };
  const seen = { client_name: name, signed_in_at: null };
  const rest = { expires_at: 1_800_000_000_000, ...created };
  const { organisation_id } = inside;
  return {
    oauth_codes: {
      digest: `${name}-code`,
      ...inside,
      ...given,
      redirect_uri: 'http://127.0.0.1/callback',
      challenge: name,
      ...seen,
      family_id: null,
      used_at: null,
      ...rest,
    },
    oauth_families: { id: `${name}-grant`, ...inside, ...given, ...seen, ...rest },
    oauth_tokens: {
      digest: `${name}-access`,
      organisation_id,
      family_id: `${name}-grant`,
      kind: 'access' as const,
      scope: 'mcp',
      used_at: null,
      ...rest,
    },
  };
}
