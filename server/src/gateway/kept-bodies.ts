/** Which bodies of a request are kept in its log: the one place that decides. */
import { createHash } from 'node:crypto';
import type { Principal } from '../auth/principal.ts';
import type { WorkspaceSnapshot } from '../runtime/snapshot.ts';
import type { RequestContext } from './request-context.ts';

/** `failed answer`: none but the answer, where the request fails. */
export type KeptBodies = 'all' | 'failed answer' | 'none';

/** Of the answer of a request that failed, where nothing else is kept. */
export const FAILED_ANSWER_BYTES = 16 * 1024;

/** Whether the installation lets organisations, workspaces and keys decide (`SLUICE_LOG_BODIES`). */
export type BodyRule = 'allowed' | 'never';

/** What says whether bodies of a request are kept. */
interface Asked extends Pick<RequestContext, 'header' | 'traceId'> {
  readonly principal: Pick<Principal, 'defaults'> | null;
  readonly snapshot: Pick<WorkspaceSnapshot, 'bodies'> | null;
}

/**
 * `never` of the installation is above all. Then `x-gateway-debug: false` of the request, which can only switch off. Then
 * `debug_log` of the key, else of its workspace, else of the organisation.
 */
export function keptBodies(request: Asked, rule: BodyRule): KeptBodies {
  const { principal, snapshot } = request;
  if (rule === 'never' || principal === null || snapshot === null || isDebugOff(request)) return 'none';
  const { debugLog, sample } = snapshot.bodies;
  if ((principal.defaults.debug_log ?? debugLog) !== 1) return 'failed answer';
  return sample >= 1 || share(request.traceId) < sample ? 'all' : 'failed answer';
}

/** Whether the caller wants nothing of the request kept: no body, and no answer in the cache. */
export function isDebugOff(request: Pick<RequestContext, 'header'>): boolean {
  const value = request.header('x-gateway-debug');
  return value !== undefined && value.toLowerCase() === 'false';
}

/** From 0 up to 1, the same for all requests of a trace. */
function share(traceId: string): number {
  return createHash('sha256').update(traceId).digest().readUInt32BE() / 2 ** 32;
}
