/** Log files on their way to a store away from this machine. */
import type { LogFile } from './catalog.ts';

/** A store of records away from this machine. */
export interface Elsewhere {
  /** Resolves when all records of a file are there. The same file is sent again after a failure. */
  readonly send: (file: LogFile, path: string) => Promise<void>;
  /** Whether it takes no files, as far as is known. */
  readonly isAway: () => boolean;
}

export interface SenderOptions {
  readonly elsewhere: Elsewhere;
  /** Those that are here, and can be read. */
  readonly files: () => readonly LogFile[];
  readonly pathOf: (id: string) => string;
  /** A file is there, and not needed here any more. */
  readonly sent: (file: LogFile) => Promise<void>;
  /** A file was not sent although the store is not away: perhaps it cannot be read. */
  readonly failed: () => Promise<unknown>;
}

export class Sender {
  readonly #options: SenderOptions;
  #sending: Promise<void> | null = null;

  constructor(options: SenderOptions) {
    this.#options = options;
  }

  /** Whether it takes no files, as far as is known. */
  get isAway(): boolean {
    return this.#options.elsewhere.isAway();
  }

  /** Sends all files, the newest first. Rejects with the first failure; the others are tried all the same. */
  send(): Promise<void> {
    this.#sending ??= this.#send().finally(() => {
      this.#sending = null;
    });
    return this.#sending;
  }

  async #send(): Promise<void> {
    const { elsewhere, files, pathOf, sent, failed } = this.#options;
    const tried = new Set<string>();
    let failure: unknown = null;
    for (;;) {
      const [file] = files()
        .filter(({ id }) => !tried.has(id))
        .sort((one, other) => other.maxTime - one.maxTime);
      if (file === undefined) break;
      tried.add(file.id);
      try {
        await elsewhere.send(file, pathOf(file.id));
        await sent(file);
      } catch (error) {
        failure ??= error;
        if (elsewhere.isAway()) break;
        await failed();
      }
    }
    if (failure !== null) throw failure;
  }
}
