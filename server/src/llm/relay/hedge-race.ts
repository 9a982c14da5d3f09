/**
 * Several calls of one request, begun one after the other while none has answered (`hedge`): the first that answers with
 * success and a byte of it is taken, the others are given up. To the relay it is one call.
 */
import type { Clock } from '../../kernel/clock.ts';
import type { SluiceError } from '../../kernel/errors.ts';
import type { WireControl, WireHandler } from '../../kernel/wire.ts';

/** Bytes of a refusal that are kept while another call may still succeed. */
const KEPT_BYTES = 1024 * 1024;

/** When another call begins, and how many more than one. */
export interface Hedge {
  readonly delayMs: number;
  readonly max: number;
}

/** A call that was not taken. */
export interface Lost {
  readonly status: number | null;
  /** What it failed with by itself; null when it was given up. */
  readonly error: SluiceError | null;
  /** It was under way when it was given up. */
  readonly open: boolean;
  /** By the monotonic clock. */
  readonly began: number;
  readonly ms: number;
}

export interface RaceParts {
  readonly clock: Clock;
  readonly hedge: Hedge;
  readonly handler: WireHandler;
  /** Begins a call. */
  readonly call: (handler: WireHandler) => WireControl;
  /** Asked before each call after the first: false where it may not begin. */
  readonly mayCall: () => boolean | Promise<boolean>;
}

class Lane implements WireHandler {
  readonly #race: Race;
  readonly started: number;
  control: WireControl | null = null;
  status: number | null = null;
  headers: readonly string[] = [];
  sentAt = 0;
  connectMs = 0;
  readonly kept: Buffer[] = [];
  #keptBytes = 0;
  error: SluiceError | null = null;
  open = true;

  constructor(race: Race, started: number) {
    this.#race = race;
    this.started = started;
  }

  onSent(at: number, connectMs: number): void {
    this.sentAt = at;
    this.connectMs = connectMs;
  }

  onHead(status: number, headers: readonly string[], control: WireControl): void {
    this.control = control;
    this.status = status;
    this.headers = headers;
  }

  onData(chunk: Buffer): void {
    if (!this.open) return;
    if (this.#race.isTaken(this)) this.#race.handler.onData(chunk);
    else if (this.#succeeds()) this.#race.take(this, chunk);
    else {
      this.#keptBytes += chunk.length;
      if (this.#keptBytes <= KEPT_BYTES) this.kept.push(chunk);
    }
  }

  onEnd(): void {
    if (!this.open) return;
    this.open = false;
    if (this.#race.isTaken(this)) this.#race.handler.onEnd();
    else if (this.#succeeds()) this.#race.takeEnded(this);
    else this.#race.failed(this);
  }

  onError(error: SluiceError): void {
    if (!this.open) return;
    this.open = false;
    this.error = error;
    if (this.#race.isTaken(this)) this.#race.handler.onError(error);
    else this.#race.failed(this);
  }

  #succeeds(): boolean {
    return this.status !== null && this.status >= 200 && this.status < 300;
  }
}

export class Race implements WireControl {
  readonly #parts: RaceParts;
  readonly #lanes: Lane[] = [];
  #taken: Lane | null = null;
  #over = false;
  #stopTimer: (() => void) | null = null;

  constructor(parts: RaceParts) {
    this.#parts = parts;
    this.#begin();
  }

  get handler(): WireHandler {
    return this.#parts.handler;
  }

  /** All calls but the one that was taken, or, while none is, but the first. */
  lost(): Lost[] {
    const now = this.#parts.clock.monotonic();
    return this.#lanes
      .filter((lane) => lane !== (this.#taken ?? this.#lanes[0]))
      .map(({ status, error, started, open }) => ({ status, error, open, began: started, ms: now - started }));
  }

  isTaken(lane: Lane): boolean {
    return lane === this.#taken;
  }

  /** This call has begun to answer. */
  take(lane: Lane, chunk: Buffer): void {
    this.#decide(lane);
    if (lane.control !== null) this.handler.onHead(lane.status ?? 0, lane.headers, lane.control);
    this.handler.onData(chunk);
  }

  /** This call has answered with nothing but a head. */
  takeEnded(lane: Lane): void {
    this.#decide(lane);
    if (lane.control !== null) this.handler.onHead(lane.status ?? 0, lane.headers, lane.control);
    this.handler.onEnd();
  }

  /** Another one may still succeed; when none is left, what this one came to is what there is. */
  failed(lane: Lane): void {
    if (this.#over || this.#taken !== null || this.#lanes.some(({ open }) => open)) return;
    this.#decide(lane);
    if (lane.status !== null && lane.control !== null) this.handler.onHead(lane.status, lane.headers, lane.control);
    for (const chunk of lane.kept) this.handler.onData(chunk);
    if (lane.error === null) this.handler.onEnd();
    else this.handler.onError(lane.error);
  }

  pause(): void {
    this.#taken?.control?.pause();
  }

  resume(): void {
    this.#taken?.control?.resume();
  }

  abort(): void {
    this.#over = true;
    this.#stopTimer?.();
    for (const lane of this.#lanes) lane.control?.abort();
  }

  #decide(lane: Lane): void {
    this.#taken = lane;
    if (lane.sentAt !== 0) this.handler.onSent?.(lane.sentAt, lane.connectMs);
    this.#stopTimer?.();
    for (const other of this.#lanes) if (other !== lane && other.open) other.control?.abort();
  }

  #begin(): void {
    const { clock, hedge, call } = this.#parts;
    const lane = new Lane(this, clock.monotonic());
    this.#lanes.push(lane);
    lane.control = call(lane);
    if (this.#lanes.length > hedge.max) return;
    this.#stopTimer = clock.after(hedge.delayMs, () => {
      const may = this.#undecided && this.#parts.mayCall();
      if (may === true) this.#begin();
      else if (may !== false)
        may.then(
          (yes) => {
            if (yes && this.#undecided) this.#begin();
          },
          () => {},
        );
    });
  }

  get #undecided(): boolean {
    return !this.#over && this.#taken === null;
  }
}
