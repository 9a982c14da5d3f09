/** How long the parts of a request took, milliseconds, for its record; null where there was none of it. */
export class RequestTimes {
  /** Reading the body, and finding in it what is looked for. */
  parse: number | null = null;
  /** Before the first call, less the reading and the cache. */
  pre: number | null = null;
  /** Looking into the cache of answers, for all targets. */
  cache: number | null = null;
  /** Calls, each until its last byte had come. */
  upstream = 0;
  /** When the last answer had come, since the arrival of the request. */
  answered: number | null = null;

  /** A call begins, `at` milliseconds after the arrival. */
  call(at: number): void {
    this.pre ??= Math.max(0, at - (this.parse ?? 0) - (this.cache ?? 0));
  }

  /** The call that began then had its last byte at `to`. */
  callEnded(from: number, to: number): void {
    this.upstream += to - from;
    this.answered = to;
  }

  /** The cache was asked; `found`: it gave the answer. */
  askedCache(from: number, to: number, found: boolean): void {
    this.cache = (this.cache ?? 0) + to - from;
    if (found) this.answered = to;
  }
}
