/** Rows of the audit log as sentences. */
import type { Operations } from '../../../types/api.ts';
import { t } from '../../app/i18n.ts';
import { parsed } from '../../ui/json.tsx';

export type AuditRow = Operations['GET /v1/audit-logs']['answer']['records'][number];

/** Who did it: a name where there is one. */
export function actorOf(row: AuditRow): string {
  if (row.actor === 'system') return t('Sluice');
  if (row.actor === 'operator') return t('The operator');
  if (row.key_name !== null) return row.actor_name === null ? row.key_name : `${row.actor_name} (${row.key_name})`;
  return row.actor_name ?? row.user_id ?? t('Somebody');
}

const VERBS: Readonly<Record<string, string>> = {
  create: 'created',
  update: 'changed',
  delete: 'deleted',
  publish: 'published',
  export: 'exported',
  rotate: 'rotated',
  manage: 'managed',
  duplicate: 'duplicated',
};

const DEEDS: Readonly<Record<string, string>> = {
  'auth.sign_in': 'signed in',
  'auth.sign_out': 'signed out',
  'auth.sign_in_failed': 'failed to sign in',
};

/** Kinds whose names in the log are no words. */
const KINDS: Readonly<Record<string, string>> = {
  'policies.usage-limits': 'budget',
  'policies.rate-limits': 'rate limit',
  'console sessions': 'sign-in link',
};

const kindOf = ({ resource_type: type }: AuditRow): string => {
  const known = KINDS[type];
  return known === undefined ? type.replaceAll(/[._-]/g, ' ') : t(known);
};

/** `created configs chat fallback`; refused calls say so. */
export function deedOf(row: AuditRow): string {
  const verb = t(VERBS[row.action] ?? row.action);
  const refused =
    row.response_status_code >= 400
      ? ` (${t('refused with {status}', { status: String(row.response_status_code) })})`
      : '';
  const deed = DEEDS[row.resource_type];
  if (deed !== undefined) return t(deed);
  return `${verb} ${kindOf(row)} ${nameOf(row) ?? ''}`.trim() + refused;
}

/** The name of the object, as it was written then. */
export function nameOf(row: AuditRow): string | null {
  for (const text of [row.after, row.before]) {
    const value = parsed(text);
    if (typeof value !== 'object' || value === null) continue;
    const { name, email, slug } = value as { name?: unknown; email?: unknown; slug?: unknown };
    const found = [name, email, slug].find((one) => typeof one === 'string' && one !== '');
    if (typeof found === 'string') return found;
  }
  return null;
}
