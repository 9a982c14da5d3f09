/** The names of what records name by id. */
import type { TenantTx } from '../../store/ports.ts';

export interface Named {
  readonly id: string;
  readonly name: string;
  /** Of workspaces. */
  readonly slug?: string;
}

export type NameKind = 'api_key' | 'workspace' | 'user';
export type Names = Readonly<Record<NameKind, ReadonlyMap<string, Named>>>;

/** Ids of one statement. */
const PAGE = 500;

/** Names by id, of those that are still there. */
export async function namesOf(
  tx: Pick<TenantTx, 'list'>,
  ids: Readonly<Record<NameKind, Iterable<string>>>,
): Promise<Names> {
  return {
    api_key: await each(ids.api_key, async (some) =>
      (await tx.list('api_keys', { where: { id: { in: some } }, orderBy: [['id', 'asc']], limit: PAGE })).map(
        ({ id, name }) => ({ id, name }),
      ),
    ),
    workspace: await each(ids.workspace, async (some) =>
      (await tx.list('workspaces', { where: { id: { in: some } }, orderBy: [['id', 'asc']], limit: PAGE })).map(
        ({ id, name, slug }) => ({
          id,
          name,
          slug,
        }),
      ),
    ),
    user: await each(ids.user, async (some) =>
      (await tx.list('users', { where: { id: { in: some } }, orderBy: [['id', 'asc']], limit: PAGE })).map(
        ({ id, first_name, last_name }) => ({
          id,
          name: `${first_name} ${last_name}`.trim(),
        }),
      ),
    ),
  };
}

async function each(
  ids: Iterable<string>,
  read: (some: string[]) => Promise<Named[]>,
): Promise<ReadonlyMap<string, Named>> {
  const all = [...new Set(ids)];
  const found = new Map<string, Named>();
  for (let from = 0; from < all.length; from += PAGE) {
    for (const named of await read(all.slice(from, from + PAGE))) found.set(named.id, named);
  }
  return found;
}
