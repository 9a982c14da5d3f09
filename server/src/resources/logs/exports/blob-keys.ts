/** The names of what an export has in the blob store. */
import type { Row } from '../../../store/schema.ts';

type Export = Pick<Row<'log_exports'>, 'id' | 'runs' | 'parts'>;

export const partKey = ({ id, runs }: Export, at: number): string => `exp_${id}_${runs}_${at}`;

/** Of the file that parts were joined to. */
export const joinedKey = ({ id, runs }: Export): string => `exp_${id}_${runs}_file`;

/** The blobs that are the file, one after the other. */
export function fileKeys(row: Export): string[] {
  const [first] = row.parts;
  return first?.joined === undefined ? row.parts.map((_, at) => partKey(row, at)) : [joinedKey(row)];
}

/** The blobs that a run may have beside its file; one more than the parts that are noted. */
export function spareKeys(row: Export): string[] {
  const [first] = row.parts;
  const count = first?.joined ?? row.parts.length;
  return Array.from({ length: count + 1 }, (_, at) => partKey(row, at));
}
