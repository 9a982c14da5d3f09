/** Headers of a download. */

/** Both ends included, as in HTTP. */
export interface Range {
  readonly start: number;
  readonly end: number;
}

/**
 * One `bytes` range of a body (RFC 9110 §14). Null means the whole body: no range was asked for, or one that may be
 * ignored (several, another unit, bad syntax).
 */
export function readRange(header: string | undefined, bytes: number): Range | 'unsatisfiable' | null {
  const match = /^bytes=(\d{0,15})-(\d{0,15})$/i.exec(header ?? '');
  const [, from = '', to = ''] = match ?? [];
  if (match === null || (from === '' && to === '')) return null;
  if (from === '') {
    const last = Math.min(Number(to), bytes);
    return last === 0 ? 'unsatisfiable' : { start: bytes - last, end: bytes - 1 };
  }
  const start = Number(from);
  if (to !== '' && Number(to) < start) return null;
  if (start >= bytes) return 'unsatisfiable';
  return { start, end: Math.min(to === '' ? bytes - 1 : Number(to), bytes - 1) };
}

/** A file to be saved, never shown (RFC 6266): the plain name for old clients, the true one encoded beside it. */
export function contentDisposition(filename: string): string {
  const plain = filename.replace(/[^\x20-\x7e]|["\\%]/g, '_');
  const encoded = encodeURIComponent(filename).replace(
    /['()*]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `attachment; filename="${plain}"${plain === filename ? '' : `; filename*=UTF-8''${encoded}`}`;
}
