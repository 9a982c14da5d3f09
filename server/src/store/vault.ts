import type { Secret } from '../kernel/secret.ts';
import type { TenantContext } from './ports.ts';

/** Where a sealed value lives: it cannot be opened anywhere else. */
export interface SealPlace {
  readonly table: string;
  readonly column: string;
  readonly row: string;
}

/**
 * Envelope encryption at rest: one data key per organisation, wrapped by the installation's key-encryption keys.
 * Text form `slc1.<kekId>.<dekId>.<iv>.<ct>.<tag>`.
 */
export interface Vault {
  /**
   * Loads, or makes, the organisation's data key. To be called before a write transaction that seals: inside it the
   * key's own transaction would wait for the one it holds up.
   */
  ensureKey?(organisationId: string): Promise<void>;
  seal(tenant: TenantContext, place: SealPlace, value: Secret): Promise<string>;
  /** Throws SluiceError('unavailable') when no key opens it: never plain text, never an empty value. */
  open(tenant: TenantContext, place: SealPlace, sealed: string): Promise<Secret>;
}
