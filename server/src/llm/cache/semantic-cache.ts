/**
 * Questions that were answered, as vectors in the store: every node finds what any has learned. A node keeps what it has
 * read and asks only for what came since.
 */
import type { Clock } from '../../kernel/clock.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { Log } from '../../kernel/log.ts';
import { Lru } from '../../kernel/lru.ts';
import type { Tables, TenantContext } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { EntryKey } from './entry.ts';

/** Questions compared with one: the newest. */
const MAX_OF_SCOPE = 500;
/** Of a workspace; more make room by the oldest. */
const MAX_OF_WORKSPACE = 50_000;
/** How often a node looks whether there are more. */
const CHECK_EVERY = 64;
/** Bytes of vectors a node keeps at hand. */
const MAX_BYTES = 64 * 1024 * 1024;
/** Of a question beside its vector. */
const ENTRY_BYTES = 600;
/** Kinds of question whose questions are at hand. */
const MAX_SCOPES = 100_000;
/** Rows become visible a little after the time they carry. */
const OVERLAP_MS = 10_000;

interface Known {
  readonly id: string;
  readonly vector: Float32Array;
  readonly key: EntryKey;
  readonly expiresAt: number;
}

interface Scope {
  readonly rows: Map<string, Known>;
  /** Time of the newest row that was read. */
  seen: number;
  /** Of the vectors of `rows`. */
  bytes: number;
}

export interface Found {
  readonly key: EntryKey;
  readonly similarity: number;
}

export interface SemanticCache {
  /** The answered question nearest to this one, when it is at least as near as `threshold`. */
  nearest(tenant: TenantContext, scope: string, vector: Float32Array, threshold: number): Promise<Found | null>;
  add(tenant: TenantContext, scope: string, vector: Float32Array, key: EntryKey, maxAgeMs: number): Promise<void>;
  /** What is kept at hand, of how many scopes. */
  readonly bytes: number;
  readonly size: number;
}

export function createSemanticCache(parts: {
  readonly tables: Tables;
  /** The store's time. */
  readonly clock: Clock;
  readonly log: Log;
  /** Of vectors at hand; 64 MiB when absent. */
  readonly maxBytes?: number;
}): SemanticCache {
  const { tables, clock, log, maxBytes = MAX_BYTES } = parts;
  const scopes = new Lru<string, Scope>({
    maxEntries: MAX_SCOPES,
    maxWeight: maxBytes,
    weigh: ({ rows, bytes }) => bytes + rows.size * ENTRY_BYTES,
  });
  let added = 0;

  function keep(scope: Scope, row: Row<'answer_vectors'>): void {
    scope.seen = Math.max(scope.seen, row.created_at);
    if (scope.rows.has(row.id)) return;
    const vector = vectorOf(row.vector);
    scope.rows.set(row.id, {
      id: row.id,
      vector,
      key: { place: row.place, secret: Buffer.from(row.secret, 'base64url') },
      expiresAt: row.expires_at,
    });
    scope.bytes += vector.byteLength;
  }

  return {
    get bytes() {
      return scopes.weight;
    },
    get size() {
      return scopes.size;
    },
    async nearest(tenant, name, vector, threshold) {
      const place = `${tenant.organisationId} ${tenant.workspaceId ?? ''} ${name}`;
      const scope = scopes.get(place) ?? { rows: new Map<string, Known>(), seen: 0, bytes: 0 };
      const now = clock.now();
      const fresh = await tables.read(tenant, (tx) =>
        tx.list('answer_vectors', {
          where: { scope: name, created_at: { gte: scope.seen - OVERLAP_MS }, expires_at: { gt: now } },
          orderBy: [['created_at', 'desc']],
          limit: MAX_OF_SCOPE,
        }),
      );
      for (const row of fresh.reverse()) keep(scope, row);
      let best: Found | null = null;
      for (const known of scope.rows.values()) {
        if (known.expiresAt <= now || known.vector.length !== vector.length) continue;
        const similarity = dot(known.vector, vector);
        if (similarity >= threshold && (best === null || similarity > best.similarity))
          best = { key: known.key, similarity };
      }
      for (const { id, expiresAt, vector: known } of scope.rows.values()) {
        if (scope.rows.size <= MAX_OF_SCOPE && expiresAt > now) continue;
        scope.rows.delete(id);
        scope.bytes -= known.byteLength;
      }
      // As it weighs now. One without questions is not worth its place: nothing would have to be read anew.
      if (scope.rows.size > 0) scopes.set(place, scope);
      else scopes.delete(place);
      return best;
    },
    async add(tenant, scope, vector, key, maxAgeMs) {
      const now = clock.now();
      const { organisationId, workspaceId } = tenant;
      if (workspaceId === null) return;
      const row: Row<'answer_vectors'> = {
        id: uuidv7(clock),
        organisation_id: organisationId,
        workspace_id: workspaceId,
        scope,
        vector: textOf(vector),
        place: key.place,
        secret: key.secret.toString('base64url'),
        created_at: now,
        expires_at: now + maxAgeMs,
      };
      added += 1;
      const check = added % CHECK_EVERY === 0;
      try {
        await tables.write(tenant, async (tx) => {
          await tx.insert('answer_vectors', row);
          if (!check || (await tx.count('answer_vectors', {})) <= MAX_OF_WORKSPACE) return;
          const oldest = await tx.list('answer_vectors', {
            orderBy: [['created_at', 'asc']],
            limit: MAX_OF_WORKSPACE / 10,
          });
          const until = oldest.at(-1)?.created_at;
          if (until !== undefined) await tx.remove('answer_vectors', { created_at: { lte: until } });
        });
      } catch (error) {
        // An answer that nobody finds is asked for again.
        log.warn('a question could not be kept', { error: String(error) });
      }
    },
  };
}

/** Vectors whose answers are too old to be given. */
export async function purgeVectors(tables: Pick<Tables, 'now' | 'systemWrite'>): Promise<void> {
  const now = await tables.now();
  await tables.systemWrite((tx) => tx.remove('answer_vectors', { expires_at: { lte: now } }));
}

/** Little-endian single floats, in base64. */
function textOf(vector: Float32Array): string {
  return Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString('base64');
}

function vectorOf(text: string): Float32Array {
  const bytes = Buffer.from(text, 'base64');
  // A new buffer: one from the pool may begin at an odd place.
  return new Float32Array(new Uint8Array(bytes).buffer);
}

/** Both have the length 1. */
function dot(a: Float32Array, b: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] ?? 0) * (b[i] ?? 0);
  return sum;
}
