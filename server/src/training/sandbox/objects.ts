/** The rows behind the sandbox's files, jobs and batches. */
import { createHash } from 'node:crypto';
import { SluiceError } from '../../kernel/errors.ts';
import type { Page, PageRequest } from '../../operations/training.ts';
import type { AdapterContext } from '../../providers/training.ts';
import type { Tables, TenantContext, TenantTx, Where } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';

export type Kind = Row<'sandbox_objects'>['kind'];

/** A row with its data as one kind keeps it. */
export interface Stored<D> {
  readonly id: string;
  readonly organisationId: string;
  /** Milliseconds since the epoch. */
  readonly createdAt: number;
  readonly data: D;
}

const NAMES: Readonly<Record<Kind, string>> = { file: 'file', batch: 'batch', job: 'fine-tuning job' };

export const MARK = { system_fingerprint: 'sandbox' } as const;

export function missingObject(kind: Kind, id: string): SluiceError {
  return new SluiceError('not_found', `No ${NAMES[kind]} ${JSON.stringify(id.slice(0, 100))} exists in this sandbox.`);
}

/** Unix seconds of a time in milliseconds. */
export const seconds = (ms: number): number => Math.floor(ms / 1000);

/**
 * A short id of lower-case hexadecimal digits. A context that gives the same uuid again, because a call is repeated whose
 * process was killed, gets the same id again for the same thing.
 */
export const shortId = (context: Pick<AdapterContext, 'uuid'>, thing = ''): string =>
  createHash('sha256').update(`${context.uuid()} ${thing}`).digest('hex').slice(0, 24);

/** Objects of one kind in one workspace. */
export class Objects<D extends object> {
  readonly #tables: Tables;
  readonly #tenant: TenantContext;
  readonly #workspaceId: string;
  readonly #kind: Kind;

  constructor(tables: Tables, tenant: TenantContext, kind: Kind) {
    if (tenant.workspaceId === null) throw new SluiceError('internal', 'The sandbox keeps objects per workspace.');
    this.#tables = tables;
    this.#tenant = tenant;
    this.#workspaceId = tenant.workspaceId;
    this.#kind = kind;
  }

  /** Adds an object; one with this id stays as it is. */
  add(id: string, data: D, createdAt: number): Promise<Stored<D>> {
    const { organisationId } = this.#tenant;
    return this.#tables.write(this.#tenant, async (tx) => {
      const known = await this.#row(tx, id);
      if (known !== undefined) return this.#stored(known);
      await tx.insert('sandbox_objects', {
        id,
        organisation_id: organisationId,
        workspace_id: this.#workspaceId,
        kind: this.#kind,
        data: data as Record<string, unknown>,
        created_at: createdAt,
      });
      return { id, organisationId, createdAt, data };
    });
  }

  async find(id: string): Promise<Stored<D> | null> {
    const row = await this.#tables.read(this.#tenant, (tx) => this.#row(tx, id));
    return row === undefined ? null : this.#stored(row);
  }

  async get(id: string): Promise<Stored<D>> {
    const found = await this.find(id);
    if (found === null) throw missingObject(this.#kind, id);
    return found;
  }

  /** Changes an object by what it holds at that moment; `change` may refuse by throwing. */
  change(id: string, change: (stored: Stored<D>) => D): Promise<Stored<D>> {
    return this.#tables.write(this.#tenant, async (tx) => {
      const row = await this.#row(tx, id);
      if (row === undefined) throw missingObject(this.#kind, id);
      const stored = this.#stored(row);
      const data = change(stored);
      if (data === stored.data) return stored;
      await tx.update('sandbox_objects', { id }, { data: data as Record<string, unknown> });
      return { ...stored, data };
    });
  }

  async remove(id: string): Promise<boolean> {
    return (await this.#tables.write(this.#tenant, (tx) => tx.remove('sandbox_objects', this.#where(id)))) > 0;
  }

  /** All of them, newest first. */
  async all(): Promise<Stored<D>[]> {
    const rows = await this.#tables.read(this.#tenant, (tx) =>
      tx.list('sandbox_objects', {
        where: { kind: this.#kind },
        orderBy: [
          ['created_at', 'desc'],
          ['id', 'desc'],
        ],
      }),
    );
    return rows.map((row) => this.#stored(row));
  }

  async page(page: PageRequest): Promise<Page<Stored<D>>> {
    const rows = await this.#tables.read(this.#tenant, async (tx) => {
      const last = page.after === null ? null : await this.#row(tx, page.after);
      if (last === undefined) throw unknownAfter(page.after ?? '');
      const older: Where<'sandbox_objects'>[] =
        last === null
          ? []
          : [{ created_at: { lt: last.created_at } }, { created_at: last.created_at, id: { lt: last.id } }];
      return tx.list('sandbox_objects', {
        where: { kind: this.#kind },
        ...(older.length === 0 ? {} : { anyOf: older }),
        orderBy: [
          ['created_at', 'desc'],
          ['id', 'desc'],
        ],
        limit: page.limit + 1,
      });
    });
    return { data: rows.slice(0, page.limit).map((row) => this.#stored(row)), has_more: rows.length > page.limit };
  }

  #where(id: string): Where<'sandbox_objects'> {
    return { id, kind: this.#kind };
  }

  #row(tx: TenantTx, id: string): Promise<Row<'sandbox_objects'> | undefined> {
    return tx.find('sandbox_objects', this.#where(id));
  }

  #stored(row: Row<'sandbox_objects'>): Stored<D> {
    return { id: row.id, organisationId: row.organisation_id, createdAt: row.created_at, data: row.data as D };
  }
}

function unknownAfter(id: string): SluiceError {
  return new SluiceError(
    'validation',
    `after must be the id of the last item of the page before; ${JSON.stringify(id.slice(0, 100))} is not known.`,
    { param: 'after' },
  );
}

/** A page of a list that is made when it is read; `list` is newest first. */
export function pageOf<T extends { readonly id: string }>(list: readonly T[], page: PageRequest): Page<T> {
  const at = page.after === null ? -1 : list.findIndex((item) => item.id === page.after);
  if (page.after !== null && at === -1) throw unknownAfter(page.after);
  const data = list.slice(at + 1, at + 1 + page.limit);
  return { data, has_more: list.length > at + 1 + data.length };
}
