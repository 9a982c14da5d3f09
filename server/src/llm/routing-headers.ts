/** What a request says beside its body about how it is to be called. */

import type { LlmRequest } from './state/request.ts';

/** Request headers that do not change where a call goes: a request with only these may use a memoised plan. */
const NEUTRAL: ReadonlySet<string> = new Set([
  'x-gateway-api-key',
  'x-gateway-provider',
  'x-gateway-virtual-key',
  'x-gateway-config',
  'x-gateway-trace-id',
  'x-gateway-span-id',
  'x-gateway-parent-span-id',
  'x-gateway-span-name',
  'x-gateway-workspace',
  'x-gateway-metadata',
  'x-gateway-dry-run',
  'x-gateway-debug',
  'x-gateway-sensitive-headers',
  'x-gateway-forward-headers',
  'x-gateway-cache-force-refresh',
  'x-gateway-cache-namespace',
]);

/** Whether the request has no gateway header but those that change nothing about the call. */
export function isNeutral(request: LlmRequest): boolean {
  const raw = request.incoming.rawHeaders;
  for (let i = 0; i < raw.length; i += 2) if (isSetting(raw[i] ?? '')) return false;
  return true;
}

/** The other gateway headers, `name: value`, in the order of their names. */
export function routingSettings(request: LlmRequest): string[] {
  const raw = request.incoming.rawHeaders;
  const found: string[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i] ?? '';
    if (isSetting(name)) found.push(`${name.toLowerCase()}: ${raw[i + 1] ?? ''}`);
  }
  return found.sort();
}

function isSetting(name: string): boolean {
  // `x-gateway-` in any case, told by its first letter and its length before anything is allocated.
  const ours =
    name.length > 10 &&
    (name.charCodeAt(0) | 32) === 120 &&
    name.charCodeAt(1) === 45 &&
    (name.charCodeAt(2) | 32) === 103;
  return ours && !NEUTRAL.has(name) && !NEUTRAL.has(name.toLowerCase());
}
