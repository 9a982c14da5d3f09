/** Distance of two short texts: how many characters to add, take out or replace, and neighbours to swap. */
export function editDistance(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      const least = Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, (row[j - 1] ?? 0) + (same ? 0 : 1));
      const swapped = !same && i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      next.push(swapped ? Math.min(least, (before[j - 2] ?? 0) + 1) : least);
    }
    [before, row] = [row, next];
  }
  return row[b.length] ?? 0;
}

/** Names compared at most, so that a misspelt one costs little in a place with thousands. */
const COMPARED = 500;

/**
 * The known name that a wrong one was most likely meant to be, in any case of letters, or null: one that differs in few
 * characters, or one that begins or ends with it.
 */
export function nearest(wrong: string, known: Iterable<string>): string | null {
  const wanted = wrong.toLowerCase();
  if (wanted === '' || wanted.length > 80) return null;
  let best: string | null = null;
  let least = Math.max(1, Math.floor(wanted.length / 3)) + 1;
  let compared = 0;
  for (const name of known) {
    if (++compared > COMPARED) break;
    const lower = name.toLowerCase();
    const part = wanted.length >= 3 && (lower.startsWith(wanted) || lower.endsWith(wanted));
    if (!part && Math.abs(lower.length - wanted.length) >= least) continue;
    const distance = part ? Math.min(1, lower.length - wanted.length) : editDistance(wanted, lower);
    if (distance < least) [best, least] = [name, distance];
  }
  return best;
}
