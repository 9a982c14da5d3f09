/** Something that holds a resource. `close` must be safe to call twice. */
export interface Closable {
  close(): Promise<void>;
}

/** Closes what was opened, newest first; one failure does not stop the rest. */
export class Lifecycle implements Closable {
  #open: { name: string; part: Closable }[] = [];

  own<T extends Closable>(name: string, part: T): T {
    this.#open.push({ name, part });
    return part;
  }

  async close(): Promise<void> {
    const failures: unknown[] = [];
    for (const { name, part } of this.#open.splice(0).reverse()) {
      try {
        await part.close();
      } catch (error) {
        failures.push(new Error(`closing ${name} failed`, { cause: error }));
      }
    }
    if (failures.length > 0) throw new AggregateError(failures, 'some parts did not close cleanly');
  }
}
