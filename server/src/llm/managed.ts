import type { LlmRequest } from './state/request.ts';

/** Ids that Sluice gave itself, whatever provider the headers name. */
const OWN_ID = /^gw_(?:file|ftjob|batch)_/;

/** Whether the request is about Sluice's own files, jobs and batches by its headers or by the id in its path. */
export function isManaged(request: LlmRequest): boolean {
  if (request.header('x-gateway-provider') === 'gateway') return true;
  for (const value of Object.values(request.params)) if (OWN_ID.test(value)) return true;
  return false;
}
