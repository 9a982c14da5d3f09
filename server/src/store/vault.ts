import type { Secret } from '../kernel/secret.ts';
import type { TenantContext } from './ports.ts';

/** Where a sealed value lives: it cannot be opened anywhere else. */
export interface SealPlace {
  readonly table: string;
  readonly column: string;
  readonly row: string;
}

/** A keyed digest and the id of the key it was made with. */
export interface Mac {
  readonly keyId: string;
  readonly digest: Buffer;
}

/**
 * Keyed digests (HMAC-SHA256) under keys that are derived from the installation's master keys and used for nothing else.
 * No I/O, so they can be made within a transaction.
 */
export interface Macs {
  /**
   * The digest of `data` for `use`, a fixed name that keeps the digests of different purposes apart: with the current
   * key, or with the one that `keyId` names. Null when that key is not among the given master keys.
   */
  mac(use: string, data: Buffer): Mac;
  mac(use: string, data: Buffer, keyId: string): Mac | null;
}

/**
 * Envelope encryption at rest: one data key per organisation, wrapped by the installation's key-encryption keys.
 * Text form `slc1.<kekId>.<dekId>.<iv>.<ct>.<tag>`.
 */
export interface Vault extends Macs {
  /**
   * Loads, or makes, the organisation's data key. To be called before a write transaction that seals: inside it the
   * key's own transaction would wait for the one it holds up.
   */
  ensureKey?(organisationId: string): Promise<void>;
  seal(tenant: TenantContext, place: SealPlace, value: Secret): Promise<string>;
  /** Throws SluiceError('unavailable') when no key opens it: never plain text, never an empty value. */
  open(tenant: TenantContext, place: SealPlace, sealed: string): Promise<Secret>;
}

/** Keys of an organisation for one use each, derived from its data keys: with the data key they are gone. */
export interface Subkeys {
  /**
   * The key for `use`, a fixed name, of the data key that seals now, or of the one that `dataKeyId` names. 32 bytes, the caller's own.
   * Throws SluiceError('unavailable') when there is no such data key, or it cannot be opened.
   */
  subkey(
    organisationId: string,
    use: string,
    dataKeyId?: string,
  ): Promise<{ readonly id: string; readonly key: Buffer }>;
}

/** Whether a stored value has the form of a sealed one. One that is damaged still has it: it does not pass for plain text. */
export const isEnvelope = (value: unknown): boolean => typeof value === 'string' && value.startsWith('slc1.');
