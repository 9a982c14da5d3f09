/** Where a command may write: whole lines, at once, so that nothing is lost when the process ends right after. */
export interface Output {
  out(text: string): void;
  err(text: string): void;
}
