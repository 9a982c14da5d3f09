/**
 * Removes the oldest rows of an audit log so that what remains can still be proven. The rows go in the order of their
 * places; the anchor, signed, takes the place of those that went. Only rows that are what was written go: one that was
 * changed stays, as evidence, and so does all behind it.
 */
import type { SystemTx, Tables } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { Macs } from '../../store/vault.ts';
import { anchorOf } from './chain.ts';
import { ChainCheck, type Finding } from './verify.ts';

/** Rows of one transaction. */
const PAGE = 200;

export interface Forgotten {
  readonly removed: number;
  /** Why it could not go on: the log is not what was written. */
  readonly finding: Finding | null;
}

/** Removes the rows of an organisation's log from before a time; `signal` ends it between two steps. */
export async function forgetAudit(
  tables: Pick<Tables, 'systemWrite'>,
  macs: Macs,
  organisationId: string,
  before: number,
  signal?: AbortSignal,
): Promise<Forgotten> {
  let removed = 0;
  while (signal?.aborted !== true) {
    // In the queue of all that writes to this log.
    const step = await tables.systemWrite((tx) => oneStep(tx, macs, organisationId, before), { queue: organisationId });
    removed += step.removed;
    if (step.finding !== null || step.removed === 0) return { removed, finding: step.finding };
  }
  return { removed, finding: null };
}

async function oneStep(tx: SystemTx, macs: Macs, organisationId: string, before: number): Promise<Forgotten> {
  const of = { organisation_id: organisationId } as const;
  const anchor = await tx.find('audit_anchors', of);
  // Rows from before the chain are older than it.
  if (anchor === undefined) {
    const loose = await tx.list('audit_log', {
      where: { ...of, seq: null, timestamp: { lt: before } },
      limit: PAGE,
      orderBy: [['timestamp', 'asc']],
    });
    if (loose.length > 0) {
      const removed = await tx.remove('audit_log', { ...of, id: { in: loose.map(({ id }) => id) } });
      return { removed, finding: null };
    }
  }
  const check = new ChainCheck(macs);
  const begins = check.begin(anchor);
  if (begins !== null) return { removed: 0, finding: begins };
  const first = check.seq;
  const rows = await tx.list('audit_log', {
    where: { ...of, seq: { gt: first, lte: first + PAGE } },
    orderBy: [['seq', 'asc']],
  });
  const { finding } = follow(check, rows, before);
  if (check.seq === first) return { removed: 0, finding };
  const removed = await tx.remove('audit_log', { ...of, seq: { gt: first, lte: check.seq } });
  const { seq, hash } = anchorOf(macs, organisationId, check.seq, check.last);
  if (anchor === undefined) await tx.insert('audit_anchors', { ...of, seq, hash });
  else await tx.update('audit_anchors', of, { seq, hash });
  return { removed, finding };
}

/** Up to the first row that is young, or not what was written. */
function follow(check: ChainCheck, rows: readonly Row<'audit_log'>[], before: number): { finding: Finding | null } {
  for (const row of rows) {
    if (row.timestamp >= before) break;
    const finding = check.next(row);
    if (finding !== null) return { finding };
  }
  return { finding: null };
}
