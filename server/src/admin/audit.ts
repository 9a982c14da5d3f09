/** The audit row of an administration call: what is known of it, in the transaction of what it did. */
import type { FastifyRequest } from 'fastify';
import type { Principal } from '../auth/principal.ts';
import { tenantOf } from '../auth/tenant.ts';
import { clientAddress } from '../http/client-address.ts';
import type { Clock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { JsonObject, JsonValue } from '../kernel/json.ts';
import type { Log } from '../kernel/log.ts';
import { type AuditEntry, appendAudit, resourceType } from '../resources/audit-logs/chain.ts';
import { isUuid } from '../resources/fields.ts';
import type { AuditAction, AuditedChange } from '../resources/resource.ts';
import type { Tables } from '../store/ports.ts';
import type { Macs } from '../store/vault.ts';
import { type Mark, markOf, maskedBody, maskedChange, maskedHeaders, maskedPath } from './redact.ts';
import type { AdminRow } from './route.ts';

interface AuditDeps {
  readonly tables: Tables;
  /** Signs the chain and marks secrets. */
  readonly vault: Macs;
  readonly clock: Clock;
  readonly log: Log;
}

export type EntryDeps = Pick<AuditDeps, 'clock' | 'vault'>;

/** What is known of a call while it runs and when it is refused. */
export interface Trail {
  readonly requestId: string;
  principal: Principal | null;
  body: JsonObject | readonly JsonValue[] | null;
  query: Record<string, string>;
  workspaceId: string | null;
  resourceId: string | null;
  change: AuditedChange | null;
  /** The body without its secrets, once it is made (`recordedBody`), and for whose log. */
  recorded: { readonly organisationId: string; readonly text: string | null } | null;
  /** Gives back the room that the body takes, at the end of the call. */
  release?: () => void;
  /** Set by operator actions: the organisation acted on. */
  organisationId: string | null;
}

/**
 * The body as the log of the organisation has it. It is made once: a long one before the transaction, because all that
 * wait for the store would wait for it too.
 */
export function recordedBody(deps: Pick<EntryDeps, 'vault'>, trail: Trail, organisationId: string): string | null {
  if (trail.recorded?.organisationId !== organisationId)
    trail.recorded = { organisationId, text: maskedBody(trail.body, markOf(deps.vault, organisationId)) };
  return trail.recorded.text;
}

/** The row of a call that was carried out (`status` below 400) or refused. */
export function auditRow(
  deps: EntryDeps,
  row: AdminRow,
  request: FastifyRequest,
  trail: Trail,
  organisationId: string,
  status: number,
): AuditEntry {
  const { principal } = trail;
  const { userType, userId } = actorOf(principal);
  const names = Object.keys(trail.query);
  const mark = markOf(deps.vault, organisationId);
  return {
    ...requested(deps, request, mark),
    organisation_id: organisationId,
    workspace_id: trail.workspaceId,
    method: row.method,
    request_id: trail.requestId,
    request_body: recordedBody(deps, trail, organisationId),
    query_params: names.length === 0 ? null : maskedBody({ ...trail.query }, mark),
    user_id: userId,
    user_type: userType,
    response_status_code: status,
    resource_type: resourceType(row.audit?.resource ?? row.tag),
    resource_id: trail.resourceId,
    action: row.audit?.action ?? 'manage',
    // A call that was refused has changed nothing, however far it came.
    ...(status < 400 ? maskedChange(trail.change, mark) : { before: null, after: null }),
  };
}

/** A token that speaks for a user is that user here; the headers of the row tell how they came in. */
function actorOf(principal: Principal | null): { userType: AuditEntry['user_type']; userId: string | null } {
  if (principal?.kind === 'operator') return { userType: 'operator', userId: null };
  const person = principal?.kind === 'user' || (principal?.kind === 'token' && principal.userId !== null);
  if (person) return { userType: 'user', userId: principal.userId };
  return { userType: 'api_key', userId: principal?.keyId ?? principal?.limitOwner?.id ?? null };
}

/** What the request itself says. */
function requested(deps: EntryDeps, request: FastifyRequest, mark: Mark, clientIp = clientAddress(request.raw)) {
  return {
    id: uuidv7(deps.clock),
    timestamp: deps.clock.now(),
    uri: maskedPath((request.raw.url ?? '').split('?', 1)[0] ?? '', mark),
    client_ip: clientIp || null,
    country: null,
    request_headers: maskedHeaders(request.raw.rawHeaders, mark),
  };
}

/** A write of the console that is no administration route: a sign-in, a sign-out, an invite that was accepted. */
export interface ConsoleDeed {
  readonly request: FastifyRequest;
  readonly organisationId: string;
  readonly workspaceId?: string | null;
  /** Who did it, or who came to be by it; null: somebody who is not signed in. */
  readonly userId: string | null;
  /** The credential that did it, where no user did. */
  readonly keyId?: string | null;
  /** A new one when absent. */
  readonly requestId?: string;
  /** Of a request that was answered before; by default it is read now. */
  readonly clientIp?: string;
  readonly action: AuditAction;
  /** As the administration routes name it: `invites`, `console-sessions`. */
  readonly resource: string;
  readonly resourceId: string | null;
  readonly body?: JsonObject | null;
  readonly change?: AuditedChange | null;
  /** 200 when absent. */
  readonly status?: number;
}

/** The row of a deed of the console, to be given to `appendAudit` in the transaction of the deed. */
export function consoleEntry(deps: EntryDeps, deed: ConsoleDeed): AuditEntry {
  const mark = markOf(deps.vault, deed.organisationId);
  return {
    ...requested(deps, deed.request, mark, deed.clientIp),
    organisation_id: deed.organisationId,
    workspace_id: deed.workspaceId ?? null,
    method: deed.request.method,
    request_id: deed.requestId ?? uuidv7(deps.clock),
    request_body: maskedBody(deed.body ?? null, mark),
    query_params: null,
    user_id: deed.userId ?? deed.keyId ?? null,
    user_type: deed.userId !== null ? 'user' : deed.keyId == null ? 'system' : 'api_key',
    response_status_code: deed.status ?? 200,
    resource_type: resourceType(deed.resource),
    resource_id: deed.resourceId,
    action: deed.action,
    ...maskedChange(deed.change ?? null, mark),
  };
}

/** Both changes as one: a rule's report on its object beside that of `defineResource` on the row. */
export function joinChanges(first: AuditedChange | null, second: AuditedChange | undefined): AuditedChange | null {
  if (!first || !second) return second ?? first;
  const join = (a: AuditedChange['before'], b: AuditedChange['before']) => (a && b ? { ...a, ...b } : (b ?? a));
  const table = first.table ?? second.table;
  const change = { before: join(first.before, second.before), after: join(first.after, second.after) };
  return table ? { ...change, table } : change;
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
  if (!principal || status === 429 || status === 503) return;
  try {
    if (principal.kind === 'operator') await recordOperatorRefusal(deps, row, request, trail, status);
    else {
      const { organisationId } = principal;
      const tenant = tenantOf(principal, trail.workspaceId ?? principal.workspaceId);
      const entry = auditRow(deps, row, request, trail, organisationId, status);
      await deps.tables.write(
        tenant,
        (tx) => appendAudit(tx, deps.vault, { ...entry, workspace_id: tenant.workspaceId }),
        { queue: organisationId },
      );
    }
  } catch (failure) {
    deps.log.error('the audit row of a refused write was not stored', { request_id: trail.requestId, error, failure });
  }
}

/** In the log of the organisation that the call named; one that names none which exists has no log to be in. */
async function recordOperatorRefusal(
  deps: AuditDeps,
  row: AdminRow,
  request: FastifyRequest,
  trail: Trail,
  status: number,
): Promise<void> {
  const id = trail.organisationId ?? organisationIn(request.params);
  if (row.auth !== 'operator' || id === null) return;
  await deps.tables.systemWrite(
    async (tx) => {
      if (!(await tx.find('organisations', { id }))) return;
      await appendAudit(tx, deps.vault, auditRow(deps, row, request, trail, id, status));
    },
    { queue: id },
  );
}

/** The organisation that an operator's path names; it has no other parameters. */
export function organisationIn(params: unknown): string | null {
  const { id } = (params ?? {}) as { id?: unknown };
  return typeof id === 'string' && isUuid(id) ? id.toLowerCase() : null;
}
