/**
 * What actions need beyond their transaction: calls to others, records, mails. Who defines an area defines its services;
 * `compose` provides them; an action names those it needs, and the handler knows none of them.
 */
import { SluiceError } from '../kernel/errors.ts';

/** What one composition has provided. */
export class Services {
  /** Returns itself, so that calls can be chained. */
  provide<T>(service: Service<T>, made: T): this {
    service.provide(this, made);
    return this;
  }
}

/** A kind of service, whose type goes with it. */
export class Service<T> {
  readonly #what: string;
  readonly #made = new WeakMap<Services, T>();

  /** @param what ends the sentence "This node has no …" */
  constructor(what: string) {
    this.#what = what;
  }

  provide(services: Services, made: T): void {
    this.#made.set(services, made);
  }

  /** Null where this node has none. */
  find(services: Services): T | null {
    return this.#made.get(services) ?? null;
  }

  /** Throws `unavailable` where this node has none. */
  from(services: Services): T {
    const made = this.#made.get(services);
    if (made === undefined) throw new SluiceError('unavailable', `This node has no ${this.#what}.`);
    return made;
  }
}

/** The services of an action, under the names by which it uses them. */
export type Needs = Readonly<Record<string, Service<unknown>>>;

/** The services themselves. `signal` is aborted when the client has gone. */
export type Given<N extends Needs> = { readonly [K in keyof N]: N[K] extends Service<infer T> ? T : never } & {
  readonly signal: AbortSignal;
};

/** What is done with services, outside any transaction. */
export class Work<R> {
  readonly #run: (services: Services, signal: AbortSignal) => Promise<R>;

  constructor(run: (services: Services, signal: AbortSignal) => Promise<R>) {
    this.#run = run;
  }

  /** Throws `unavailable` for the first service that this node does not have. */
  async run(services: Services, signal: AbortSignal): Promise<R> {
    return this.#run(services, signal);
  }
}

/** Work that needs these services. */
export function withServices<N extends Needs, R>(needs: N, work: (given: Given<N>) => Promise<R>): Work<R> {
  return new Work((services, signal) => {
    const given = Object.entries(needs).map(([name, service]) => [name, service.from(services)]);
    // What `needs` maps to is lost in `Object.entries`.
    return work({ ...Object.fromEntries(given), signal } as Given<N>);
  });
}

/** The second phase of an action: its answer is made when its transaction has ended. */
export class AfterCommit<R> {
  readonly work: Work<R>;

  constructor(work: Work<R>) {
    this.work = work;
  }
}

/** For reads that take long or ask others: `run` returns this, and what `work` answers is the answer of the action. */
export function afterCommit<N extends Needs, R>(needs: N, work: (given: Given<N>) => Promise<R>): AfterCommit<R> {
  return new AfterCommit(withServices(needs, work));
}
