/** Whether an organisation's audit log is what was written: the chain of `chain.ts`, followed from its first row. */
import { SluiceError } from '../../kernel/errors.ts';
import type { Tables } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { Macs } from '../../store/vault.ts';
import { checkAnchor, checkHead, checkRow, GENESIS, keyIdOf } from './chain.ts';

/** What is wrong, the first of it. Places count from 1. */
export type Finding =
  /** Rows `from` to `to` are not there, and later ones are. */
  | { readonly kind: 'gap'; readonly from: number; readonly to: number }
  /** The row at this place is not the one that was written there. */
  | { readonly kind: 'altered'; readonly seq: number; readonly id: string }
  /** The last rows, `from` to `to`, are not there. */
  | { readonly kind: 'tail'; readonly from: number; readonly to: number }
  /** The head is missing, was changed, or is one of an earlier time. */
  | { readonly kind: 'head'; readonly seq: number }
  /** A row, or the head (`seq` null), was signed with a master key that is not given. */
  | { readonly kind: 'unknown_key'; readonly seq: number | null; readonly keyId: string }
  /** What says where the log begins after its oldest rows were removed was changed. */
  | { readonly kind: 'anchor'; readonly seq: number }
  /** A row that is no part of the chain, from a time when there was one. */
  | { readonly kind: 'unchained'; readonly id: string };

/** Follows a chain row by row; needs no more memory than a row. */
export class ChainCheck {
  readonly #macs: Macs;
  /** Place and hash of the last row that was found to be good. */
  seq = 0;
  last = GENESIS;

  constructor(macs: Macs) {
    this.#macs = macs;
  }

  /** Before the first row: where the log begins when its oldest rows were removed (`retention.ts`). */
  begin(anchor: Row<'audit_anchors'> | undefined): Finding | null {
    if (anchor === undefined) return null;
    const { verdict, last } = checkAnchor(this.#macs, anchor);
    if (verdict === 'unknown_key') return { kind: 'unknown_key', seq: anchor.seq, keyId: keyIdOf(last) };
    if (verdict === 'other') return { kind: 'anchor', seq: anchor.seq };
    this.seq = anchor.seq;
    this.last = last;
    return null;
  }

  /** The next row by place, or null when it is the right one. */
  next(row: Row<'audit_log'>): Finding | null {
    const expected = this.seq + 1;
    const { seq, hash, id } = row;
    if (seq === null || hash === null || seq < expected) return { kind: 'altered', seq: expected, id };
    if (seq > expected) return { kind: 'gap', from: expected, to: seq - 1 };
    const verdict = checkRow(this.#macs, row, this.last);
    if (verdict === 'unknown_key') return { kind: 'unknown_key', seq, keyId: keyIdOf(hash) };
    if (verdict === 'other') return { kind: 'altered', seq, id };
    this.seq = seq;
    this.last = hash;
    return null;
  }

  /** After the last row: whether the head says so too. */
  end(head: Row<'audit_heads'> | undefined): Finding | null {
    const { seq } = this;
    if (!head) return seq === 0 ? null : { kind: 'head', seq };
    const { verdict, last } = checkHead(this.#macs, head);
    if (verdict === 'unknown_key') return { kind: 'unknown_key', seq: null, keyId: keyIdOf(last) };
    if (verdict === 'other') return { kind: 'head', seq };
    if (head.seq > seq) return { kind: 'tail', from: seq + 1, to: head.seq };
    return head.seq === seq && last === this.last ? null : { kind: 'head', seq };
  }
}

export interface Verified {
  readonly organisationId: string;
  /** Place of the first row: more than 1 when older ones were removed after their time. */
  readonly begins: number;
  /** Place of the last good row of the chain; those after a finding were not looked at. */
  readonly rows: number;
  /** Rows from before the chain, of which nothing can be said. */
  readonly unchained: number;
  /** Hash of the last good row, to be kept elsewhere; empty when there is none. */
  readonly last: string;
  readonly finding: Finding | null;
}

/** Rows that are in memory at a time. */
const PAGE = 200;

/**
 * Verifies one organisation's log in pages, each read in a snapshot, while others may write to it. Rejects with the
 * reason of `signal` between two pages.
 */
export async function verifyAudit(
  tables: Pick<Tables, 'systemRead'>,
  macs: Macs,
  organisationId: string,
  signal?: AbortSignal,
): Promise<Verified> {
  const check = new ChainCheck(macs);
  const of = { organisation_id: organisationId };
  const anchor = await tables.systemRead((tx) => tx.find('audit_anchors', of));
  const begun = check.begin(anchor);
  const begins = check.seq + 1;
  const chain =
    begun === null ? await followChain(tables, check, organisationId, signal) : { began: null, finding: begun };
  const { unchained, late } = await tables.systemRead(async (tx) => {
    const where = { organisation_id: organisationId, seq: null };
    // Those from before the chain went before any row of it, so that behind an anchor there are none.
    const since = anchor === undefined ? chain.began : -1;
    const [stray] =
      since === null ? [] : await tx.list('audit_log', { where: { ...where, timestamp: { gt: since } }, limit: 1 });
    const [again] = begins === 1 ? [] : await tx.list('audit_log', { where: { ...of, seq: { lt: begins } }, limit: 1 });
    return { unchained: await tx.count('audit_log', { where }), late: stray ?? again };
  });
  const stray: Finding | null = late ? { kind: 'unchained', id: late.id } : null;
  return { organisationId, begins, rows: check.seq, unchained, last: check.last, finding: chain.finding ?? stray };
}

/** `began` is the time of the first row. */
async function followChain(
  tables: Pick<Tables, 'systemRead'>,
  check: ChainCheck,
  organisationId: string,
  signal: AbortSignal | undefined,
): Promise<{ readonly began: number | null; readonly finding: Finding | null }> {
  const where = { organisation_id: organisationId };
  let began: number | null = null;
  for (;;) {
    signal?.throwIfAborted();
    // By windows of places: what comes after a place, in order, would be sorted anew for every page.
    const { rows, later, head } = await tables.systemRead(async (tx) => {
      const window = { gt: check.seq, lte: check.seq + PAGE };
      const rows = await tx.list('audit_log', { where: { ...where, seq: window }, orderBy: [['seq', 'asc']] });
      if (rows.length === PAGE) return { rows, later: undefined, head: undefined };
      const beyond = { where: { ...where, seq: { gt: window.lte } }, orderBy: [['seq', 'asc']], limit: 1 } as const;
      const [later] = await tx.list('audit_log', beyond);
      return { rows, later, head: await tx.find('audit_heads', where) };
    });
    began ??= rows[0]?.timestamp ?? null;
    for (const row of rows) {
      const finding = check.next(row);
      if (finding) return { began, finding };
    }
    if (later) return { began, finding: check.next(later) };
    if (rows.length < PAGE) return { began, finding: check.end(head) };
  }
}

/**
 * The same as a service of a process. Following a log costs as much as it is long: `throttled` while another one is followed.
 */
export function auditCheck(
  tables: Pick<Tables, 'systemRead'>,
  macs: Macs,
): (organisationId: string, signal: AbortSignal) => Promise<Verified> {
  let busy = false;
  return async (organisationId, signal) => {
    if (busy) {
      const message = 'Another audit log is being verified. Try again in a moment.';
      throw new SluiceError('throttled', message, { retryAfter: 2 });
    }
    busy = true;
    try {
      return await verifyAudit(tables, macs, organisationId, signal);
    } finally {
      busy = false;
    }
  };
}

/** What is wrong, as a sentence. */
export function explainFinding(finding: Finding): string {
  switch (finding.kind) {
    case 'gap':
      return `${span(finding.from, finding.to)} missing.`;
    case 'tail':
      return `${span(finding.from, finding.to)} missing at the end.`;
    case 'altered':
      return `row ${finding.seq} (id ${finding.id}) is not what was written there.`;
    case 'head':
      return 'the record of the last row is missing, was changed, or is an old one; rows behind it may be missing.';
    case 'anchor':
      return `the record of where the log begins, row ${finding.seq + 1}, was changed; rows before it may be missing.`;
    case 'unknown_key': {
      const what = finding.seq === null ? 'the record of the last row' : `row ${finding.seq}`;
      return `${what} was signed with master key ${finding.keyId}, which is not given; add it to SLUICE_MASTER_KEY again.`;
    }
    case 'unchained':
      return `row with id ${finding.id} was not written by Sluice: it is no part of the chain and younger than its first row.`;
  }
}

function span(from: number, to: number): string {
  return from === to ? `row ${from} is` : `rows ${from} to ${to} are`;
}
