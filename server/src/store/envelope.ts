import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import { Secret } from '../kernel/secret.ts';
import type { Keyring } from './keyring.ts';
import type { SystemTx, Tables, TenantContext } from './ports.ts';
import type { Row } from './schema.ts';
import type { Mac, SealPlace, Subkeys, Vault } from './vault.ts';

export interface VaultOptions {
  readonly keyring: Keyring;
  readonly tables: Tables;
  readonly clock: Clock;
  /** Values sealed with one data key before a new one is made. 2^30 keeps random 96-bit IVs far from repeating. */
  readonly maxUses?: number;
  /** Longest time to wait for the store when a data key is needed, milliseconds. */
  readonly patienceMs?: number;
}

export interface KeyUse {
  readonly kekId: string;
  /** False when the key is not among the given master keys: what it wraps cannot be opened. */
  readonly available: boolean;
  readonly dataKeys: number;
}

/**
 * Transactions: `seal` and `open` do no I/O while the organisation's data key is cached, and otherwise read (the first
 * time write) `data_keys` in a separate transaction. Inside an open write transaction that would wait for the very
 * transaction it holds up, so **call `ensureKey` before the transaction**: afterwards `seal` needs no I/O for at least
 * two minutes. Should somebody forget it, the wait ends after `patienceMs` with SluiceError('unavailable'), the outer
 * transaction rolls back, and the next attempt succeeds.
 */
export interface EnvelopeVault extends Vault, Subkeys, Closable {
  /** Creates the organisation's first data key if there is none, and loads it. Nothing to do, no I/O, when it is fresh. */
  ensureKey(organisationId: string): Promise<void>;
  /**
   * At start. Notes the current master key in the store, so that a node with another one is refused before it seals anything;
   * `note: false` only looks.
   * Throws SluiceError('unavailable') when the store names a master key that is not given, or no data key can be opened.
   */
  verify(options?: { readonly note: boolean }): Promise<void>;
  /** Data keys per master key, for `sluice keys status`: an old master key may go when its count is 0. */
  status(): Promise<KeyUse[]>;
  /** Wraps up to `limit` data keys of older master keys with the current one; returns how many. 0 means rotation is done. */
  rewrap(limit: number): Promise<number>;
}

/** Row of `meta` with the id of the master key that nodes wrap with. */
const MASTER_KEY_ID = 'master_key_id';
/** Data keys that are tried at the start. */
const SAMPLES = 3;
const VERSION = 'slc1';
const IV_BYTES = 12;
const TAG_BYTES = 16;
/** Unwrapped keys are zeroed after this, used or not. */
const CACHE_MS = 5 * 60_000;
/** `ensureKey` leaves at least this much life, so a transaction that follows does not run into the expiry. */
const FRESH_MS = 2 * 60_000;

interface DataKey {
  readonly id: string;
  readonly organisationId: string;
  /** Master key that wrapped it when it was loaded. */
  readonly kekId: string;
  readonly key: Buffer;
  readonly expiresAt: number;
  /** False once the key was zeroed. */
  live: boolean;
  readonly cancel: () => void;
}

/** Joins the parts so that no two lists give the same bytes: each is preceded by its length. */
export function joinUnambiguously(parts: readonly string[]): Buffer {
  const chunks: Buffer[] = [];
  for (const part of parts) {
    const text = Buffer.from(part, 'utf8');
    const length = Buffer.alloc(4);
    length.writeUInt32BE(text.length);
    chunks.push(length, text);
  }
  return Buffer.concat(chunks);
}

function wrapContext(kekId: string, row: { id: string; organisation_id: string }): Buffer {
  return joinUnambiguously(['slc1 data key', kekId, row.id, row.organisation_id]);
}

/** Decodes base64url, refusing every spelling but the one `toString` gives: spare bits must not be a way to change the text. */
function decode(text: string): Buffer | null {
  const bytes = Buffer.from(text, 'base64url');
  return bytes.toString('base64url') === text ? bytes : null;
}

function unopenable(reason: string, detail: Record<string, unknown>, cause?: unknown): SluiceError {
  return new SluiceError('unavailable', 'A stored secret cannot be opened. Save it again or ask the operator.', {
    detail: { reason, ...detail },
    cause,
  });
}

class TablesVault implements EnvelopeVault {
  readonly #keyring: Keyring;
  readonly #tables: Tables;
  readonly #clock: Clock;
  readonly #maxUses: number;
  readonly #patienceMs: number;
  /** By data key id. */
  readonly #loaded = new Map<string, DataKey>();
  /** Data key that seals, by organisation. */
  readonly #active = new Map<string, string>();
  /** Values sealed by this process, by data key id; outlives the cached key. */
  readonly #uses = new Map<string, number>();
  readonly #pending = new Map<string, Promise<DataKey>>();

  constructor(options: VaultOptions) {
    this.#keyring = options.keyring;
    this.#tables = options.tables;
    this.#clock = options.clock;
    this.#maxUses = options.maxUses ?? 2 ** 30;
    this.#patienceMs = options.patienceMs ?? 5_000;
  }

  async seal(tenant: TenantContext, place: SealPlace, value: Secret): Promise<string> {
    const { organisationId } = tenant;
    let dataKey = this.#usable(organisationId, 0);
    // A key may expire between its promise and this line; a zeroed one must never encrypt.
    while (!dataKey?.live) dataKey = await this.#activate(organisationId);
    this.#uses.set(dataKey.id, (this.#uses.get(dataKey.id) ?? 0) + 1);
    const iv = randomBytes(IV_BYTES);
    const cipher = createCipheriv('aes-256-gcm', dataKey.key, iv);
    cipher.setAAD(placeContext(dataKey.kekId, dataKey.id, organisationId, place));
    const text = Buffer.concat([cipher.update(value.reveal(), 'utf8'), cipher.final()]);
    const parts = [iv, text, cipher.getAuthTag()].map((part) => part.toString('base64url'));
    return [VERSION, dataKey.kekId, dataKey.id, ...parts].join('.');
  }

  async open(tenant: TenantContext, place: SealPlace, sealed: string): Promise<Secret> {
    const { organisationId } = tenant;
    const where = { ...place, organisationId };
    const parts = sealed.split('.');
    const [version, kekId = '', dekId = '', ivText = '', sealedText = '', tagText = ''] = parts;
    const iv = decode(ivText);
    const text = decode(sealedText);
    const tag = decode(tagText);
    if (version !== VERSION || parts.length !== 6 || iv?.length !== IV_BYTES || !text || tag?.length !== TAG_BYTES) {
      throw unopenable('not an envelope', where);
    }
    let dataKey = this.#cached(dekId);
    if (dataKey?.organisationId !== organisationId) dataKey = null;
    while (!dataKey?.live) dataKey = await this.#load(organisationId, dekId);
    try {
      const decipher = createDecipheriv('aes-256-gcm', dataKey.key, iv, { authTagLength: TAG_BYTES });
      decipher.setAAD(placeContext(kekId, dekId, organisationId, place)).setAuthTag(tag);
      return new Secret(Buffer.concat([decipher.update(text), decipher.final()]).toString('utf8'));
    } catch (error) {
      throw unopenable('changed, or moved from another place', where, error);
    }
  }

  mac(use: string, data: Buffer): Mac;
  mac(use: string, data: Buffer, keyId: string): Mac | null;
  mac(use: string, data: Buffer, keyId: string = this.#keyring.currentId): Mac | null {
    return this.#keyring.mac(use, data, keyId);
  }

  async ensureKey(organisationId: string): Promise<void> {
    if (!this.#usable(organisationId, FRESH_MS)) await this.#activate(organisationId);
  }

  async subkey(organisationId: string, use: string, dataKeyId?: string): Promise<{ id: string; key: Buffer }> {
    let dataKey = dataKeyId === undefined ? this.#usable(organisationId, 0) : this.#cached(dataKeyId);
    if (dataKey?.organisationId !== organisationId) dataKey = null;
    while (!dataKey?.live) {
      dataKey =
        dataKeyId === undefined ? await this.#activate(organisationId) : await this.#load(organisationId, dataKeyId);
    }
    const { id, key } = dataKey;
    return { id, key: Buffer.from(hkdfSync('sha256', key, Buffer.alloc(0), `sluice ${use} v1`, 32)) };
  }

  async verify({ note }: { readonly note: boolean } = { note: true }): Promise<void> {
    const { ids } = this.#keyring;
    const inUse = (await this.status()).filter((use) => use.dataKeys > 0);
    const named = note ? await this.#note() : await this.#tables.systemRead((tx) => this.#named(tx));
    const wanted = new Set([named, ...inUse.map((use) => use.kekId)]);
    const missing = [...wanted].filter((id) => !ids.includes(id));
    if (missing.length > 0) {
      throw new SluiceError(
        'unavailable',
        `The store was sealed with master key ${missing.join(', ')}, which this node does not have (it has ${ids.join(', ')}). ` +
          'Nodes of one store share their master keys: put them into SLUICE_MASTER_KEY or SLUICE_MASTER_KEY_FILE.',
      );
    }
    if (inUse.length === 0) return;
    const samples = await this.#tables.systemRead((tx) =>
      tx.list('data_keys', { where: { kek_id: { in: [...ids] } }, orderBy: [['id', 'asc']], limit: SAMPLES }),
    );
    for (const row of samples) {
      try {
        (await this.#keyring.unwrap(row.kek_id, row.wrapped, wrapContext(row.kek_id, row))).fill(0);
        return;
      } catch {
        // One damaged row must not hide that the key opens the others.
      }
    }
    throw new SluiceError(
      'unavailable',
      'The stored data keys are damaged: none of those looked at can be opened. Restore the store from a backup.',
    );
  }

  /** Id of the master key that nodes wrap with; our own where the store names none. */
  async #named(tx: Pick<SystemTx, 'find'>): Promise<string> {
    return (await tx.find('meta', { key: MASTER_KEY_ID }))?.value ?? this.#keyring.currentId;
  }

  /** The same, noted where it is new and we have the one that was named before. */
  #note(): Promise<string> {
    const { ids, currentId } = this.#keyring;
    return this.#tables.systemWrite(async (tx) => {
      const row = await tx.find('meta', { key: MASTER_KEY_ID });
      if (row === undefined) await tx.insert('meta', { key: MASTER_KEY_ID, value: currentId });
      else if (!ids.includes(row.value)) return row.value;
      else if (row.value !== currentId) await tx.update('meta', { key: MASTER_KEY_ID }, { value: currentId });
      return currentId;
    });
  }

  async status(): Promise<KeyUse[]> {
    return await this.#tables.systemRead(async (tx) => {
      const uses: KeyUse[] = [];
      // One count per known key, then one look-up per unknown one: never a list of all rows.
      const seen: string[] = [];
      for (const kekId of this.#keyring.ids) {
        seen.push(kekId);
        uses.push({ kekId, available: true, dataKeys: await tx.count('data_keys', { where: { kek_id: kekId } }) });
      }
      for (let after = ''; ; ) {
        const [row] = await tx.list('data_keys', {
          where: { kek_id: { gt: after } },
          orderBy: [['kek_id', 'asc']],
          limit: 1,
        });
        if (!row) return uses;
        after = row.kek_id;
        if (seen.includes(after)) continue;
        const dataKeys = await tx.count('data_keys', { where: { kek_id: after } });
        uses.push({ kekId: after, available: false, dataKeys });
      }
    });
  }

  async rewrap(limit: number): Promise<number> {
    const { currentId, ids } = this.#keyring;
    const old = ids.filter((id) => id !== currentId);
    if (old.length === 0) return 0;
    const rows = await this.#tables.systemRead((tx) =>
      tx.list('data_keys', { where: { kek_id: { in: old } }, orderBy: [['id', 'asc']], limit }),
    );
    const wrapped: { row: Row<'data_keys'>; text: string }[] = [];
    for (const row of rows) {
      const key = await this.#keyring.unwrap(row.kek_id, row.wrapped, wrapContext(row.kek_id, row));
      wrapped.push({ row, text: await this.#keyring.wrap(key, wrapContext(currentId, row)) });
      key.fill(0);
    }
    if (wrapped.length === 0) return 0;
    return await this.#tables.systemWrite(async (tx) => {
      let changed = 0;
      for (const { row, text } of wrapped) {
        // The old key id in the condition makes two nodes that rewrap at once harmless.
        const where = { id: row.id, organisation_id: row.organisation_id, kek_id: row.kek_id };
        changed += await tx.update('data_keys', where, { kek_id: currentId, wrapped: text });
      }
      return changed;
    });
  }

  async close(): Promise<void> {
    for (const dataKey of [...this.#loaded.values()]) this.#forget(dataKey);
  }

  #forget(dataKey: DataKey): void {
    dataKey.cancel();
    dataKey.live = false;
    dataKey.key.fill(0);
    if (this.#loaded.get(dataKey.id) === dataKey) this.#loaded.delete(dataKey.id);
  }

  #cached(dekId: string): DataKey | null {
    const dataKey = this.#loaded.get(dekId);
    if (!dataKey) return null;
    if (this.#clock.monotonic() < dataKey.expiresAt) return dataKey;
    this.#forget(dataKey);
    return null;
  }

  #exhausted(dekId: string): boolean {
    return (this.#uses.get(dekId) ?? 0) >= this.#maxUses;
  }

  /** The organisation's active data key, when it is cached for at least `lifeMs` more and may still seal. */
  #usable(organisationId: string, lifeMs: number): DataKey | null {
    const dekId = this.#active.get(organisationId);
    const dataKey = dekId === undefined ? null : this.#cached(dekId);
    if (!dataKey || this.#exhausted(dataKey.id)) return null;
    return dataKey.expiresAt - this.#clock.monotonic() >= lifeMs ? dataKey : null;
  }

  /** Loads the newest data key and makes one when there is none or it is used up. One call at a time per organisation. */
  #activate(organisationId: string): Promise<DataKey> {
    return this.#once(`active ${organisationId}`, async () => {
      const row =
        (await this.#tables.systemRead((tx) => this.#newest(tx, organisationId))) ??
        (await this.#create(organisationId));
      const dataKey = await this.#unwrap(row);
      this.#active.set(organisationId, dataKey.id);
      return dataKey;
    });
  }

  async #newest(tx: SystemTx, organisationId: string): Promise<Row<'data_keys'> | null> {
    const [row] = await tx.list('data_keys', {
      where: { organisation_id: organisationId },
      orderBy: [
        ['created_at', 'desc'],
        ['id', 'desc'],
      ],
      limit: 1,
    });
    return row && !this.#exhausted(row.id) ? row : null;
  }

  async #create(organisationId: string): Promise<Row<'data_keys'>> {
    const kekId = this.#keyring.currentId;
    const id = uuidv7(this.#clock);
    const key = randomBytes(32);
    const wrapped = await this.#keyring.wrap(key, wrapContext(kekId, { id, organisation_id: organisationId }));
    key.fill(0);
    return await this.#tables.systemWrite(async (tx) => {
      // Another node may have been first since the look-up; write transactions are serial, so this look is final.
      const existing = await this.#newest(tx, organisationId);
      if (existing) return existing;
      const row = { id, organisation_id: organisationId, kek_id: kekId, wrapped, created_at: this.#clock.now() };
      await tx.insert('data_keys', row);
      return row;
    });
  }

  #load(organisationId: string, dekId: string): Promise<DataKey> {
    return this.#once(`${dekId} ${organisationId}`, async () => {
      const row = await this.#tables.systemRead((tx) =>
        tx.find('data_keys', { id: dekId, organisation_id: organisationId }),
      );
      if (!row) throw unopenable('its data key does not exist in this organisation', { organisationId, dekId });
      return await this.#unwrap(row);
    });
  }

  async #unwrap(row: Row<'data_keys'>): Promise<DataKey> {
    const key = await this.#keyring.unwrap(row.kek_id, row.wrapped, wrapContext(row.kek_id, row));
    const present = this.#cached(row.id);
    if (present && present.expiresAt - this.#clock.monotonic() >= FRESH_MS) {
      key.fill(0);
      return present;
    }
    if (present) this.#forget(present);
    const dataKey: DataKey = {
      id: row.id,
      organisationId: row.organisation_id,
      kekId: row.kek_id,
      key,
      live: true,
      expiresAt: this.#clock.monotonic() + CACHE_MS,
      cancel: this.#clock.after(CACHE_MS, () => this.#forget(dataKey)),
    };
    this.#loaded.set(row.id, dataKey);
    return dataKey;
  }

  /** Runs `work` once for all who ask meanwhile, and gives up waiting after `patienceMs`. */
  #once(name: string, work: () => Promise<DataKey>): Promise<DataKey> {
    const running = this.#pending.get(name);
    if (running) return running;
    const started = new Promise<DataKey>((resolve, reject) => {
      const cancel = this.#clock.after(this.#patienceMs, () => {
        reject(
          new SluiceError('unavailable', 'Secrets cannot be stored or read right now. Try again.', {
            detail: 'no answer from data_keys; inside a write transaction, call ensureKey before it begins',
          }),
        );
      });
      work().then(resolve, reject).finally(cancel);
    }).finally(() => this.#pending.delete(name));
    this.#pending.set(name, started);
    return started;
  }
}

function placeContext(kekId: string, dekId: string, organisationId: string, place: SealPlace): Buffer {
  return joinUnambiguously([organisationId, place.table, place.column, place.row, VERSION, kekId, dekId]);
}

/** The vault over the control tables. */
export function openVault(options: VaultOptions): EnvelopeVault {
  return new TablesVault(options);
}

/** Whether a store was ever used with a master key: a fresh key beside what another one sealed would only hide that. */
export async function hasMasterKey(tables: Tables): Promise<boolean> {
  return tables.systemRead(
    async (tx) => (await tx.count('meta', { where: { key: MASTER_KEY_ID } })) > 0 || (await tx.count('data_keys')) > 0,
  );
}
