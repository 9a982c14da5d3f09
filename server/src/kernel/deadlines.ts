import type { Clock } from './clock.ts';

const TICK_MS = 20;
const SLOTS = 1024;

/** One deadline; belongs to the `Deadlines` that made it. */
export interface Deadline {
  /** Starts over with `ms` from now. */
  reset(ms: number): void;
  cancel(): void;
}

class Node implements Deadline {
  readonly owner: Deadlines;
  readonly fn: () => void;
  /** Tick at which to fire; may move on without the node changing its slot. */
  due = 0;
  slot = -1;
  /** Taken off the wheel to be called in this turn; cleared when a neighbour's call cancels or resets it first. */
  firing = false;
  next: Node | null = null;
  previous: Node | null = null;

  constructor(owner: Deadlines, fn: () => void) {
    this.owner = owner;
    this.fn = fn;
  }

  reset(ms: number): void {
    this.owner.arm(this, ms);
  }

  cancel(): void {
    this.owner.remove(this);
  }
}

/**
 * Many deadlines on one timer: a wheel of 20 ms slots. Arming and cancelling cost tens of nanoseconds instead of a
 * timer each, and pushing a deadline back (each chunk of a stream does) is one assignment. A deadline fires up to
 * 40 ms late, never early. The wheel stands still while it is empty and never keeps the process alive.
 */
export class Deadlines {
  readonly #clock: Clock;
  readonly #slots: (Node | null)[] = new Array(SLOTS).fill(null);
  #tick = 0;
  #count = 0;
  #stop: (() => void) | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Calls `fn` once after `ms` unless reset or cancelled before. */
  start(ms: number, fn: () => void): Deadline {
    const node = new Node(this, fn);
    this.arm(node, ms);
    return node;
  }

  get size(): number {
    return this.#count;
  }

  /** For the deadline's own use. */
  arm(node: Node, ms: number): void {
    if (this.#stop === null) this.#run();
    node.firing = false;
    const due = this.#tick + Math.ceil(ms / TICK_MS) + 1;
    if (node.slot >= 0) {
      // Later than before: the node stays where it is and is moved when its slot comes by.
      if (due >= node.due) {
        node.due = due;
        return;
      }
      this.remove(node);
    }
    node.due = due;
    this.#insert(node);
  }

  /** For the deadline's own use. */
  remove(node: Node): void {
    node.firing = false;
    if (node.slot < 0) return;
    if (node.previous) node.previous.next = node.next;
    else this.#slots[node.slot] = node.next;
    if (node.next) node.next.previous = node.previous;
    node.next = null;
    node.previous = null;
    node.slot = -1;
    this.#count--;
  }

  #insert(node: Node): void {
    // Beyond one turn of the wheel the node waits in the last slot and is placed again from there.
    const slot = Math.min(node.due, this.#tick + SLOTS - 1) % SLOTS;
    const head = this.#slots[slot] ?? null;
    node.slot = slot;
    node.next = head;
    if (head) head.previous = node;
    this.#slots[slot] = node;
    this.#count++;
  }

  #run(): void {
    this.#tick = Math.floor(this.#clock.monotonic() / TICK_MS);
    this.#stop = this.#clock.after(TICK_MS, this.#onTick);
  }

  readonly #onTick = (): void => {
    const now = Math.floor(this.#clock.monotonic() / TICK_MS);
    // After a long stall one turn visits every slot; more turns would find nothing new.
    const first = Math.max(this.#tick + 1, now - SLOTS + 1);
    this.#tick = now;
    const fired: Node[] = [];
    const later: Node[] = [];
    for (let tick = first; tick <= now; tick++) {
      for (let node = this.#slots[tick % SLOTS] ?? null; node; ) {
        const next: Node | null = node.next;
        this.remove(node);
        if (node.due > now) later.push(node);
        else fired.push(node);
        node = next;
      }
    }
    for (const node of later) this.#insert(node);
    for (const node of fired) node.firing = true;
    for (const node of fired) {
      if (!node.firing) continue;
      node.firing = false;
      try {
        node.fn();
      } catch (error) {
        // One bad callback must not stop everybody's time; it still ends up as an uncaught exception.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
    this.#stop = this.#count > 0 ? this.#clock.after(TICK_MS, this.#onTick) : null;
  };
}

const shared = new WeakMap<Clock, Deadlines>();

/** The wheel that everything on this clock shares. */
export function deadlinesOf(clock: Clock): Deadlines {
  let deadlines = shared.get(clock);
  if (!deadlines) {
    deadlines = new Deadlines(clock);
    shared.set(clock, deadlines);
  }
  return deadlines;
}
