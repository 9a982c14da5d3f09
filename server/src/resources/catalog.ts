/** The administration API: one line per resource. */
import { invites } from './admin/invites/index.ts';
import { organisation } from './admin/organisation/index.ts';
import { users } from './admin/users/index.ts';
import { workspaces } from './admin/workspaces/index.ts';
import { analytics } from './analytics/index.ts';
import { apiKeys } from './api-keys/index.ts';
import { approvals } from './approvals/index.ts';
import { auditLogs } from './audit-logs/index.ts';
import { batches } from './batches/index.ts';
import { configs } from './configs/index.ts';
import type { Resource } from './define.ts';
import { deployments } from './deployments/index.ts';
import { feedback } from './feedback/index.ts';
import { guardrails } from './guardrails/index.ts';
import { integrations } from './integrations/index.ts';
import { boundBy } from './limits/index.ts';
import { logDestinations } from './log-destinations/index.ts';
import { logs } from './logs/index.ts';
import { rateLimits } from './policies/rate-limits/index.ts';
import { usageLimits } from './policies/usage-limits/index.ts';
import { providers } from './providers/index.ts';
import type { Refers } from './references.ts';
import type { AnyAction } from './resource.ts';
import { scimGroups } from './scim/groups.ts';
import { scimTokens } from './scim/tokens/index.ts';
import { scimWorkspaces } from './scim/workspaces/index.ts';
import { secretReferences } from './secret-references/index.ts';
import { utils } from './utils.ts';
import { virtualKeys } from './virtual-keys/index.ts';
import { workspaceExclusions } from './workspace-exclusions/index.ts';

/** Those of the organisation come first: of several references a refusal names the first, and a default reaches furthest. */
const RESOURCES: readonly Resource[] = [
  organisation,
  workspaces,
  users,
  invites,
  analytics,
  apiKeys,
  auditLogs,
  batches,
  configs,
  deployments,
  feedback,
  guardrails,
  integrations,
  boundBy,
  logDestinations,
  logs,
  providers,
  rateLimits,
  scimGroups,
  scimWorkspaces,
  scimTokens,
  secretReferences,
  usageLimits,
  approvals,
  utils,
  virtualKeys,
  workspaceExclusions,
];

export const ACTIONS: readonly AnyAction[] = RESOURCES.flatMap(({ actions }) => actions);

/** What can stand in the way of a delete. */
export const REFERENCES: readonly Refers[] = RESOURCES.flatMap(({ refers }) => refers ?? []);
