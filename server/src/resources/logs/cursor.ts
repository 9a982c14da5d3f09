/** Cursors of lists of requests: where the next page begins, bound to the question by a signature. */
import { createHash, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import type { Macs } from '../../store/vault.ts';
import type { LogPlace, LogSelection } from '../../telemetry/log-query.ts';
import { refuse } from '../common.ts';

const USE = 'log cursor';
const TOKEN = /^([A-Za-z0-9_-]{1,400})\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{43})$/;

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
  const payload = JSON.stringify({ t: behind.time, i: behind.id, f: from, u: to, d: digest });
  const text = Buffer.from(payload).toString('base64url');
  const made = macs.mac(USE, Buffer.from(text));
  return `${text}.${made.keyId}.${made.digest.toString('base64url')}`;
}

/** Throws 400 for a cursor that this installation has not made, or that is of another question. */
export function readCursor(macs: Macs, cursor: string, digest: string): Continued {
  const [, text = '', keyId = '', given = ''] = TOKEN.exec(cursor) ?? [];
  const made = text === '' ? null : macs.mac(USE, Buffer.from(text), keyId);
  const bytes = Buffer.from(given, 'base64url');
  if (made === null || bytes.length !== made.digest.length || !timingSafeEqual(bytes, made.digest)) {
    throw refuse('cursor', 'must be next_cursor of an answer, as it was');
  }
  const { t, i, f, u, d } = place.parse(JSON.parse(Buffer.from(text, 'base64url').toString('utf8')));
  if (d !== digest) throw refuse('cursor', 'is of another list: send the same parameters as for the page before');
  return { behind: { time: t, id: i }, from: f, to: u };
}
