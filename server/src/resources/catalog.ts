/** Every action of the administration API: one line per resource. */
import { invites } from './admin/invites/index.ts';
import { organisation } from './admin/organisation/index.ts';
import { users } from './admin/users/index.ts';
import { workspaceReferences } from './admin/workspaces/defaults.ts';
import { workspaces } from './admin/workspaces/index.ts';
import { apiKeys } from './api-keys/index.ts';
import { auditLogs } from './audit-logs/index.ts';
import { batches } from './batches/index.ts';
import { configReferences, configs } from './configs/index.ts';
import { deployments } from './deployments/index.ts';
import { guardrails } from './guardrails/index.ts';
import { defaultReferences } from './guardrails/rules.ts';
import { integrations } from './integrations/index.ts';
import { logs } from './logs/index.ts';
import { rateLimits } from './policies/rate-limits/index.ts';
import { usageLimits } from './policies/usage-limits/index.ts';
import { providers } from './providers/index.ts';
import type { FindReferences } from './references.ts';
import type { AnyAction } from './resource.ts';
import { utils } from './utils.ts';
import { virtualKeys } from './virtual-keys/index.ts';
import { workspaceExclusions } from './workspace-exclusions/index.ts';

export const ACTIONS: readonly AnyAction[] = [
  ...apiKeys,
  ...auditLogs,
  ...batches,
  ...configs,
  ...deployments,
  ...guardrails,
  ...integrations,
  ...invites,
  ...logs,
  ...organisation,
  ...providers,
  ...rateLimits,
  ...usageLimits,
  ...users,
  ...utils,
  ...virtualKeys,
  ...workspaceExclusions,
  ...workspaces,
];

/** What can stand in the way of a delete: one line per resource that refers to others. */
export const REFERENCES: readonly FindReferences[] = [workspaceReferences, defaultReferences, configReferences];
