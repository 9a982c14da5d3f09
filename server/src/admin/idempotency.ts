/**
 * Writes that are carried out once however often they are sent. A client that lost the answer of a POST
 * sends it again with the same `Idempotency-Key` and gets the first answer, byte for byte; nothing is done a second time
 * and no second audit row is written, because nothing was changed.
 *
 * The record is inserted as the first statement of the write's own transaction and completed as its last. Of requests
 * that run at the same time, on whichever nodes, one therefore does the work, and the others wait for it in the store
 * and then find its record. A write that was refused leaves no record and may be tried again with the same key.
 */
import { createHash } from 'node:crypto';
import { SluiceError } from '../kernel/errors.ts';
import type { JsonObject, JsonValue } from '../kernel/json.ts';
import { Secret } from '../kernel/secret.ts';
import type { Tables, TenantContext } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Vault } from '../store/vault.ts';
import type { AdminRow } from './route.ts';

/** How long an answer is repeated, milliseconds. */
const REPLAY_MS = 24 * 3_600_000;
/** How long one that shows a secret is repeated; its key stays taken for `REPLAY_MS` all the same. */
const SECRET_REPLAY_MS = 10 * 60_000;

const HEADER = 'Idempotency-Key';
const VALUE = /^[\x21-\x7e]{1,255}$/;

/** Whether an operation honours the header. Reads, PUT and DELETE may be repeated as they are and do not look at it. */
export function takesIdempotencyKey(row: Pick<AdminRow, 'method' | 'writes'>): boolean {
  return row.method === 'POST' && row.writes;
}

/**
 * The value of the header, or null when it is absent. Reads the raw list, because Node joins repeated headers. Throws
 * `validation` unless it is there once with 1 to 255 visible ASCII characters.
 *
 * @param rawHeaders `IncomingMessage.rawHeaders`: name, value, name, value, …
 */
export function readIdempotencyKey(rawHeaders: readonly string[]): string | null {
  let value: string | null = null;
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    if (rawHeaders[i]?.toLowerCase() !== 'idempotency-key') continue;
    if (value !== null) throw invalid(`Send exactly one ${HEADER} header.`);
    value = rawHeaders[i + 1] ?? '';
  }
  if (value !== null && !VALUE.test(value)) {
    throw invalid(`${HEADER} must have 1 to 255 visible ASCII characters, without spaces.`);
  }
  return value;
}

/** What makes two requests the same: operation, path as sent, query and body. The order of names does not count. */
export function fingerprintOf(
  row: Pick<AdminRow, 'id' | 'method'>,
  path: string,
  query: Readonly<Record<string, string>>,
  body: JsonObject | readonly JsonValue[] | null,
): string {
  const parts = canonical([row.method, row.id, path, { ...query }, (body ?? {}) as JsonValue]);
  return createHash('sha256').update(parts).digest('hex');
}

function canonical(value: JsonValue | undefined): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value ?? null);
  const names = Object.keys(value).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join()}}`;
}

/** An answer that was given before. */
export class Replay {
  readonly status: number;
  /** JSON text. */
  readonly body: string;

  constructor(status: number, body: string) {
    this.status = status;
    this.body = body;
  }
}

type Stored = Row<'idempotency_keys'>;

/** What was kept of an earlier request. */
export class Kept {
  readonly row: Stored;

  constructor(row: Stored) {
    this.row = row;
  }
}

/** What is needed of a transaction, the tenant's or the system's. */
interface Tx {
  find(table: 'idempotency_keys', where: Partial<Stored>): Promise<Stored | undefined>;
  insert(table: 'idempotency_keys', row: Stored): Promise<void>;
  update(table: 'idempotency_keys', where: Partial<Stored>, patch: Partial<Stored>): Promise<number>;
  remove(table: 'idempotency_keys', where: Partial<Stored>): Promise<number>;
}

export interface OnceOptions {
  readonly tables: Pick<Tables, 'now'>;
  readonly vault: Vault;
  /** Whose record it is, and whose data key seals it. */
  readonly tenant: TenantContext;
  /** Id of the key or of the signed-in user, or `operator`: no other caller gets the answer that this one made. */
  readonly caller: string;
  readonly key: string;
  readonly fingerprint: string;
  readonly secret: boolean;
}

/** One request that carries an `Idempotency-Key`. */
export class Once {
  readonly #options: OnceOptions;
  /** By the store's clock, which all nodes share. */
  readonly #now: number;

  private constructor(options: OnceOptions, now: number) {
    this.#options = options;
    this.#now = now;
  }

  /** To be called before the write transaction: reads the time, and makes sure that the answer can be sealed. */
  static async begin(options: OnceOptions): Promise<Once> {
    await options.vault.ensureKey?.(options.tenant.organisationId);
    return new Once(options, await options.tables.now());
  }

  /**
   * As the first step of the write: what was kept for an earlier request, or null after the record of this one was
   * inserted. Throws `validation` when the key belongs to a request of other content.
   */
  async claim(tx: Tx): Promise<Kept | null> {
    const { tenant, caller, key, fingerprint } = this.#options;
    const kept = await this.#find(tx);
    if (kept !== null) return kept;
    await tx.remove('idempotency_keys', this.#where);
    await tx.insert('idempotency_keys', {
      organisation_id: tenant.organisationId,
      caller,
      key,
      fingerprint,
      status: 0,
      object_id: null,
      answer: null,
      replay_until: this.#now + (this.#options.secret ? SECRET_REPLAY_MS : REPLAY_MS),
      expires_at: this.#now + REPLAY_MS,
      created_at: this.#now,
    });
    return null;
  }

  /** The record of an earlier request with this key; throws as `claim` does. */
  async #find(tx: Pick<Tx, 'find'>): Promise<Kept | null> {
    const kept = await tx.find('idempotency_keys', this.#where);
    if (kept === undefined || kept.expires_at <= this.#now) return null;
    if (kept.fingerprint === this.#options.fingerprint) return new Kept(kept);
    throw invalid(
      `This ${HEADER} was sent with another request before. Repeat that request unchanged, or send a new key.`,
    );
  }

  /** As the last step of the write: keeps its answer. */
  async keep(tx: Tx, status: number, answer: unknown, objectId: string | null): Promise<void> {
    const { vault, tenant } = this.#options;
    const sealed = await vault.seal(tenant, this.#place, new Secret(JSON.stringify(answer)));
    await tx.update('idempotency_keys', this.#where, { status, answer: sealed, object_id: objectId });
  }

  /**
   * The answer of `write`, a whole transaction that claims and keeps; a `Replay` when an earlier one did the work. Throws
   * `conflict` when that answer showed a secret and its time is over.
   */
  async answer(
    write: () => Promise<unknown>,
    read: <T>(run: (tx: Pick<Tx, 'find'>) => Promise<T>) => Promise<T>,
  ): Promise<unknown> {
    let answer: unknown;
    try {
      answer = await write();
    } catch (error) {
      // Two at once may also meet elsewhere than at the record, for example at the name both want to make.
      answer = await read((tx) => this.#find(tx));
      if (answer === null) throw error;
    }
    // Opened outside the transaction: a data key that is not cached is read on another connection.
    return answer instanceof Kept ? this.#replay(answer.row) : answer;
  }

  async #replay(kept: Stored): Promise<Replay> {
    const { vault, tenant } = this.#options;
    if (kept.answer === null || kept.replay_until <= this.#now) {
      const what = kept.object_id === null ? '' : ` on ${kept.object_id}`;
      throw new SluiceError(
        'conflict',
        `This request was carried out before${what}. Its answer showed a secret and is repeated for 10 minutes only. ` +
          `If the secret is lost, rotate or delete that object, and send the request with a new ${HEADER} to make another.`,
        { param: HEADER },
      );
    }
    return new Replay(kept.status, (await vault.open(tenant, this.#place, kept.answer)).reveal());
  }

  get #where() {
    const { tenant, caller, key } = this.#options;
    return { organisation_id: tenant.organisationId, caller, key };
  }

  get #place() {
    const { caller, key } = this.#options;
    return { table: 'idempotency_keys', column: 'answer', row: `${caller}/${key}` };
  }
}

function invalid(message: string): SluiceError {
  return new SluiceError('validation', message, { param: HEADER });
}

/**
 * Forgets answers that may not be repeated any more, then keys whose time is over. For one node, every few minutes.
 */
export async function purgeIdempotencyKeys(tables: Pick<Tables, 'now' | 'systemWrite'>): Promise<void> {
  const now = await tables.now();
  await tables.systemWrite(async (tx) => {
    await tx.remove('idempotency_keys', { expires_at: { lte: now } });
    await tx.update('idempotency_keys', { replay_until: { lte: now }, answer: { not: null } }, { answer: null });
  });
}
