/** What anybody who holds a token may learn of it (RFC 7662). */
import type { Tables } from '../store/ports.ts';
import type { Grants } from './grants.ts';

/** The answer for everything that is no live token: an equal one, so that it tells nothing about what exists. */
const INACTIVE = { active: false } as const;

/** Policies that one answer lists. */
const MOST_POLICIES = 100;

export async function introspect(
  grants: Pick<Grants, 'find'>,
  tables: Pick<Tables, 'systemRead'>,
  issuer: string,
  token: string,
) {
  const live = await grants.find(token);
  if (live === null) return INACTIVE;
  const { family, user, organisation, workspace } = live;
  const agent = new URL(family.resource).pathname.startsWith('/v1/agent/');
  const segments = new URL(family.resource).pathname.split('/');
  const limits = await tables.systemRead((tx) =>
    tx.list('rate_policies', {
      where: {
        organisation_id: organisation.id,
        workspace_id: workspace.id,
        target: 'mcp_tools',
        status: 'active',
      },
      orderBy: [['created_at', 'asc']],
      limit: MOST_POLICIES,
    }),
  );
  return {
    active: true,
    ...(live.token.kind === 'access' ? { token_type: 'Bearer' } : {}),
    client_id: family.client_id,
    scope: live.token.scope,
    exp: Math.floor(live.token.expires_at / 1000),
    iat: Math.floor(live.token.created_at / 1000),
    sub: user.id,
    aud: family.resource,
    iss: issuer,
    workspace_id: workspace.id,
    organisation_id: organisation.id,
    resource_id: segments.at(agent ? -1 : -2) ?? '',
    resource_type: agent ? 'agent_server' : 'mcp_server',
    email: user.email,
    username: user.email,
    user_id: user.id,
    display_name: `${user.first_name} ${user.last_name}`.trim(),
    organisation_name: organisation.name,
    organisation_details: { id: organisation.id, name: organisation.name, slug: organisation.slug },
    workspace_name: workspace.name,
    workspace_slug: workspace.slug,
    rate_limits: limits.map(({ id, type, unit, value, conditions, group_by }) => ({
      policy_id: id,
      ...{ type, unit, value, conditions, group_by },
    })),
  };
}
