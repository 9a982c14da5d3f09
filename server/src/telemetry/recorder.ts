import type { Clock } from '../kernel/clock.ts';
import type { LogRecord } from './record.ts';

/** The part of the journal the recorder needs (`store/disk/journal.ts`). */
export interface JournalAppender {
  /** `line` and `tail` make one line; they are written one behind the other without being joined. */
  append(line: string, done: () => void, tail?: string): void;
}

/** A record without what the recorder adds: the node and its sequence number. */
export type RecordDraft = Omit<LogRecord, 'node' | 'seq'>;

/** Gives every record its place in the node's sequence and hands it to the journal. */
export interface Recorder {
  /** `done` runs once the record would survive the process being killed (or was given up because the disk is full). */
  record(draft: RecordDraft, done: () => void): void;
  /**
   * The same for what may be recorded again after the process was killed: `key` stands for node and place in one, and a
   * store keeps the first record of a key.
   */
  once(key: string, draft: RecordDraft, done: () => void): void;
  readonly recorded: number;
}

/**
 * @param node identifies this process run: the sequence starts at 1 in each, so (node, seq) never repeats.
 */
export function createRecorder(node: string, journal: JournalAppender): Recorder {
  let seq = 0;
  const nodeMember = `,"node":${JSON.stringify(node)},"seq":`;
  return {
    record(draft, done) {
      seq += 1;
      // The two members the recorder adds go to the end of the text: copying the draft would cost as much again.
      journal.append(JSON.stringify(draft).slice(0, -1), done, `${nodeMember}${seq}}`);
    },
    once(key, draft, done) {
      journal.append(JSON.stringify(draft).slice(0, -1), done, `,"node":${JSON.stringify(key)},"seq":1}`);
    },
    get recorded() {
      return seq;
    },
  };
}

/** Unique for each run of each process of a node. */
export function nodeRunId(nodeId: string, clock: Clock, worker: number): string {
  return `${nodeId}-${worker}-${clock.now().toString(36)}-${process.pid.toString(36)}`;
}
