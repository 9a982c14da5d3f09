/** What the readers of pictures share: what is found, how much is read, and text in binary data. */

export const MAX_TEXTS = 64;
export const MAX_TEXT = 64 * 1024;
export const MAX_CHUNKS = 10_000;

/** Bytes `[start, end)` of a whole chunk or segment, and the text in it. */
export interface Place {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

export interface Found {
  readonly kind: 'png' | 'jpeg' | 'webp' | 'gif';
  readonly places: readonly Place[];
  /** There is more than was read. */
  readonly more: boolean;
}

/** A comment: UTF-8, or the single bytes of older writers. */
export const commentText = (data: Buffer): string => {
  const text = data.toString('utf8');
  return (text.includes('\ufffd') ? data.toString('latin1') : text).replaceAll('\0', '\n');
};

/** Runs of characters in binary data, UTF-16 ones too. */
export function runs(data: Buffer): string {
  const text = data.toString('latin1').replace(/([\x20-\x7e])\0/g, '$1');
  return (text.match(/[\x20-\x7e]{4,}/g) ?? []).join('\n');
}
