/** Secret references by the names that mappings know them by, and who names them. */
import type { TenantTx } from '../../store/ports.ts';
import type { Row, SecretMapping } from '../../store/schema.ts';
import { isUuid } from '../fields.ts';
import type { Reference, ReferredTo, Refers } from '../references.ts';

export type SecretReference = Row<'secret_references'>;

/** Active references by each of `names`: ids or slugs. Names of nothing are left out. */
export async function secretReferencesNamed(
  tx: TenantTx,
  names: readonly string[],
): Promise<ReadonlyMap<string, SecretReference>> {
  const found = new Map<string, SecretReference>();
  if (names.length === 0) return found;
  const status = 'active' as const;
  const ids = names.filter(isUuid).map((name) => name.toLowerCase());
  const bySlug = await tx.list('secret_references', { where: { slug: { in: [...names] }, status } });
  const byId = ids.length === 0 ? [] : await tx.list('secret_references', { where: { id: { in: ids }, status } });
  const rows = new Map([
    ...bySlug.map((row) => [row.slug, row] as const),
    ...byId.map((row) => [row.id, row] as const),
  ]);
  for (const name of names) {
    const row = rows.get(name) ?? rows.get(name.toLowerCase());
    if (row !== undefined) found.set(name, row);
  }
  return found;
}

/** Whether a workspace may use a reference; null: the organisation, which may use all. */
export const isOpenToWorkspace = (
  { allowed_workspaces: allowed }: Pick<SecretReference, 'allowed_workspaces'>,
  workspaceId: string | null,
): boolean => workspaceId === null || allowed === null || allowed.includes(workspaceId);

/** Names of `names` that a workspace cannot use; null: the organisation. */
export async function missingSecretReferences(
  tx: TenantTx,
  workspaceId: string | null,
  names: readonly string[],
): Promise<readonly string[]> {
  const found = await secretReferencesNamed(tx, names);
  return names.filter((name) => {
    const row = found.get(name);
    return row === undefined || !isOpenToWorkspace(row, workspaceId);
  });
}

const PAGE = 200;

/** That the rows of a table map fields to secret references. */
export const mapsSecrets = (table: 'integrations' | 'providers' | 'virtual_keys', kind: string): Refers => ({
  to: 'secret_references',
  find: async (tx, to) => {
    const found: Reference[] = [];
    for (let after = ''; ; ) {
      const where = { id: { gt: after }, status: { not: 'archived' } } as const;
      const rows: readonly { id: string; slug: string; secret_mappings: SecretMapping[] | null }[] = await tx.list(
        table,
        {
          where,
          orderBy: [['id', 'asc']],
          limit: PAGE,
        },
      );
      for (const { id, slug, secret_mappings: mappings } of rows) {
        if (mappings?.some((mapping) => isNameOf(mapping.secret_reference_id, to)))
          found.push({ kind, id, name: slug });
      }
      const last = rows.at(-1);
      if (rows.length < PAGE || last === undefined) return found;
      after = last.id;
    }
  },
});

const isNameOf = (name: string, { id, slug }: ReferredTo): boolean => name === slug || name.toLowerCase() === id;
