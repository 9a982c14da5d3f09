/**
 * Which workspace owns a file, job or batch at a provider account. Where several workspaces share the account, an id without
 * an entry is unknown, whatever the provider would say; where one workspace alone can use it, all that is in it is that
 * workspace's, and entries are written for the day it is shared. A caller's own token has no ledger: the account is the
 * caller's.
 */
import { tenantOf } from '../auth/tenant.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Account, ObjectCall } from '../runtime/object-call.ts';
import { foreignUri, missingOf, type Named, type ObjectKind } from '../runtime/owners.ts';
import type { Tables, TenantContext } from '../store/ports.ts';

export type { ObjectKind } from '../runtime/owners.ts';

/** Longest time between a creation at a provider and its entry here, milliseconds. */
const MOMENTS_MS = 15 * 60_000;

/** Of what this ledger is asked about. */
export type TrainedKind = Extract<ObjectKind, 'file' | 'job' | 'batch'>;

/** What a caller calls it, and the path that lists them. */
const WHAT: Readonly<Record<TrainedKind, readonly [name: string, list: string]>> = {
  file: ['file', '/v1/files'],
  job: ['fine-tuning job', '/v1/fine_tuning/jobs'],
  batch: ['batch', '/v1/batches'],
};
/** Before the id of a file that is still uploaded; no provider's id begins with it. */
const UNDER_WAY = 'upload ';

/**
 * 404: the same answer for an id that never was and for one of another workspace. `AB08` for what the path names, `AB02`
 * for what the body names in `param`.
 */
export function notFound(kind: TrainedKind, param: string | null = null): SluiceError {
  const known = param === null ? 'not_found' : 'unknown_reference';
  const [what, list] = WHAT[kind];
  return new SluiceError(
    known,
    `There is no such ${what} in this workspace. GET ${list} with the same provider headers lists what there is.`,
    { param },
  );
}

export interface Owner {
  readonly tenant: TenantContext;
  /** API key that asked; null for a job that Sluice runs. */
  readonly createdBy: string | null;
}

/** Kinds of which everything at an account is the workspace's. */
type Alone = ReadonlySet<ObjectKind>;
const NONE: Alone = new Set();
const ALL: Alone = new Set(['file', 'job', 'batch'] as const);
/** What a bucket holds need not be the account's: a file of an object store is the workspace's only by its entry. */
const NO_FILES: Alone = new Set(['job', 'batch'] as const);

/** The entries of one workspace at one account. */
export class ObjectOwnership {
  readonly #tables: Tables;
  readonly #clock: Clock;
  readonly #account: string;
  readonly #provider: string;
  readonly #owner: Owner;
  readonly #alone: Alone;

  constructor(parts: {
    tables: Tables;
    clock: Clock;
    account: string;
    provider: string;
    owner: Owner;
    alone?: Alone;
  }) {
    this.#tables = parts.tables;
    this.#clock = parts.clock;
    this.#account = parts.account;
    this.#provider = parts.provider;
    this.#owner = parts.owner;
    this.#alone = parts.alone ?? NONE;
  }

  /** Whether all objects of the kind at the account are the workspace's, those without an entry included. */
  ownsAll(kind: ObjectKind): boolean {
    return this.#alone.has(kind);
  }

  /** Whether other workspaces can use the account. */
  get shared(): boolean {
    return this.#alone === NONE;
  }

  /** As `missingOf`, by entries alone. */
  missing(named: readonly Named[]): Promise<Named | null> {
    return missingOf(this.#tables, this.#owner.tenant, this.#account, named);
  }

  /** The id as the ledger has it, or null when it is not the workspace's: clients may encode an id once more or less. */
  async find(kind: ObjectKind, id: string): Promise<string | null> {
    const spellings = spellingsOf(id);
    const rows = await this.#tables.read(this.#owner.tenant, (tx) =>
      tx.list('object_owners', { where: { account: this.#account, kind, object_id: { in: spellings } } }),
    );
    const known = spellings.find((spelling) => rows.some((row) => row.object_id === spelling));
    return known ?? (this.ownsAll(kind) ? id : null);
  }

  /** As `find`; throws 404. */
  async must(kind: TrainedKind, id: string, param: string | null = null): Promise<string> {
    const found = await this.find(kind, id);
    if (found === null) throw notFound(kind, param);
    return found;
  }

  /** Whether another workspace owns the id. */
  async foreign(kind: ObjectKind, id: string): Promise<boolean> {
    if (this.ownsAll(kind)) return false;
    const { organisationId, workspaceId } = this.#owner.tenant;
    const rows = await this.#tables.systemRead((tx) =>
      tx.list('object_owners', { where: { account: this.#account, kind, object_id: { in: spellingsOf(id) } } }),
    );
    return rows.some((row) => row.organisation_id !== organisationId || row.workspace_id !== workspaceId);
  }

  /** As `foreignUri`. */
  foreignAt(uris: readonly string[]): Promise<string | null> {
    return foreignUri(this.#tables, this.#workspace(), this.#account, uris);
  }

  /**
   * Keeps the name of an object for the workspace while it is uploaded, which the ledger cannot tell yet: two workspaces
   * that begin at the same time would both find the name free, and the later end would write over the other's object.
   * False when another workspace has it. What a killed process leaves keeps the name from others only.
   */
  async reserve(id: string): Promise<boolean> {
    const taken = await this.claim('file', [UNDER_WAY + id]);
    if (taken.length > 0) return false;
    if (!(await this.foreign('file', id))) return true;
    await this.release(id);
    return false;
  }

  async release(id: string): Promise<void> {
    await this.forget('file', UNDER_WAY + id);
  }

  async owned(kind: ObjectKind, ids: readonly string[]): Promise<ReadonlySet<string>> {
    return this.ownsAll(kind) ? new Set(ids) : this.#noted(kind, ids);
  }

  async #noted(kind: ObjectKind, ids: readonly string[]): Promise<ReadonlySet<string>> {
    if (ids.length === 0) return new Set();
    const rows = await this.#tables.read(this.#owner.tenant, (tx) =>
      tx.list('object_owners', { where: { account: this.#account, kind, object_id: { in: ids } } }),
    );
    return new Set(rows.map((row) => row.object_id));
  }

  /**
   * How many entries of a kind the workspace has; with `after`, an id as `find` gives it, at most how many are older: the
   * provider's order is that of creation, which this ledger knows to within a few moments. Any number where all are its own.
   */
  async count(kind: ObjectKind, after: string | null = null): Promise<number> {
    if (this.ownsAll(kind)) return Number.POSITIVE_INFINITY;
    const where = { account: this.#account, kind } as const;
    return this.#tables.read(this.#owner.tenant, async (tx) => {
      if (after === null) return tx.count('object_owners', { where });
      const row = await tx.find('object_owners', { ...where, object_id: after });
      if (row === undefined) return 0;
      const older = await tx.count('object_owners', {
        where: { ...where, created_at: { lte: row.created_at + MOMENTS_MS } },
      });
      return older - 1;
    });
  }

  /** Notes new objects; an entry that is there already stays whose it is. Answers the ids that belong to others. */
  async claim(kind: ObjectKind, ids: readonly string[]): Promise<readonly string[]> {
    const wanted = [...new Set(ids)];
    if (wanted.length === 0) return [];
    const { organisationId } = this.#owner.tenant;
    const workspaceId = this.#workspace();
    const note = async () => {
      const foreign = await this.#note(kind, wanted, organisationId, workspaceId);
      return this.ownsAll(kind) ? [] : foreign;
    };
    return note().catch((error: unknown) => {
      // Another request noted the same one in between: the second look sees whose it is.
      if (error instanceof SluiceError && error.kind === 'conflict') return note();
      throw error;
    });
  }

  #workspace(): string {
    const { workspaceId } = this.#owner.tenant;
    if (workspaceId === null) throw new SluiceError('internal', 'Objects belong to a workspace.');
    return workspaceId;
  }

  #note(
    kind: ObjectKind,
    wanted: readonly string[],
    organisationId: string,
    workspaceId: string,
  ): Promise<readonly string[]> {
    return this.#tables.systemWrite(async (tx) => {
      const rows = await tx.list('object_owners', {
        where: { account: this.#account, kind, object_id: { in: wanted } },
      });
      const known = new Map(rows.map((row) => [row.object_id, row]));
      const foreign: string[] = [];
      for (const id of wanted) {
        const row = known.get(id);
        if (row !== undefined) {
          if (row.organisation_id !== organisationId || row.workspace_id !== workspaceId) foreign.push(id);
          continue;
        }
        await tx.insert('object_owners', {
          account: this.#account,
          kind,
          object_id: id,
          organisation_id: organisationId,
          workspace_id: workspaceId,
          provider: this.#provider,
          created_by: this.#owner.createdBy,
          created_at: this.#clock.now(),
        });
      }
      return foreign;
    });
  }

  /** As `claim` for what a job or batch of the workspace made; costs one read when all are known. */
  async learn(kind: ObjectKind, ids: readonly (string | null | undefined)[]): Promise<void> {
    const given = ids.filter((id): id is string => typeof id === 'string' && id !== '');
    if (given.length === 0) return;
    const known = await this.#noted(kind, given);
    const fresh = given.filter((id) => !known.has(id));
    if (fresh.length > 0) await this.claim(kind, fresh);
  }

  async forget(kind: ObjectKind, id: string): Promise<void> {
    await this.#tables.write(this.#owner.tenant, (tx) =>
      tx.remove('object_owners', { account: this.#account, kind, object_id: id }),
    );
  }
}

/** Provider object URIs and ARNs travel percent-encoded as one path segment, and may be written plainly. */
function spellingsOf(id: string): string[] {
  const out = new Set([id]);
  try {
    out.add(decodeURIComponent(id));
  } catch {
    // Not an encoded id.
  }
  try {
    out.add(encodeURIComponent(id));
  } catch {
    // Half a surrogate pair: no id at all, and not found.
  }
  return [...out];
}

/** The ledger of an account, or null where the account is the caller's own or lives inside the process. */
export function ownershipOf(
  parts: { readonly tables: Tables; readonly clock: Clock },
  account: Account,
  owner: Owner,
): ObjectOwnership | null {
  if (account.stored === null || account.provider.local !== undefined) return null;
  const { tables, clock } = parts;
  const { provider, stored } = account;
  const buckets = provider.training?.files?.objectUris === true;
  const alone = stored.shared ? NONE : buckets ? NO_FILES : ALL;
  return new ObjectOwnership({ tables, clock, account: stored.accountId, provider: provider.id, owner, alone });
}

export function ownerOf(call: Pick<ObjectCall, 'principal'>): Owner {
  return { tenant: tenantOf(call.principal), createdBy: call.principal.keyId };
}
