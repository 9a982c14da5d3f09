import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Principal, PrincipalKind } from './principal.ts';
import { grantable, intersect, roleScopes, SCOPES, scopesOf } from './scopes.ts';
import { SECURITY_DEFAULTS } from './security-settings.ts';

const principal = (kind: PrincipalKind, scopes: Iterable<string>): Principal => ({
  kind,
  keyId: 'k',
  keyName: 'k',
  organisationId: 'o',
  workspaceId: null,
  userId: null,
  role: null,
  scopes: new Set(scopes),
  defaults: {},
  rateLimits: [],
  usageLimits: null,
  expiresAt: null,
});

describe('the scope catalogue', () => {
  it('has the sizes of the published table, beside the scopes of log destinations', () => {
    const published = (kind: 'organisation-service' | 'workspace-service' | 'workspace-user') =>
      [...scopesOf(kind)].filter((scope) => !/^(organisation_)?log_destinations\./.test(scope)).length;
    expect(published('organisation-service')).toBe(142);
    expect(published('workspace-service')).toBe(103);
    expect(published('workspace-user')).toBe(91);
    expect(scopesOf('operator').size).toBe(0);
  });

  it('gives inference to workspace keys only, and settings to organisation keys only', () => {
    for (const scope of ['completions.write', 'mcp.invoke', 'agents.invoke', 'guardrails.invoke', 'models.list']) {
      expect(scopesOf('organisation-service').has(scope), scope).toBe(false);
      expect(scopesOf('workspace-service').has(scope), scope).toBe(true);
      expect(scopesOf('workspace-user').has(scope), scope).toBe(true);
    }
    for (const scope of ['organisation_settings.update', 'audit_logs.list', 'organisation_users.read']) {
      expect(scopesOf('organisation-service').has(scope), scope).toBe(true);
      expect(scopesOf('workspace-service').has(scope), scope).toBe(false);
      expect(scopesOf('workspace-user').has(scope), scope).toBe(false);
    }
    expect([...scopesOf('workspace-user')].filter((scope) => scope.includes('api_keys'))).toEqual([]);
  });

  it('list never implies read, and every name has the form resource.action', () => {
    for (const scope of SCOPES) expect(scope).toMatch(/^[a-z]+(_[a-z]+)*\.[a-z]+$/);
    expect(SCOPES.has('audit_logs.list')).toBe(true);
    expect(SCOPES.has('audit_logs.read')).toBe(false);
  });
});

describe('roles', () => {
  it('a higher role holds everything a lower one does', () => {
    const order = [
      roleScopes('member', null, SECURITY_DEFAULTS),
      roleScopes('member', 'member', SECURITY_DEFAULTS),
      roleScopes('member', 'manager', SECURITY_DEFAULTS),
      roleScopes('member', 'admin', SECURITY_DEFAULTS),
      roleScopes('admin', null, SECURITY_DEFAULTS),
      roleScopes('owner', null, SECURITY_DEFAULTS),
    ];
    expect(order[0]?.size).toBe(0);
    for (let i = 1; i < order.length; i++) {
      expect([...(order[i - 1] ?? [])].filter((scope) => !order[i]?.has(scope))).toEqual([]);
    }
  });

  it('a workspace member sends traffic and reads, but writes no configs, prompts or guardrails', () => {
    const member = roleScopes('member', 'member', SECURITY_DEFAULTS);
    for (const scope of ['completions.write', 'configs.read', 'logs.list', 'virtual_keys.create']) {
      expect(member.has(scope), scope).toBe(true);
    }
    for (const scope of [
      'configs.update',
      'prompts.create',
      'guardrails.delete',
      'workspace_service_api_keys.create',
    ]) {
      expect(member.has(scope), scope).toBe(false);
    }
  });
});

describe('what a caller may grant', () => {
  it('is never more than it holds, but for the scopes an organisation key cannot hold', () => {
    const kinds: PrincipalKind[] = ['organisation-service', 'workspace-service', 'workspace-user', 'user'];
    fc.assert(
      fc.property(fc.constantFrom(...kinds), fc.subarray([...SCOPES]), (kind, scopes) => {
        const held = intersect(scopes, scopesOf(kind));
        for (const scope of grantable(principal(kind, held))) {
          if (held.has(scope)) continue;
          expect(kind).toBe('organisation-service');
          expect(scopesOf('organisation-service').has(scope)).toBe(false);
          expect(held.has('workspace_service_api_keys.create') || held.has('workspace_user_api_keys.create')).toBe(
            true,
          );
        }
      }),
    );
  });

  it('an organisation key without the right to create workspace keys grants no inference', () => {
    expect(grantable(principal('organisation-service', ['workspaces.read'])).has('completions.write')).toBe(false);
    const creator = principal('organisation-service', ['workspace_service_api_keys.create']);
    expect(grantable(creator).has('completions.write')).toBe(true);
    expect(grantable(creator).has('configs.delete')).toBe(false);
  });
});
