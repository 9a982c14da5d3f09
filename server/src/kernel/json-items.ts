import type { JsonValue } from './json.ts';

/** Items of all lists of an administration body together: what a schema makes of each costs many times its bytes. */
export const MAX_ITEMS = 50_000;

/** How many items the lists within a value have, on all levels. */
export function itemsOf(value: JsonValue | undefined): number {
  if (typeof value !== 'object' || value === null) return 0;
  let items = Array.isArray(value) ? value.length : 0;
  for (const inner of Object.values(value)) items += itemsOf(inner);
  return items;
}
