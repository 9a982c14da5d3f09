/** Which log files become one. */
import type { LogFile } from './catalog.ts';

export const MERGE_FILES = 8;
const MERGE_RECORDS = 2_000_000;
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;

/** The next files of a list that all nodes share which become one; null: none. */
export function nextOfAll(
  list: readonly LogFile[],
  now: number,
): { readonly day: number; readonly files: readonly LogFile[] } | null {
  for (const [day, files] of byDay(list.filter(({ place }) => place === 'store'))) {
    const over = now >= (day + 1) * DAY_MS + HOUR_MS;
    const some = over ? someOf(files) : ofOneLevel(files);
    if (some.length > 1) return { day, files: some };
  }
  return null;
}

/** The files that can be read, by days since the epoch. */
export function byDay(files: readonly LogFile[]): Map<number, LogFile[]> {
  const days = new Map<number, LogFile[]>();
  for (const file of files) {
    if (file.damaged) continue;
    const of = days.get(file.day);
    if (of === undefined) days.set(file.day, [file]);
    else of.push(file);
  }
  return days;
}

/** Eight files or more of one level; none where no level has so many. */
function ofOneLevel(files: readonly LogFile[]): LogFile[] {
  const levels = Map.groupBy(files, ({ level }) => level);
  for (const level of [...levels.keys()].sort((one, other) => one - other)) {
    const some = someOf(levels.get(level) ?? []);
    if (some.length >= MERGE_FILES) return some;
  }
  return [];
}

/** The smallest files that fit into one. */
export function someOf(files: readonly LogFile[]): LogFile[] {
  let sum = 0;
  return [...files]
    .sort((one, other) => one.records - other.records)
    .filter(({ records }) => {
      sum += records;
      return sum <= MERGE_RECORDS;
    });
}
