/**
 * Several processes share a port and one keeper: the first has it, the others ask that one through the primary process, which
 * passes messages on and reads none.
 */
import type { Clock } from '../kernel/clock.ts';
import { KeeperClient, type KeeperHealth, keeperAway } from './keeper-client.ts';
import { Channel, type Message } from './messages.ts';

/** To the primary process, or from it to one worker. */
export interface ProcessChannel {
  send(message: unknown): void;
  onMessage(receive: (message: unknown) => void): void;
}

type Passed =
  /** The sender has the keeper, and answers. */
  | { readonly sluice: 'keeper.here' }
  | { readonly sluice: 'keeper.ask'; readonly worker: number; readonly message: Message }
  | { readonly sluice: 'keeper.answer'; readonly worker: number; readonly message: Message }
  | { readonly sluice: 'keeper.away' };

/** A question has five seconds in the keeper, and may have to wait for its start. */
const ANSWER_MS = 15_000;
const AGAIN_S = 2;

function passedOf(message: unknown): Passed | null {
  const ours = typeof message === 'object' && message !== null && 'sluice' in message;
  return ours && String(message.sluice).startsWith('keeper.') ? (message as Passed) : null;
}

/** The primary's part: passes questions to the worker that has the keeper, and its answers back. */
export class KeeperRelay {
  readonly #workers = new Map<number, ProcessChannel>();
  #keeper: number | null = null;

  joined(index: number, channel: ProcessChannel): void {
    this.#workers.set(index, channel);
    channel.onMessage((received) => {
      const passed = passedOf(received);
      if (passed?.sluice === 'keeper.here') this.#keeper = index;
      else if (passed?.sluice === 'keeper.answer') this.#workers.get(passed.worker)?.send(passed);
      else if (passed?.sluice === 'keeper.ask') {
        const keeper = this.#keeper === null ? undefined : this.#workers.get(this.#keeper);
        if (keeper === undefined) channel.send({ sluice: 'keeper.away' } satisfies Passed);
        else keeper.send({ ...passed, worker: index });
      }
    });
  }

  left(index: number): void {
    this.#workers.delete(index);
    if (this.#keeper !== index) return;
    this.#keeper = null;
    for (const channel of this.#workers.values()) channel.send({ sluice: 'keeper.away' } satisfies Passed);
  }
}

/** The part of the worker that has the keeper: answers what the others ask. */
export function serveKeeper(primary: ProcessChannel, keeper: KeeperClient): void {
  const channels = new Map<number, Channel>();
  const answers = {
    ask: (name: string, args: readonly unknown[]) => keeper.ask(name, ...args),
    wake: () => keeper.wake(),
    health: () => keeper.health(),
  };
  primary.onMessage((received) => {
    const passed = passedOf(received);
    if (passed?.sluice !== 'keeper.ask') return;
    const { worker, message } = passed;
    const channel =
      channels.get(worker) ??
      new Channel((answer) => primary.send({ sluice: 'keeper.answer', worker, message: answer }), answers);
    channels.set(worker, channel);
    void channel.receive(message);
  });
  primary.send({ sluice: 'keeper.here' } satisfies Passed);
}

/** The keeper as a worker sees it that has it not. */
export class WorkerKeeper extends KeeperClient {
  readonly #channel: Channel;
  readonly #clock: Clock;

  constructor(primary: ProcessChannel, clock: Clock) {
    super();
    this.#clock = clock;
    this.#channel = new Channel((message) => primary.send({ sluice: 'keeper.ask', worker: 0, message }), {});
    primary.onMessage((received) => {
      const passed = passedOf(received);
      if (passed?.sluice === 'keeper.away') this.#channel.end(keeperAway(AGAIN_S));
      else if (passed?.sluice === 'keeper.answer') void this.#channel.receive(passed.message);
    });
  }

  ask(name: string, ...args: readonly unknown[]): Promise<unknown> {
    return this.#call('ask', name, args);
  }

  wake(): void {
    this.#call('wake').catch(() => undefined);
  }

  async health(): Promise<KeeperHealth> {
    return (await this.#call('health')) as KeeperHealth;
  }

  async #call(name: string, ...args: readonly unknown[]): Promise<unknown> {
    let cancel = () => {};
    const late = new Promise<never>((_, reject) => {
      cancel = this.#clock.after(ANSWER_MS, () => reject(keeperAway(AGAIN_S)));
    });
    try {
      return await Promise.race([this.#channel.call(name, ...args), late]);
    } finally {
      cancel();
    }
  }
}
