/** Rows about tokens that were refused, in the audit log of the organisation that they name. */
import { systemTenant } from '../../auth/tenant.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Lru } from '../../kernel/lru.ts';
import { Bound } from '../../kernel/notes.ts';
import type { Tables } from '../../store/ports.ts';
import type { Vault } from '../../store/vault.ts';
import { appendAudit, systemEntry } from './chain.ts';

/** Anybody can send a token that names an organisation: what is written for it is bounded. */
const ROWS = { burst: 30, perSecond: 0.5 };
const MAX_ORGANISATIONS = 1_000;

interface TokenNote {
  readonly organisationId: string;
  readonly reason: string;
  readonly status: number;
  readonly kid: string;
  /** Names alone. */
  readonly claims: readonly string[];
  /** SHA-256 of the token, hexadecimal. */
  readonly digest: string;
  readonly address: string;
}

export interface TokenNotesOptions {
  readonly tables: Pick<Tables, 'write'>;
  readonly vault: Vault;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Writes a row for each note, 30 at once and one every two seconds for each organisation on this node; a row says how many were left
 * out before it. Callers do not wait, and a row that cannot be written is a line of the log.
 */
export function tokenNotes({ tables, vault, clock, log }: TokenNotesOptions): (note: TokenNote) => void {
  const bounds = new Lru<string, Bound>({ maxEntries: MAX_ORGANISATIONS });
  return (note) => {
    const { organisationId, status, address, digest, kid } = note;
    const bound = bounds.get(organisationId) ?? new Bound(clock, ROWS);
    bounds.set(organisationId, bound);
    const leftOut = bound.take();
    if (leftOut === null) return;
    const after = {
      reason: note.reason,
      kid: kid.toWellFormed().replaceAll('\u0000', '\ufffd'),
      claims: note.claims,
      token: `ey…${digest.slice(0, 16)}`,
      ...(leftOut === 0 ? {} : { left_out_before: leftOut }),
    };
    const deed = {
      organisationId,
      workspaceId: null,
      action: 'manage',
      resource: 'auth.jwt_refused',
      before: null,
      after,
    } as const;
    const row = {
      ...systemEntry(clock, { ...deed, resourceId: digest.slice(0, 16) }),
      response_status_code: status,
      client_ip: address === '' ? null : address,
    };
    tables
      .write(systemTenant(organisationId), (tx) => appendAudit(tx, vault, row), { queue: organisationId })
      .catch((error: unknown) => {
        log.error('the audit row of a refused token was not stored', { organisation_id: organisationId, error });
      });
  };
}
