import { withoutSecrets } from '../providers/sent-secrets.ts';
import type { PreparedCall } from '../providers/training.ts';
import type { Account, ObjectAnswer, ObjectCall } from '../runtime/object-call.ts';
import { json } from './answer.ts';

/** Headers whose values are no secrets. */
const VISIBLE = new Set([
  'content-type',
  'accept',
  'openai-organization',
  'openai-project',
  'openai-beta',
  'anthropic-version',
  'anthropic-beta',
]);

/** The prepared upstream call as a dry run shows it: headers masked save for harmless ones, credentials nowhere. */
export function shownCall(prepared: PreparedCall, account: Account): Record<string, unknown> {
  const headers: Record<string, string> = {};
  for (let i = 0; i + 1 < prepared.headers.length; i += 2) {
    const name = (prepared.headers[i] ?? '').toLowerCase();
    headers[name] = VISIBLE.has(name) ? (prepared.headers[i + 1] ?? '') : '***';
  }
  const shown = { method: prepared.method, url: prepared.url, headers, body: prepared.body };
  return JSON.parse(withoutSecrets(JSON.stringify(shown), account.secrets)) as Record<string, unknown>;
}

/** What a provider-backed create would send; nothing was called. */
export function dryRunAnswer(
  call: ObjectCall,
  account: Account,
  model: string | null,
  prepared: PreparedCall,
): ObjectAnswer {
  return json({
    object: 'dry_run',
    operation: call.operation,
    target: { path: account.path, provider: account.provider.id, slug: account.stored?.slug ?? null, model },
    request: shownCall(prepared, account),
  });
}
