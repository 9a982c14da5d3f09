/** What a log keeper is made of, and what it says of itself. */
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import type { LogCatalog, SharedLogFiles } from './catalog.ts';
import type { Engine } from './engine.ts';
import type { Elsewhere } from './remote-file-sender.ts';
import type { RepeatedBodies } from './tail.ts';

export interface KeeperOptions {
  /** Name of this node in the list of files. */
  readonly node: string;
  /** Directory of the files; made when missing. */
  readonly dir: string;
  /** Directory below which the journals are. */
  readonly spool: string;
  readonly engine: Engine;
  readonly catalog: LogCatalog;
  readonly clock: Clock;
  readonly log: Log;
  readonly newId: () => string;
  /** So many records are missing between those that were read. */
  readonly onGap: (records: number) => void;
  /** Bodies of records that were left out, because another record of the same deed is kept. */
  readonly onRepeated?: (bodies: readonly RepeatedBodies[]) => void;
  /** Processes that write journals now. Others are of processes that are no more: the keeper lets go of their segments. */
  readonly workers: number;
  readonly flushRecords?: number;
  readonly flushBytes?: number;
  /** From the first record that is in no file. */
  readonly flushMs?: number;
  /** Where files go that do not stay here; null: they stay. */
  readonly elsewhere?: Elsewhere | null;
  /** The files of all nodes, and the bytes that they may take of this disk; null: this node has its own alone. */
  readonly shared?: { readonly store: SharedLogFiles; readonly cacheBytes: number } | null;
}

export interface KeeperState {
  /** Records that are in no file. */
  readonly tail: number;
  readonly files: number;
  /** Of the files. */
  readonly waitingBytes: number;
  readonly damagedFiles: number;
  readonly damagedLines: number;
  readonly rejected: number;
}
