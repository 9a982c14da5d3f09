/** A PUT of a list: what is there becomes what was asked for. */
import type { TenantTx, Where } from '../../store/ports.ts';
import type { Row, TenantTable } from '../../store/schema.ts';

/** What an upsert has done, in numbers of rows. */
export interface Upserted {
  readonly added: number;
  readonly updated: number;
  readonly removed: number;
}

/**
 * Inserts, updates and removes rows of `table` until those that were there are those that are wanted.
 *
 * @param key columns that tell one row from another
 * @param wanted whole rows; one that is there already may be left out of the write by `same`
 * @param others what becomes of rows that are not wanted
 */
export async function upsert<N extends TenantTable>(
  tx: TenantTx,
  table: N,
  key: readonly (keyof Row<N> & string)[],
  existing: readonly Row<N>[],
  wanted: readonly Row<N>[],
  { others, same }: { readonly others: 'stay' | 'go'; readonly same?: (before: Row<N>, after: Row<N>) => boolean },
): Promise<Upserted> {
  const nameOf = (row: Row<N>) => JSON.stringify(key.map((column) => row[column]));
  const whereOf = (row: Row<N>) => Object.fromEntries(key.map((column) => [column, row[column]])) as Where<N>;
  const before = new Map(existing.map((row) => [nameOf(row), row]));
  const names = new Set(wanted.map(nameOf));
  const gone = others === 'go' ? existing.filter((row) => !names.has(nameOf(row))) : [];
  for (const row of gone) await tx.remove(table, whereOf(row));
  let [added, updated] = [0, 0];
  for (const row of wanted) {
    const old = before.get(nameOf(row));
    if (old === undefined) {
      await tx.insert(table, row);
      added += 1;
    } else if (same?.(old, row) !== true) {
      await tx.update(table, whereOf(row), row);
      updated += 1;
    }
  }
  return { added, updated, removed: gone.length };
}
