import { start } from './0001-start.ts';
import { training } from './0002-training.ts';
import { identity } from './0003-identity.ts';
import { limits } from './0004-limits.ts';
import { dueRotations } from './0005-due-rotations.ts';
import { budgets } from './0006-budgets.ts';
import { guardrails } from './0007-guardrails.ts';
import { answerVectors } from './0008-answer-vectors.ts';
import { owners } from './0009-owners.ts';
import { keyBounds } from './0011-key-bounds.ts';
import { growth } from './0012-growth.ts';
import { retention } from './0014-retention.ts';
import { userAddresses } from './0015-user-addresses.ts';
import { deployments } from './0017-deployments.ts';
import { feedback } from './0018-feedback.ts';
import { logFiles } from './0019-log-files.ts';
import { bodyChunks } from './0020-body-chunks.ts';
import { logExports } from './0022-log-exports.ts';
import { logDestinations } from './0023-log-destinations.ts';
import { logErasures } from './0024-log-erasures.ts';
import { trafficAlerts } from './0025-traffic-alerts.ts';
import { sharedLogFiles } from './0026-shared-log-files.ts';
import { secretReferences } from './0028-secret-references.ts';
import { sessions } from './0029-sessions.ts';
import { sso } from './0030-sso.ts';
import { addressesOfRemovedUsers } from './0031-addresses-of-removed-users.ts';
import { scim } from './0032-scim.ts';
import { membershipSources } from './0033-membership-sources.ts';
import { oauth } from './0034-oauth.ts';
import { fedDestinations } from './0035-fed-destinations.ts';
import { passkeys } from './0037-passkeys.ts';
import { endedSignIns } from './0039-ended-sign-ins.ts';
import { sessionsOfDevices } from './0041-sessions-of-devices.ts';
import { handedOverDestinations } from './0044-handed-over-destinations.ts';
import { verifiedDomains } from './0045-verified-domains.ts';
import { approvals } from './0046-approvals.ts';
import { erasuresForAll } from './0047-erasures-for-all.ts';
import type { Migration } from './migration.ts';

/** The control tables. Append-only. */
export const MIGRATIONS: readonly Migration[] = [
  start,
  training,
  identity,
  limits,
  dueRotations,
  budgets,
  guardrails,
  answerVectors,
  owners,
  keyBounds,
  growth,
  retention,
  userAddresses,
  deployments,
  feedback,
  logFiles,
  bodyChunks,
  logExports,
  logDestinations,
  logErasures,
  trafficAlerts,
  sharedLogFiles,
  secretReferences,
  sessions,
  sso,
  addressesOfRemovedUsers,
  scim,
  membershipSources,
  oauth,
  fedDestinations,
  passkeys,
  endedSignIns,
  sessionsOfDevices,
  handedOverDestinations,
  verifiedDomains,
  approvals,
  erasuresForAll,
];
