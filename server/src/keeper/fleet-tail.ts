/**
 * Following the requests of all nodes: who follows asks the others, again and again; these answer what has come to them, and stop when
 * they are not asked any more. Without followers nothing is sent and nothing runs.
 */
import { timingSafeEqual } from 'node:crypto';
import type { Clock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Bus } from '../store/ports.ts';
import type { Macs } from '../store/vault.ts';
import type { LogArrivalQuery, LogArrivals, LogRow, LogScope, LogSelection, LogStore } from '../telemetry/log-query.ts';

export interface FleetTailOptions {
  /** Null: nodes have no way to each other. */
  readonly bus: Bus | null;
  /** Signs what nodes say to each other: who can write to the bus cannot ask for requests. */
  readonly macs: Macs;
  readonly node: string;
  /** Of this process. */
  readonly process: string;
  readonly own: Pick<LogStore, 'arrived'>;
  /** What the others are asked for; the organisation and the workspace are among them. */
  readonly columns: readonly string[];
  /** Names of other nodes that live, as far as they are known. */
  readonly others: () => Promise<readonly string[]>;
  readonly clock: Clock;
}

/** What is asked of the others. */
interface Asked {
  readonly tail: string;
  readonly node: string;
  /** Where the answer goes. */
  readonly to: string;
  readonly selection: LogSelection;
}

interface Told {
  readonly tail: string;
  readonly node: string;
  readonly rows: readonly LogRow[];
  readonly left: number | null;
}

/** Of one who follows. */
interface Tail {
  readonly began: number;
  selection: LogSelection;
  rows: LogRow[];
  /** That came, and are in no answer; null: some. */
  left: number | null;
  readonly heard: Map<string, number>;
  askedAt: number;
  /** As it was said last. */
  said: string;
}

interface Follower {
  asked: Asked;
  until: number;
  since: string | null;
}

const ASKS = 'sluice:tail:asks';
const USE = 'messages of log tails';
const EVERY_MS = 1_000;
/** An ask counts so long; it is repeated more often. */
const ASK_MS = 5_000;
const ASK_AGAIN_MS = 2_000;
/** Requests of one node a second, for one who follows. */
const MOST = 50;
/** Those who follow, all other nodes together. */
const MOST_FOLLOWERS = 100;
/** One who has not come for so long is gone. */
const GONE_MS = 15_000;
/** A node that was not heard for so long is missing. */
const SILENT_MS = 5_000;
const LOOK_MS = 5_000;
/** Rows that wait for the next answer. */
const MOST_WAITING = 1_000;

const sum = (one: number | null, other: number | null) => (one === null || other === null ? null : one + other);

export class FleetTail implements Pick<LogStore, 'arrived'>, Closable {
  readonly #options: FleetTailOptions;
  readonly #tails = new Map<string, Tail>();
  readonly #followers = new Map<string, Follower>();
  readonly #stops: (() => void)[] = [];
  readonly #channel: string;
  #stopListening: (() => void) | null = null;
  #made = 0;
  #cancel: (() => void) | null = null;
  #closed = false;
  #others: readonly string[] = [];
  #lookedAt = Number.NEGATIVE_INFINITY;
  #reachable = true;

  /** @param answers whether this process answers the asks of other nodes: one of its machine does */
  constructor(options: FleetTailOptions, answers: boolean) {
    this.#options = options;
    this.#channel = `sluice:tail:${options.process}`;
    const { bus } = options;
    if (bus !== null && answers) this.#stops.push(bus.listen(ASKS, (text) => this.#asked(text)));
  }

  async arrived(selection: LogSelection, query: LogArrivalQuery): Promise<LogArrivals> {
    const [since, id] = query.since === null ? [null, this.#newTail(selection)] : placesIn(query.since);
    const own = await this.#options.own.arrived(selection, { ...query, since });
    const tail = this.#tails.get(id) ?? this.#tail(id, selection);
    tail.selection = selection;
    await this.#ask(id, tail);
    await this.#look();
    const room = Math.max(0, query.limit - own.rows.length);
    const others = tail.rows.splice(0, room);
    const left = sum(own.left, tail.left);
    tail.left = 0;
    const incomplete = this.#incomplete(tail);
    return {
      rows: [...own.rows, ...others],
      left: sum(left, tail.rows.splice(0).length),
      next: JSON.stringify([own.next, id]),
      ...(incomplete === undefined ? {} : { incomplete }),
    };
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#cancel?.();
    for (const stop of this.#stops) stop();
    this.#stopListening?.();
  }

  #newTail(selection: LogSelection): string {
    const { process } = this.#options;
    const id = `${process}-${++this.#made}`;
    this.#tail(id, selection);
    return id;
  }

  #tail(id: string, selection: LogSelection): Tail {
    const { clock, bus } = this.#options;
    const now = clock.now();
    for (const [one, { askedAt, began }] of this.#tails) {
      if (now - Math.max(askedAt, began) > GONE_MS) this.#tails.delete(one);
    }
    const askedAt = Number.NEGATIVE_INFINITY;
    const tail: Tail = { began: now, selection, rows: [], left: 0, heard: new Map(), askedAt, said: '[]' };
    this.#tails.set(id, tail);
    if (bus !== null) this.#stopListening ??= bus.listen(this.#channel, (text) => this.#told(text));
    clock.after(GONE_MS, () => this.#tidy());
    return tail;
  }

  #tidy(): void {
    if (this.#closed) return;
    const { clock } = this.#options;
    for (const [id, { askedAt, began }] of this.#tails) {
      if (clock.now() - Math.max(askedAt, began) >= GONE_MS) this.#tails.delete(id);
    }
    if (this.#tails.size > 0) return void clock.after(GONE_MS, () => this.#tidy());
    this.#stopListening?.();
    this.#stopListening = null;
  }

  async #ask(id: string, tail: Tail): Promise<void> {
    const { bus, node, clock } = this.#options;
    const now = clock.now();
    if (bus === null || now - tail.askedAt < ASK_AGAIN_MS) return;
    tail.askedAt = now;
    const asked: Asked = { tail: id, node, to: this.#channel, selection: tail.selection };
    this.#reachable = await bus.send(ASKS, this.#signed(asked));
  }

  async #look(): Promise<void> {
    const { clock, others } = this.#options;
    if (clock.now() - this.#lookedAt < LOOK_MS) return;
    this.#lookedAt = clock.now();
    this.#others = await others().catch(() => this.#others);
  }

  /** What has changed of whose requests are missing. */
  #incomplete(tail: Tail): readonly string[] | null | undefined {
    const { bus, clock } = this.#options;
    const now = clock.now();
    const isSilent = (node: string) => now - (tail.heard.get(node) ?? tail.began) > SILENT_MS;
    const missing = bus === null ? this.#others : this.#others.filter(isSilent);
    const nodes = this.#reachable ? missing : null;
    const said = JSON.stringify(nodes);
    if (said === tail.said) return undefined;
    tail.said = said;
    return nodes;
  }

  #told(text: string): void {
    const told = this.#opened<Told>(text);
    const tail = told === null ? undefined : this.#tails.get(told.tail);
    if (told === null || tail === undefined) return;
    tail.heard.set(told.node, this.#options.clock.now());
    const rows = told.rows.filter((row) => isOf(tail.selection.scope, row));
    const room = Math.max(0, MOST_WAITING - tail.rows.length);
    tail.rows.push(...rows.slice(0, room));
    tail.left = sum(tail.left, sum(told.left, Math.max(0, rows.length - room)));
  }

  #asked(text: string): void {
    const { node, clock } = this.#options;
    const asked = this.#opened<Asked>(text);
    if (asked === null || asked.node === node || this.#closed) return;
    const until = clock.now() + ASK_MS;
    const known = this.#followers.get(asked.tail);
    if (known !== undefined) {
      known.asked = asked;
      known.until = until;
      return;
    }
    if (this.#followers.size >= MOST_FOLLOWERS) return;
    const follower: Follower = { asked, until, since: null };
    this.#followers.set(asked.tail, follower);
    void this.#answer(follower);
    this.#cancel ??= clock.after(EVERY_MS, () => void this.#turn());
  }

  async #turn(): Promise<void> {
    const { clock } = this.#options;
    const began = clock.now();
    for (const [tail, follower] of this.#followers) {
      if (follower.until <= began) this.#followers.delete(tail);
      else await this.#answer(follower);
    }
    this.#cancel = null;
    if (this.#closed || this.#followers.size === 0) return;
    this.#cancel = clock.after(EVERY_MS, () => void this.#turn());
  }

  async #answer(follower: Follower): Promise<void> {
    const { bus, node, own, columns } = this.#options;
    const { tail, to, selection } = follower.asked;
    try {
      const { rows, left, next } = await own.arrived(selection, { columns, since: follower.since, limit: MOST });
      follower.since = next;
      const told: Told = { tail, node, rows, left };
      await bus?.send(to, this.#signed(told));
    } catch {
      // It is not heard then, which who follows says.
    }
  }

  #signed(message: Asked | Told): string {
    const text = JSON.stringify(message);
    const { keyId, digest } = this.#options.macs.mac(USE, Buffer.from(text));
    return `${keyId}.${digest.toString('base64url')}.${text}`;
  }

  /** Null: it was sent without the master key. */
  #opened<T>(message: string): T | null {
    const [, keyId, given, text] = /^([^.]+)\.([^.]+)\.(.*)$/s.exec(message) ?? [];
    if (keyId === undefined || given === undefined || text === undefined) return null;
    const made = this.#options.macs.mac(USE, Buffer.from(text), keyId);
    const digest = Buffer.from(given, 'base64url');
    if (made === null || digest.length !== made.digest.length || !timingSafeEqual(digest, made.digest)) return null;
    return JSON.parse(text) as T;
  }
}

/** The node that asked proves it again. */
function isOf({ organisationId, workspaceIds, userId }: LogScope, row: LogRow): boolean {
  if (row.organisation_id !== organisationId) return false;
  if (workspaceIds !== null && !workspaceIds.includes(String(row.workspace_id))) return false;
  return userId === null || row.user_id === userId;
}

function placesIn(since: string): [string | null, string] {
  return JSON.parse(since) as [string | null, string];
}
