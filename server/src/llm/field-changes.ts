/** What became of the fields of a body, by their paths; values are never told. */
import { isObject, type JsonObject } from '../kernel/json.ts';
import type { FieldChanges } from '../telemetry/decision-facts.ts';

/** Paths of each kind; a config that touches more names the first of them. */
const MAX_PATHS = 100;
/** Below this depth a change is one of the whole value. */
const MAX_DEPTH = 8;

export const UNCHANGED: FieldChanges = { added: [], dropped: [], overridden: [] };

interface Lists {
  readonly added: string[];
  readonly dropped: string[];
  readonly overridden: string[];
}

export function changesBetween(before: JsonObject, after: JsonObject): FieldChanges {
  const lists: Lists = { added: [], dropped: [], overridden: [] };
  compareObjects(before, after, '', lists, 0);
  return lists;
}

function note(list: string[], path: string): void {
  if (list.length < MAX_PATHS) list.push(path);
}

function compareObjects(before: JsonObject, after: JsonObject, path: string, lists: Lists, depth: number): void {
  const below = path === '' ? '' : `${path}.`;
  for (const [name, value] of Object.entries(before)) {
    if (!Object.hasOwn(after, name) || after[name] === undefined) note(lists.dropped, below + name);
    else compare(value, after[name], below + name, lists, depth + 1);
  }
  for (const name of Object.keys(after)) {
    if (!Object.hasOwn(before, name) && after[name] !== undefined) note(lists.added, below + name);
  }
}

function compare(before: unknown, after: unknown, path: string, lists: Lists, depth: number): void {
  if (before === after) return;
  if (depth < MAX_DEPTH) {
    if (isObject(before) && isObject(after)) {
      compareObjects(before, after, path, lists, depth);
      return;
    }
    if (Array.isArray(before) && Array.isArray(after) && before.length === after.length) {
      for (const [i, value] of before.entries()) compare(value, after[i], `${path}[${i}]`, lists, depth + 1);
      return;
    }
  }
  if (JSON.stringify(before) !== JSON.stringify(after)) note(lists.overridden, path);
}
