import { hash } from 'node:crypto';

/** 4,194,304 slots of 8 bytes, three quarters of them used. */
const MAX_SLOTS = 1 << 22;
const START_SLOTS = 1 << 12;

/**
 * Remembers which rows were seen by 64 bits of a hash each, so that a million rows take 16 MB. Two different rows are
 * taken for the same with a chance below one in ten million at that size. Past three million different rows nothing
 * more is added, which keeps memory flat: `complete` is false from then on.
 */
export class RowSet {
  readonly #maxSlots: number;
  #high = new Uint32Array(START_SLOTS);
  #low = new Uint32Array(START_SLOTS);
  #size = 0;
  #complete = true;

  /** `maxSlots`: a power of two; given by tests. */
  constructor(maxSlots = MAX_SLOTS) {
    this.#maxSlots = maxSlots;
  }

  get complete(): boolean {
    return this.#complete;
  }

  /** True when the bytes were seen before. */
  seen(row: Uint8Array | string): boolean {
    const digest = hash('sha256', row, 'buffer');
    // (0, 0) means an empty slot.
    const high = digest.readUInt32LE(0);
    const low = digest.readUInt32LE(4) || 1;
    const slot = this.#find(high, low);
    if (this.#low[slot] !== 0) return true;
    if (this.#size >= this.#low.length * 0.75) {
      if (this.#low.length >= this.#maxSlots) {
        this.#complete = false;
        return false;
      }
      this.#grow();
      this.#put(this.#find(high, low), high, low);
    } else {
      this.#put(slot, high, low);
    }
    return false;
  }

  #put(slot: number, high: number, low: number): void {
    this.#high[slot] = high;
    this.#low[slot] = low;
    this.#size += 1;
  }

  #find(high: number, low: number): number {
    const mask = this.#low.length - 1;
    let slot = high & mask;
    while (this.#low[slot] !== 0 && !(this.#low[slot] === low && this.#high[slot] === high)) slot = (slot + 1) & mask;
    return slot;
  }

  #grow(): void {
    const high = this.#high;
    const low = this.#low;
    this.#high = new Uint32Array(low.length * 2);
    this.#low = new Uint32Array(low.length * 2);
    this.#size = 0;
    for (let i = 0; i < low.length; i++) {
      const l = low[i] as number;
      if (l !== 0) this.#put(this.#find(high[i] as number, l), high[i] as number, l);
    }
  }
}
