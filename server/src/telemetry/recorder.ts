import type { Clock } from '../kernel/clock.ts';
import type { LogRecord } from './record.ts';

/** The part of the journal the recorder needs (`store/disk/journal.ts`). */
export interface JournalAppender {
  /** True while records cannot be written. */
  readonly failing: boolean;
  /** `line` and `tail` make one line; they are written one behind the other without being joined. */
  append(line: string, done: () => void, tail?: string): void;
}

/** A record without what the recorder adds: the node and its sequence number. */
export type RecordDraft = Omit<LogRecord, 'node' | 'seq'>;

/** Gives every record its place in the node's sequence and hands it to the journal. */
export interface Recorder {
  /**
   * `done` runs once the record would survive the process being killed (or was given up because the disk is full).
   * `configured`: the name under which the provider of the request has its model stored, for metrics.
   */
  record(draft: RecordDraft, done: () => void, configured?: string | null): void;
  /**
   * The same for what may be recorded again after the process was killed: `key` stands for node and place in one, and a
   * store keeps the first record of a key.
   */
  once(key: string, draft: RecordDraft, done: () => void): void;
  readonly recorded: number;
  /** True while records cannot be written: those of requests that run are held in memory as far as there is room. */
  readonly failing: boolean;
  /**
   * Records of requests that were refused before a provider was asked, and given up while they could not be written: they
   * must not take the room of those that were answered.
   */
  readonly givenUp: number;
}

/** Counts what is recorded (`metrics/metrics.ts`). */
export interface RecordCounter {
  count(draft: RecordDraft, configured: string | null): void;
  countOnce(key: string, draft: RecordDraft): void;
}

/**
 * @param counter the one place where records become metrics; nothing is counted without it
 * @param node identifies this process run: the sequence starts at 1 in each, so (node, seq) never repeats.
 */
export function createRecorder(node: string, journal: JournalAppender, counter: RecordCounter | null = null): Recorder {
  let seq = 0;
  let givenUp = 0;
  const nodeMember = `,"node":${JSON.stringify(node)},"seq":`;
  return {
    record(draft, done, configured = null) {
      seq += 1;
      counter?.count(draft, configured);
      // A request that was refused after a provider answered cost something, so its record is kept.
      if (journal.failing && draft.outcome === 'refused' && draft.attempts.length === 0) {
        givenUp += 1;
        done();
        return;
      }
      // The two members the recorder adds go to the end of the text: copying the draft would cost as much again.
      journal.append(JSON.stringify(draft).slice(0, -1), done, `${nodeMember}${seq}}`);
    },
    once(key, draft, done) {
      counter?.countOnce(key, draft);
      journal.append(JSON.stringify(draft).slice(0, -1), done, `,"node":${JSON.stringify(key)},"seq":1}`);
    },
    get recorded() {
      return seq;
    },
    get failing() {
      return journal.failing;
    },
    get givenUp() {
      return givenUp;
    },
  };
}

/** The name of a run of a process, with its node. */
const RUN = /^(.+)-\d+-[0-9a-z]+-[0-9a-z]+$/;

/** The node that a run belongs to; null: the text names something else, such as a deed that is recorded once. */
export function nodeOfRun(run: string): string | null {
  return RUN.exec(run)?.[1] ?? null;
}

/** Unique for each run of each process of a node. */
export function nodeRunId(nodeId: string, clock: Clock, worker: number): string {
  return `${nodeId}-${worker}-${clock.now().toString(36)}-${process.pid.toString(36)}`;
}
