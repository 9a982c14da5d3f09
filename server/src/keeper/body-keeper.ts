/**
 * Makes chunks of the journals of bodies. It holds no keys: the server hands one over for each segment and each chunk. A chunk
 * that was stored before, by a keeper that was killed, gets what it lacks: reading a journal again loses and doubles nothing.
 */
import { mkdir, readdir, readFile, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import {
  type ChunkKey,
  chunkBlob,
  chunkKeyId,
  type KeptRequest,
  openChunk,
  packChunk,
  timeOf,
} from '../telemetry/bodies/chunk.ts';
import { BODY_FLAGS, type BodyEnd, type BodyFrame, type BodyPart, framesIn } from '../telemetry/bodies/frame.ts';
import { BodyGroups } from './body-groups.ts';
import { UNFINISHED } from './catalog.ts';

/** The server, which has keys and blobs. */
export interface BodyStore {
  /** The key of a segment; null when there is none any more. */
  segmentKey(journal: string, segment: string, keyId: string): Promise<Buffer | null>;
  /** The key that chunks of an organisation are sealed with, or the one made of this data key. Rejects when there is none. */
  chunkKey(organisationId: string, dataKeyId: string | null): Promise<ChunkKey>;
  /** The key of chunks that was made of this data key; null when that is gone. Rejects while the store cannot be read. */
  readKey(organisationId: string, dataKeyId: string): Promise<Buffer | null>;
  /** Stores the file as the blob of a chunk. */
  put(chunk: StoredChunk, file: string): Promise<void>;
  /** Writes the blob of a chunk to the file; false when there is none. */
  get(organisationId: string, chunk: string, file: string): Promise<boolean>;
}

export interface StoredChunk {
  /** UUID. */
  readonly id: string;
  readonly organisationId: string;
  readonly workspaceId: string;
  readonly records: number;
}

export interface BodyKeeperOptions {
  /** Directory for files that are on their way to the blobs. */
  readonly dir: string;
  /** Directory below which the journals are. */
  readonly spool: string;
  readonly store: BodyStore;
  readonly clock: Clock;
  readonly log: Log;
  /** From the begin of a chunk until it is packed, unless the server closes it before. */
  readonly packMs?: number;
  /** A request whose end does not come within this time of its first piece is given up. */
  readonly pendingMs?: number;
}

interface Pending {
  readonly segment: string;
  readonly since: number;
  attempt: number;
  bytes: number;
  readonly pieces: Partial<Record<BodyPart, Buffer[]>>;
}

interface Open {
  readonly id: string;
  readonly organisationId: string;
  readonly workspaceId: string;
  /** The first segment with something of it, by journal. */
  readonly from: Map<string, string>;
  readonly requests: Map<number, KeptRequest>;
  bytes: number;
  closed: boolean;
}

interface Reader {
  readonly groups: BodyGroups;
  readonly pending: Map<string, Pending>;
}

/** The server gives no further request to a chunk after 60 s; what is large is written a moment later. */
const PACK_MS = 75_000;
const PENDING_MS = 30 * 60_000;
/** In memory; above it chunks are packed before their time. */
const MOST_BYTES = 128 << 20;
/** A segment that nothing was added to for so long is not written to any more. */
const IDLE_MS = 180_000;
const FOLDER = /^bodies(?:-\d+)?$/;
const ENDING = `.chunk${UNFINISHED}`;

export class BodyKeeper {
  readonly #options: Required<BodyKeeperOptions>;
  readonly #readers = new Map<string, Reader>();
  readonly #open = new Map<string, Open>();
  #work: Promise<unknown> = Promise.resolve();
  #lost = 0;

  constructor(options: BodyKeeperOptions) {
    this.#options = { packMs: PACK_MS, pendingMs: PENDING_MS, ...options };
  }

  /** Requests whose bodies wait in memory for their chunk, and those that were given up. */
  get state(): { readonly waiting: number; readonly lost: number } {
    let waiting = 0;
    for (const { requests } of this.#open.values()) waiting += requests.size;
    return { waiting, lost: this.#lost };
  }

  /** Reads what is written, and packs what is due. Answers whether there was anything to do. */
  tick(): Promise<boolean> {
    return this.#serial(async () => {
      const read = await this.#read();
      const packed = await this.#packDue(false);
      await this.#removeRead();
      return read || packed || this.#open.size > 0;
    });
  }

  /** Everything that is written by now goes to blobs. */
  flush(): Promise<void> {
    return this.#serial(async () => {
      await this.#read();
      await this.#packDue(true);
      await this.#removeRead();
    });
  }

  /** Reads what is written by now, so that `waiting` has it. */
  async catchUp(): Promise<void> {
    await this.#serial(() => this.#read());
  }

  /** Requests of a chunk that are in no blob yet, as far as they were read. */
  waiting(organisationId: string, chunk: string): ReadonlyMap<number, KeptRequest> | null {
    const open = this.#open.get(chunk);
    return open?.organisationId === organisationId ? open.requests : null;
  }

  /** The bodies of a request that are in no blob yet; null where they are, or where there are none. */
  find(organisationId: string, chunk: string, slot: number): Promise<KeptRequest | null> {
    return this.#serial(async () => {
      await this.#read();
      return this.waiting(organisationId, chunk)?.get(slot) ?? null;
    });
  }

  /**
   * Removes the bodies of these requests from a chunk that is stored; answers of how many. Their places in it say so: the next keeper
   * may read the journal again that the chunk was made of.
   */
  erase(organisationId: string, chunk: string, ids: ReadonlySet<string>): Promise<number> {
    return this.#serial(async () => {
      await this.#read();
      await this.#packDue(true);
      if (this.#open.has(chunk)) throw new Error('a chunk of bodies is not stored yet');
      return this.#packed(chunk, async (file) => {
        const requests = await this.#before({ id: chunk, organisationId }, file);
        const found = [...requests.values()].filter(({ id, end }) => ids.has(id) && !isErased(end));
        const [first] = found;
        if (first === undefined) return 0;
        for (const { id, end } of found) {
          const flags = end.flags | BODY_FLAGS.erased;
          requests.set(end.slot, { id, end: { ...end, flags, parts: {} }, bodies: {} });
        }
        await this.#store({ id: chunk, organisationId, workspaceId: first.end.workspace_id }, requests, file);
        return found.length;
      });
    });
  }

  #serial<T>(work: () => Promise<T>): Promise<T> {
    const next = this.#work.then(work, work);
    this.#work = next.catch(() => undefined);
    return next;
  }

  async #read(): Promise<boolean> {
    const { spool, store, log } = this.#options;
    let any = false;
    for (const folder of await readdir(spool).catch(() => [])) {
      if (!FOLDER.test(folder)) continue;
      let reader = this.#readers.get(folder);
      if (reader === undefined) {
        const groups = await BodyGroups.open(join(spool, folder), (...place) => store.segmentKey(...place));
        if (groups === null) continue;
        reader = { groups, pending: new Map() };
        this.#readers.set(folder, reader);
      }
      for (;;) {
        const group = await reader.groups.next();
        if (group === null) break;
        any = true;
        try {
          for (const frame of framesIn(group.bytes)) this.#take(folder, reader, group.segment, frame);
        } catch (error) {
          log.error('a group of bodies is not what was written', { error, segment: group.segment });
        }
        if (this.#bytes() <= MOST_BYTES) continue;
        await this.#packDue(true);
        // Blobs cannot be stored: the rest waits in the journal.
        if (this.#bytes() > MOST_BYTES) return any;
      }
      this.#giveUp(reader);
    }
    return any;
  }

  #take(journal: string, reader: Reader, segment: string, frame: BodyFrame): void {
    if (frame.kind === 'close') {
      const open = this.#open.get(frame.id);
      if (open !== undefined) open.closed = true;
      return;
    }
    let pending = reader.pending.get(frame.id);
    if (pending === undefined) {
      pending = { segment, since: this.#options.clock.now(), attempt: 0, bytes: 0, pieces: {} };
      reader.pending.set(frame.id, pending);
    }
    if (frame.kind === 'piece') {
      const { part, attempt, bytes } = frame;
      // An attempt before gave no answer to the caller.
      if (part === 'came' && attempt > pending.attempt) delete pending.pieces.came;
      pending.attempt = Math.max(pending.attempt, attempt);
      pending.pieces[part] ??= [];
      pending.pieces[part].push(Buffer.from(bytes));
      pending.bytes += bytes.length;
      return;
    }
    reader.pending.delete(frame.id);
    this.#end(journal, pending, frame.id, frame.end);
  }

  #end(journal: string, pending: Pending, id: string, end: BodyEnd): void {
    let open = this.#open.get(end.chunk);
    if (open === undefined) {
      const { organisation_id: organisationId, workspace_id: workspaceId } = end;
      const from = new Map<string, string>();
      open = { id: end.chunk, organisationId, workspaceId, from, requests: new Map(), bytes: 0, closed: false };
      this.#open.set(end.chunk, open);
    }
    if (open.organisationId !== end.organisation_id || open.workspaceId !== end.workspace_id) {
      this.#lost += 1;
      return;
    }
    const first = open.from.get(journal);
    if (first === undefined || pending.segment < first) open.from.set(journal, pending.segment);
    open.requests.set(end.slot, onceEach(id, end, pending.pieces));
    open.bytes += pending.bytes;
  }

  /** A request whose end never came has no record either: its process was killed, or there was no room. */
  #giveUp({ pending }: Reader): void {
    const before = this.#options.clock.now() - this.#options.pendingMs;
    for (const [id, { since }] of pending) {
      if (since > before) return;
      pending.delete(id);
      this.#lost += 1;
    }
  }

  #bytes(): number {
    let sum = 0;
    for (const { bytes } of this.#open.values()) sum += bytes;
    return sum;
  }

  async #packDue(all: boolean): Promise<boolean> {
    const before = this.#options.clock.now() - this.#options.packMs;
    const due = [...this.#open.values()].filter(({ id, closed }) => all || closed || timeOf(id) <= before);
    for (const open of due) await this.#pack(open);
    return due.length > 0;
  }

  async #pack(open: Open): Promise<void> {
    const { log } = this.#options;
    try {
      await this.#packed(open.id, async (file) => {
        const requests = await this.#before(open, file);
        for (const [slot, request] of open.requests) {
          const stored = requests.get(slot);
          if (stored === undefined || !isErased(stored.end)) requests.set(slot, request);
        }
        await this.#store(open, requests, file);
      });
      this.#open.delete(open.id);
    } catch (error) {
      log.warn('a chunk of bodies could not be stored, it stays in the journal', { error, chunk: open.id });
    }
  }

  /** Work on a chunk, with the file that it goes through. */
  async #packed<T>(chunk: string, work: (file: string) => Promise<T>): Promise<T> {
    const { dir } = this.#options;
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const file = join(dir, chunk + ENDING);
    try {
      return await work(file);
    } finally {
      await unlink(file).catch(() => undefined);
    }
  }

  async #store(
    { id, organisationId, workspaceId }: Pick<Open, 'id' | 'organisationId' | 'workspaceId'>,
    requests: ReadonlyMap<number, KeptRequest>,
    file: string,
  ): Promise<void> {
    const { store } = this.#options;
    const list = [...requests.values()].sort((one, other) => one.end.slot - other.end.slot);
    const key = await store.chunkKey(organisationId, null);
    await writeFile(file, await packChunk(organisationId, id, list, key), { mode: 0o600 });
    key.key.fill(0);
    const records = list.filter(({ end }) => !isErased(end)).length;
    await store.put({ id, organisationId, workspaceId, records }, file);
  }

  /** What an earlier keeper has stored of the same chunk. */
  async #before(
    { id, organisationId }: Pick<Open, 'id' | 'organisationId'>,
    file: string,
  ): Promise<Map<number, KeptRequest>> {
    const { store, log } = this.#options;
    if (!(await store.get(organisationId, id, file))) return new Map();
    try {
      const blob = await readFile(file);
      const { key } = await store.chunkKey(organisationId, chunkKeyId(blob));
      return await openChunk(organisationId, id, blob, key);
    } catch (error) {
      log.error('a stored chunk of bodies cannot be opened, it is written anew', { error, blob: chunkBlob(id) });
      return new Map();
    }
  }

  /** Removes segments that hold nothing which is still needed. */
  async #removeRead(): Promise<void> {
    const idleSince = this.#options.clock.now() - IDLE_MS;
    for (const [journal, { groups, pending }] of this.#readers) {
      const needed = [...pending.values()].map(({ segment }) => segment);
      for (const { from } of this.#open.values()) {
        const segment = from.get(journal);
        if (segment !== undefined) needed.push(segment);
      }
      const first = needed.sort()[0];
      await groups.removeRead(first ?? null, idleSince);
    }
  }
}

const isErased = ({ flags }: BodyEnd) => (flags & BODY_FLAGS.erased) !== 0;

/** Equal bytes once: what went to the provider is often what the caller sent. */
function onceEach(id: string, end: BodyEnd, pieces: Pending['pieces']): KeptRequest {
  const bodies: Partial<Record<BodyPart, Buffer>> = {};
  for (const [part, list] of Object.entries(pieces) as [BodyPart, Buffer[]][]) bodies[part] = Buffer.concat(list);
  const parts = { ...end.parts };
  for (const [part, other] of [
    ['sent', 'request'],
    ['came', 'answer'],
  ] as const) {
    const facts = parts[part];
    const [one, two] = [bodies[part], bodies[other]];
    if (facts === undefined || one === undefined || two === undefined || !one.equals(two)) continue;
    parts[part] = { ...facts, same: other };
    delete bodies[part];
  }
  return { id, end: { ...end, parts }, bodies };
}
