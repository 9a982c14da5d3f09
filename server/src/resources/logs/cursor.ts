/** Cursors of lists of requests: where the next page begins, bound to the question by a signature. */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { Macs } from '../../store/vault.ts';
import type { LogPlace, LogSelection } from '../../telemetry/log-query.ts';
import { refuse } from '../common.ts';
import { openSigned, signValue } from '../signed.ts';

const USE = 'log cursor';

const place = z.strictObject({ t: z.int(), i: z.string(), f: z.int(), u: z.int(), d: z.string() });

/** Where a list goes on, and the range that its first page had. */
export interface Continued {
  readonly behind: LogPlace;
  readonly from: number;
  readonly to: number;
}

/** What a page is of: the same for all pages of a list, whenever they are asked for. */
export function questionDigest({ scope, where }: LogSelection, order: string): string {
  const { organisationId, workspaceIds, userId } = scope;
  const text = JSON.stringify([organisationId, workspaceIds, userId, where, order]);
  return createHash('sha256').update(text).digest('base64url').slice(0, 22);
}

export function cursorOf(macs: Macs, { behind, from, to }: Continued, digest: string): string {
  return signValue(macs, USE, { t: behind.time, i: behind.id, f: from, u: to, d: digest });
}

/** Throws 400 for a cursor that this installation has not made, or that is of another question. */
export function readCursor(macs: Macs, cursor: string, digest: string): Continued {
  const signed = openSigned(macs, USE, cursor);
  if (signed === null) throw refuse('cursor', 'must be next_cursor of an answer, as it was');
  const { t, i, f, u, d } = place.parse(signed);
  if (d !== digest) throw refuse('cursor', 'is of another list: send the same parameters as for the page before');
  return { behind: { time: t, id: i }, from: f, to: u };
}
