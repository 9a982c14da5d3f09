/** Where bodies of requests go that are kept: which chunk each belongs to, and the frames in the journal. */
import type { Clock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import { BODY_PARTS, type BodyEnd, type BodyPart, frameHead } from '../telemetry/bodies/frame.ts';
import type { BodyRule } from './kept-bodies.ts';

/** The part of the journal that is used here (`store/disk/body-journal.ts`). */
export interface FrameAppender {
  append(...frame: readonly Buffer[]): boolean;
}

export interface BodyLogOptions {
  readonly journal: FrameAppender;
  readonly clock: Clock;
  readonly rule: BodyRule;
  /** Longest kept part of one body. */
  readonly maxBytes: number;
  /** Headers whose values are never kept, in lower case. */
  readonly maskedHeaders: readonly string[];
}

/** The place of a request's bodies. */
export interface BodyPlace {
  /** UUID. */
  readonly chunk: string;
  readonly slot: number;
}

interface OpenChunk {
  readonly id: string;
  readonly since: number;
  slots: number;
  bytes: number;
}

/** Bytes of bodies that requests which are over still hold in memory: what is larger is not kept. */
const HELD_BYTES = 96 << 20;
/** Bodies of one workspace that come so long after each other are not in one chunk. */
const CHUNK_MS = 60_000;
const CHUNK_RECORDS = 1_000;
/** Before packing; bodies that resemble each other become a twentieth. */
const CHUNK_BYTES = 16 << 20;
/** Workspaces whose chunks are remembered. */
const MOST_OPEN = 10_000;

export class BodyLog {
  readonly rule: BodyRule;
  readonly maxBytes: number;
  readonly maskedHeaders: readonly string[];
  readonly #journal: FrameAppender;
  readonly #clock: Clock;
  /** By workspace: no chunk has bodies of two. */
  readonly #open = new Map<string, OpenChunk>();
  #held = 0;

  constructor({ journal, clock, rule, maxBytes, maskedHeaders }: BodyLogOptions) {
    this.#journal = journal;
    this.#clock = clock;
    this.rule = rule;
    this.maxBytes = maxBytes;
    this.maskedHeaders = maskedHeaders;
  }

  /** The next place in a chunk of the workspace, for about so many bytes. */
  place(workspaceId: string, bytes: number): BodyPlace {
    const now = this.#clock.now();
    let chunk = this.#open.get(workspaceId);
    if (chunk !== undefined && isFull(chunk, now)) {
      this.#journal.append(frameHead('close', chunk.id, 0, 0, 0));
      chunk = undefined;
    }
    if (chunk === undefined) {
      if (this.#open.size >= MOST_OPEN) this.#open.clear();
      chunk = { id: uuidv7(this.#clock), since: now, slots: 0, bytes: 0 };
      this.#open.set(workspaceId, chunk);
    }
    chunk.bytes += bytes;
    return { chunk: chunk.id, slot: chunk.slots++ };
  }

  /** Takes room for bytes that are kept in memory until they are written; false where there is none. */
  hold(bytes: number): boolean {
    if (this.#held + bytes > HELD_BYTES) return false;
    this.#held += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#held -= bytes;
  }

  /** A piece of a body, which is copied. False where it is dropped. */
  piece(requestId: string, part: BodyPart, attempt: number, bytes: Buffer): boolean {
    const head = frameHead('piece', requestId, BODY_PARTS.indexOf(part), attempt, bytes.length);
    return this.#journal.append(head, bytes);
  }

  /** The last frame of a request. Without it, the frames before it are dropped. */
  end(requestId: string, end: BodyEnd): boolean {
    const text = Buffer.from(JSON.stringify(end));
    return this.#journal.append(frameHead('end', requestId, 0, 0, text.length), text);
  }
}

function isFull({ since, slots, bytes }: OpenChunk, now: number): boolean {
  return now - since >= CHUNK_MS || now < since || slots >= CHUNK_RECORDS || bytes >= CHUNK_BYTES;
}
