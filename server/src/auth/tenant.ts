import { type TenantContext, unsafeTenant } from '../store/ports.ts';
import type { Principal } from './principal.ts';

/** The tenant of an authenticated caller. `workspaceId` narrows an organisation-wide principal to one workspace it may reach. */
export function tenantOf(principal: Principal, workspaceId: string | null = principal.workspaceId): TenantContext {
  return unsafeTenant(principal.organisationId, workspaceId);
}

/** For system code (first run, operator, jobs, runtime compile) that acts on one organisation without a caller. */
export function systemTenant(organisationId: string, workspaceId: string | null = null): TenantContext {
  return unsafeTenant(organisationId, workspaceId);
}
