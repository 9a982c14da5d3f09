/** Whether a text has a control character (C0, DEL, C1): it could be read as the end of a line or a field. */
export function hasControls(text: string): boolean {
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return true;
  }
  return false;
}
