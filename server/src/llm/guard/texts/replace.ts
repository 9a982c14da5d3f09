/** Puts changed texts back: a copy of the body that shares what is unchanged. */
import type { Replacement } from '../../../guardrails/check.ts';
import { parseExact } from '../../../kernel/json-exact.ts';
import { type Frame, isRawNumber, type Place, type SaidPart } from './walk.ts';

/** A change that cannot be made: what was to be replaced would go out unchanged. The message is a sentence for the caller. */
export class ReplacementError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'ReplacementError';
  }
}

/** The last word for each path. */
export const byPath = (replacements: readonly Replacement[]): Map<string, string> =>
  new Map(replacements.map(({ path, text }) => [path, text]));

/** What of `texts` changes something; throws for a path that is no part's. */
export function changesOf(
  parts: readonly SaidPart[],
  places: readonly Place[],
  texts: ReadonlyMap<string, string>,
): { readonly place: Place; readonly text: string }[] {
  const out: { place: Place; text: string }[] = [];
  const found = new Set<string>();
  for (let i = 0; i < parts.length; i++) {
    const part = parts[i];
    const place = places[i];
    if (part === undefined || place === undefined || part.unreadable !== undefined) continue;
    const text = texts.get(part.path);
    if (text === undefined) continue;
    found.add(part.path);
    if (text !== part.text) out.push({ place, text });
  }
  if (found.size < texts.size) {
    throw new ReplacementError('A check replaces a text that is not there.');
  }
  return out;
}

interface Edit {
  readonly frame: Frame;
  children: Frame[];
  puts: ((current: string) => string)[];
  name: string | null;
  /** Where it stands after edits above and before those below. */
  value: unknown;
  dropped: boolean;
}

/** The root's value with the changes made. */
export function replaced(root: Frame, changes: readonly { readonly place: Place; readonly text: string }[]): unknown {
  if (changes.length === 0) return root.value;
  const edits = new Map<Frame, Edit>();
  const editOf = (frame: Frame): Edit => {
    let edit = edits.get(frame);
    if (edit !== undefined) return edit;
    edit = { frame, children: [], puts: [], name: null, value: undefined, dropped: false };
    const first = edit;
    edits.set(frame, edit);
    for (let { parent } = frame, below = frame; parent !== null; below = parent, parent = parent.parent) {
      const known = edits.get(parent);
      if (known !== undefined) {
        known.children.push(below);
        break;
      }
      edits.set(parent, { frame: parent, children: [below], puts: [], name: null, value: undefined, dropped: false });
    }
    return first;
  };
  for (const { place, text } of changes) {
    const { frame, face } = place;
    if (face === null) editOf(frame).name = text;
    else editOf(frame).puts.push((current) => face.put(current, text));
  }
  const ordered = [...edits.values()].sort((a, b) => a.frame.depth - b.frame.depth);
  for (const edit of ordered) begin(edit, edits);
  for (let i = ordered.length - 1; i >= 0; i--) {
    const edit = ordered[i];
    if (edit !== undefined) finish(edit, edits);
  }
  return edits.get(root)?.value;
}

/** From the root down: what a value is once the texts around it have changed. */
function begin(edit: Edit, edits: ReadonlyMap<Frame, Edit>): void {
  const { frame, puts } = edit;
  const above = frame.parent === null ? undefined : edits.get(frame.parent);
  if (above === undefined) edit.value = frame.value;
  else if (above.dropped) edit.dropped = true;
  else if (frame.json) readInner(edit, above);
  else edit.value = (above.value as Record<string | number, unknown>)[frame.key];
  if (edit.dropped) return;
  if (edit.value === undefined) {
    if (!isInside(frame, edits))
      throw new ReplacementError('A check replaces a text that another replacement has removed.');
    edit.dropped = true;
    return;
  }
  for (const put of puts) edit.value = put(textOf(edit.value));
}

const textOf = (value: unknown): string =>
  isRawNumber(value) ? value.rawJSON : typeof value === 'string' ? value : String(value);

/**
 * A text that was changed as a whole and in the JSON it holds. Without escapes its own replacement covers what is inside;
 * with them it may not, and then both must be possible.
 */
function readInner(edit: Edit, above: Edit): void {
  try {
    edit.value = parseExact(String(above.value));
  } catch {
    if (String(above.frame.value).includes('\\')) {
      throw new ReplacementError('Two replacements of the same tool arguments or JSON text contradict each other.');
    }
    edit.dropped = true;
  }
}

/** Whether the frame lies in a text without escapes that was changed as a whole. */
function isInside(frame: Frame, edits: ReadonlyMap<Frame, Edit>): boolean {
  for (let at: Frame | null = frame; at !== null; at = at.parent) {
    if (!at.json || at.parent === null) continue;
    const puts = edits.get(at.parent)?.puts.length ?? 0;
    if (puts > 0 && !String(at.parent.value).includes('\\')) return true;
  }
  return false;
}

/** From the leaves up. */
function finish(edit: Edit, edits: ReadonlyMap<Frame, Edit>): void {
  if (edit.dropped || edit.children.length === 0) return;
  const { value } = edit;
  const done = edit.children.map((frame) => edits.get(frame)).filter((inner) => inner !== undefined && !inner.dropped);
  if (done.length === 0) return;
  if (typeof value === 'string') {
    edit.value = JSON.stringify(done[0]?.value);
  } else if (Array.isArray(value)) {
    const copy: unknown[] = value.slice();
    for (const inner of done) if (inner !== undefined) copy[Number(inner.frame.key)] = inner.value;
    edit.value = copy;
  } else edit.value = members(value as Record<string, unknown>, done as readonly Edit[]);
}

function members(object: Record<string, unknown>, edits: readonly Edit[]): unknown {
  const values = new Map<string, unknown>();
  const names = new Map<string, string>();
  for (const { frame, name, value } of edits) {
    const key = String(frame.key);
    if (name === null) values.set(key, value);
    else names.set(key, name);
  }
  const taken = new Set(Object.keys(object));
  const entries: [string, unknown][] = [];
  for (const [key, value] of Object.entries(object)) {
    let next = names.get(key) ?? key;
    // Two names may become one; neither value may get lost.
    if (next !== key) {
      for (let n = 2; taken.has(next); n++) next = `${names.get(key)}_${n}`;
      taken.add(next);
    }
    // The tokens that a text was made of would tell what it was.
    if (key === 'logprobs' && typeof value === 'object' && value !== null && !values.has(key)) {
      entries.push([next, Array.isArray(value) ? [] : null]);
    } else entries.push([next, values.has(key) ? values.get(key) : value]);
  }
  return Object.fromEntries(entries);
}
