/** What tests of usage limits ask of a running server: keys with limits, and what its books say. */
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { systemClock } from '../../src/kernel/clock.ts';
import type { TestServer } from './server.ts';

export interface Caller {
  readonly id: string;
  readonly key: string;
}

/** A service key of the first workspace; `more` goes into the body of its creation. */
export async function budgetKey(server: TestServer, more: object = {}): Promise<Caller> {
  const made = await server.admin('POST', '/api-keys/workspace/service', {
    name: 'limited',
    workspace_id: server.first.workspace_id,
    scopes: ['completions.write'],
    ...more,
  });
  if (made.status !== 200) throw new Error(`key: ${JSON.stringify(made)}`);
  return { id: String(made.body.id), key: String(made.body.key) };
}

/** Asks until the answer is good or twenty seconds are over, which a slow machine needs now and then; the last answer. */
export async function eventually<T>(read: () => Promise<T> | T, good: (value: T) => boolean): Promise<T> {
  const until = systemClock.monotonic() + 20_000;
  for (;;) {
    const value = await read();
    if (good(value) || systemClock.monotonic() > until) return value;
    await new Promise((resolve) => systemClock.after(20, () => resolve(undefined)));
  }
}

export interface Books {
  readonly used: number;
  readonly reserved: number;
  readonly unpriced: number;
}

/** Of one owner of limits, over all its buckets, as the store has it; amounts in micro-dollars, tokens or requests. */
export function booksOf(server: TestServer, ownerId: string): Books {
  const db = new DatabaseSync(join(server.dataDir, 'control.db'), { readOnly: true });
  try {
    const row = db
      .prepare(
        'SELECT COALESCE(SUM(used), 0) AS used, COALESCE(SUM(reserved), 0) AS reserved, COALESCE(SUM(unpriced), 0) AS unpriced FROM usage_buckets WHERE owner_id = ?',
      )
      .get(ownerId);
    return { used: Number(row?.used), reserved: Number(row?.reserved), unpriced: Number(row?.unpriced) };
  } finally {
    db.close();
  }
}

/** The books of an owner once nothing is reserved any more: what ran has ended, and idle leases went back. */
export function settledBooks(server: TestServer, ownerId: string): Promise<Books> {
  return eventually(
    () => booksOf(server, ownerId),
    ({ reserved }) => reserved === 0,
  );
}
