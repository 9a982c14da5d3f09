/** The audit row of an administration call (api §23): what is known of it, in the transaction of what it did. */
import type { FastifyRequest } from 'fastify';
import type { Principal } from '../auth/principal.ts';
import { tenantOf } from '../auth/tenant.ts';
import type { Clock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { JsonObject } from '../kernel/json.ts';
import type { Log } from '../kernel/log.ts';
import type { AuditedChange } from '../resources/resource.ts';
import type { Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import { maskedBody } from './redact.ts';
import type { AdminRow } from './route.ts';

/** A transaction of a tenant or of the system. */
export interface AuditTx {
  insert(table: 'audit_log', row: Row<'audit_log'>): Promise<void>;
}

interface AuditDeps {
  readonly tables: Tables;
  readonly clock: Clock;
  readonly log: Log;
}

/** What is known of a call while it runs and when it is refused. */
export interface Trail {
  readonly requestId: string;
  principal: Principal | null;
  body: JsonObject | null;
  query: Record<string, string>;
  workspaceId: string | null;
  resourceId: string | null;
  change: AuditedChange | null;
  /** Set by operator actions: the organisation acted on. */
  organisationId: string | null;
}

export function auditRow(
  deps: Pick<AuditDeps, 'clock'>,
  row: AdminRow,
  request: FastifyRequest,
  trail: Trail,
  organisationId: string,
  status: number,
): Row<'audit_log'> {
  const { principal } = trail;
  const signedIn = principal?.kind === 'user';
  const names = Object.keys(trail.query);
  return {
    id: uuidv7(deps.clock),
    organisation_id: organisationId,
    workspace_id: trail.workspaceId,
    timestamp: deps.clock.now(),
    method: row.method,
    uri: (request.raw.url ?? '').split('?', 1)[0]?.slice(0, 2_048) ?? '',
    request_id: trail.requestId,
    request_body: maskedBody(trail.body),
    query_params: names.length === 0 ? null : maskedBody({ ...trail.query }),
    user_id: signedIn ? principal.userId : (principal?.keyId ?? null),
    user_type: principal?.kind === 'operator' ? 'operator' : signedIn ? 'user' : 'api_key',
    response_status_code: status,
    resource_type: row.audit?.resource ?? row.tag,
    resource_id: trail.resourceId,
    action: row.audit?.action ?? 'manage',
    client_ip: request.ip ?? null,
    country: null,
    request_headers: null,
    before: null,
    after: null,
    seq: null,
    hash: null,
  };
}

/** Appends a row to the log of its organisation, within the transaction of what it speaks of. */
export async function appendAudit(tx: AuditTx, row: Row<'audit_log'>): Promise<void> {
  await tx.insert('audit_log', row);
}

/** A refused write leaves an audit row too. Refusals of the rate limit do not: they would be a way to fill the log. */
export async function recordRefusal(
  deps: AuditDeps,
  row: AdminRow,
  request: FastifyRequest,
  trail: Trail,
  error: unknown,
  status: number,
): Promise<void> {
  const { principal } = trail;
  const organisationId = principal?.kind === 'operator' ? trail.organisationId : principal?.organisationId;
  if (!principal || !organisationId || status === 429 || status === 503) return;
  try {
    const entry = auditRow(deps, row, request, trail, organisationId, status);
    if (principal.kind === 'operator') await deps.tables.systemWrite((tx) => appendAudit(tx, entry));
    else {
      const tenant = tenantOf(principal, trail.workspaceId ?? principal.workspaceId);
      await deps.tables.write(tenant, (tx) => appendAudit(tx, { ...entry, workspace_id: tenant.workspaceId }));
    }
  } catch (failure) {
    deps.log.error('the audit row of a refused write was not stored', { request_id: trail.requestId, error, failure });
  }
}
