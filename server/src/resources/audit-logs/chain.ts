/**
 * The chain of an organisation's audit log. Each row carries its place, from 1 without gaps, and a keyed
 * digest over itself and the digest of the row before it; the head holds the last place and proves that it is the last.
 * A writer to the database without a master key cannot change, remove, add or reorder rows unseen.
 *
 * Text of a row's hash: `<key id>.<64 hexadecimal digits>`. Text of a head's: a row's, then `.` and the head's own digest
 * in 64 more, made with the same key.
 */
import { timingSafeEqual } from 'node:crypto';
import type { Clock } from '../../kernel/clock.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { Macs } from '../../store/vault.ts';
import type { AuditAction } from '../resource.ts';

/** A row of the audit log before it has its place in the chain. */
export type AuditEntry = Omit<Row<'audit_log'>, 'seq' | 'hash'>;

/** What appending needs of a transaction, a tenant's or the system's. */
export type AuditTx = Pick<TenantTx, 'find' | 'insert' | 'update'>;

/** Names the purposes of the digests; the number is that of the canonical form. */
const ROW_USE = 'audit row 1';
const HEAD_USE = 'audit head 1';
const ANCHOR_USE = 'audit anchor 1';

/** What the first row follows. */
export const GENESIS = '';
/**
 * What a row follows when the head it was appended to was not one of ours. It is the digest of no row, so verification
 * stops there for good: a head that was put in by hand must not be made good by the next write.
 */
const BROKEN = 'broken';

/**
 * The columns that a row's hash covers, in their order. A column that is added later makes a second canonical form, with
 * its own use, beside this one: rows keep the form they were written in.
 */
const COVERED = [
  'id',
  'organisation_id',
  'workspace_id',
  'timestamp',
  'method',
  'uri',
  'request_id',
  'request_body',
  'query_params',
  'user_id',
  'user_type',
  'response_status_code',
  'resource_type',
  'resource_id',
  'action',
  'client_ip',
  'country',
  'request_headers',
  'before',
  'after',
] as const satisfies readonly (keyof AuditEntry)[];

/** Bytes that differ whenever a covered column, its type, the place or the hash before differs. */
function canonical(row: AuditEntry, seq: number, previous: string): Buffer {
  const parts: Buffer[] = [];
  const add = (kind: string, text: string) => {
    const bytes = Buffer.from(text, 'utf8');
    const head = Buffer.alloc(5);
    head.write(kind, 'latin1');
    head.writeUInt32BE(bytes.length, 1);
    parts.push(head, bytes);
  };
  add('t', previous);
  add('n', String(seq));
  for (const name of COVERED) {
    const value = row[name];
    if (value === null) add('0', '');
    else add(typeof value === 'number' ? 'n' : 't', String(value));
  }
  return Buffer.concat(parts);
}

/** The hash of a row at a place after the row whose hash is `previous`, with the current key. */
function rowHash(macs: Macs, row: AuditEntry, seq: number, previous: string): string {
  const { keyId, digest } = macs.mac(ROW_USE, canonical(row, seq, previous));
  return `${keyId}.${digest.toString('hex')}`;
}

/** The text of a head: the hash of the last row, and the proof that no row was behind it. */
function headHash(macs: Macs, organisationId: string, seq: number, last: string, use = HEAD_USE): string {
  const proof = macs.mac(use, headBytes(organisationId, seq, last), keyIdOf(last));
  return `${last}.${proof?.digest.toString('hex') ?? ''}`;
}

function headBytes(organisationId: string, seq: number, last: string): Buffer {
  return Buffer.from(`${organisationId}\n${seq}\n${last}`, 'utf8');
}

/** Id of the key in the text of a row's or head's hash. */
export function keyIdOf(hash: string): string {
  return hash.slice(0, Math.max(0, hash.indexOf('.')));
}

/** What a stored hash turned out to be. `unknown_key`: its key is not among the master keys, so nothing can be said. */
export type Verdict = 'ours' | 'other' | 'unknown_key';

/** Whether a stored row is what was written at its place, after the row whose hash is `previous`. */
export function checkRow(macs: Macs, row: Row<'audit_log'>, previous: string): Verdict {
  const { seq, hash } = row;
  if (seq === null || hash === null) return 'other';
  const keyId = keyIdOf(hash);
  const made = macs.mac(ROW_USE, canonical(row, seq, previous), keyId);
  if (made === null) return 'unknown_key';
  return same(hash, `${keyId}.${made.digest.toString('hex')}`) ? 'ours' : 'other';
}

/** Whether a stored head was written by this installation, and the hash of the last row in it. */
export function checkHead(macs: Macs, head: Row<'audit_heads'>, use = HEAD_USE): { verdict: Verdict; last: string } {
  const last = head.hash.slice(0, Math.max(0, head.hash.lastIndexOf('.')));
  const keyId = keyIdOf(last);
  const proof = macs.mac(use, headBytes(head.organisation_id, head.seq, last), keyId);
  if (proof === null) return { verdict: 'unknown_key', last };
  return { verdict: same(head.hash, `${last}.${proof.digest.toString('hex')}`) ? 'ours' : 'other', last };
}

/** What stands for the rows up to a place after they were removed: `last` is the hash of the last of them. */
export function anchorOf(macs: Macs, organisationId: string, seq: number, last: string): Row<'audit_anchors'> {
  return { organisation_id: organisationId, seq, hash: headHash(macs, organisationId, seq, last, ANCHOR_USE) };
}

/** Whether this installation removed the rows before an anchor, and the hash of the last of them. */
export function checkAnchor(macs: Macs, anchor: Row<'audit_anchors'>): { verdict: Verdict; last: string } {
  return checkHead(macs, anchor, ANCHOR_USE);
}

function same(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a, 'utf8'), Buffer.from(b, 'utf8')];
  return left.length === right.length && timingSafeEqual(left, right);
}

/**
 * Appends a row to the log of its organisation, within the transaction of what it speaks of: either both are stored or
 * neither. For everything that audits: the administration handler, the console, jobs (`systemEntry` makes their row).
 *
 * The transaction should be opened with `{ queue: row.organisation_id }`: the head is one row that all audited writes of
 * an organisation change, and on PostgreSQL those that are not queued undo each other.
 *
 * @param macs the vault, or the keyring
 */
export async function appendAudit(tx: AuditTx, macs: Macs, row: AuditEntry): Promise<void> {
  const { organisation_id } = row;
  const head = await tx.find('audit_heads', { organisation_id });
  const seq = (head?.seq ?? 0) + 1;
  const hash = rowHash(macs, row, seq, head ? lastOf(macs, head) : GENESIS);
  const next = { seq, hash: headHash(macs, organisation_id, seq, hash) };
  // The head first: a quicker writer is met there, where the transaction runs again, and not at the place in the chain,
  // where it would look like a conflict of the caller's making.
  if (head) await tx.update('audit_heads', { organisation_id }, next);
  else await tx.insert('audit_heads', { organisation_id, ...next });
  await tx.insert('audit_log', { ...row, seq, hash });
}

function lastOf(macs: Macs, head: Row<'audit_heads'>): string {
  const { verdict, last } = checkHead(macs, head);
  return verdict === 'ours' ? last : BROKEN;
}

/** What a job did, for the audit log. */
export interface SystemDeed {
  readonly organisationId: string;
  readonly workspaceId: string | null;
  readonly action: AuditAction;
  /** As the rows of the administration API name it: `api-keys`. */
  readonly resource: string;
  readonly resourceId: string;
  /**
   * Objects before and after; null where there was or is none. They are stored as they are, so no secret may be in them,
   * nor anything longer than a few kilobytes.
   */
  readonly before: Readonly<Record<string, unknown>> | null;
  readonly after: Readonly<Record<string, unknown>> | null;
}

/** The row of something that Sluice did by itself, as the automatic rotation of a key: no request, no caller. */
export function systemEntry(clock: Clock, deed: SystemDeed): AuditEntry {
  const id = uuidv7(clock);
  return {
    id,
    organisation_id: deed.organisationId,
    workspace_id: deed.workspaceId,
    timestamp: clock.now(),
    method: 'POST',
    uri: '',
    request_id: id,
    request_body: null,
    query_params: null,
    user_id: null,
    user_type: 'system',
    response_status_code: 200,
    resource_type: resourceType(deed.resource),
    resource_id: deed.resourceId,
    action: deed.action,
    client_ip: null,
    country: null,
    request_headers: null,
    before: deed.before === null ? null : JSON.stringify(deed.before),
    after: deed.after === null ? null : JSON.stringify(deed.after),
  };
}

/** The contract's spelling of a resource type: `api-keys` is `api keys`. */
export function resourceType(name: string): string {
  return name.includes('.') ? name : name.replace(/[-_]/g, ' ').toLowerCase();
}
