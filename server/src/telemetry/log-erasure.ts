/** Erasure of stored requests, as the log store carries it out on one node. */
import type { ErasedLogs } from './log-query.ts';

/** What one pass has found and removed. */
export interface ErasedCounts {
  readonly records: number;
  /** Those of them whose bodies are gone. */
  readonly bodies: number;
  readonly feedback: number;
  /** Files that cannot be read, in which such records may be. */
  readonly damagedFiles: number;
}

/** A trace in its workspace. */
export interface ErasedTrace {
  readonly workspaceId: string;
  readonly traceId: string;
}

export interface LogEraser {
  /**
   * Removes the records from files, before them their bodies. What the journals have is in files first. A pass that was cut short is
   * made again, and finds the rest.
   */
  erase(organisationId: string, erased: ErasedLogs): Promise<ErasedCounts>;
  /** Writes what the journals have to files, and sends those to where all nodes have theirs. Lines aside with the value go. */
  hand(erased: ErasedLogs): Promise<void>;
  /**
   * Does what `erase` does to the records of all nodes, where these are in one place. Bodies of a chunk are read, changed and stored:
   * one node may do it at a time. A pass that was cut short is made again.
   */
  eraseForAll(organisationId: string, erased: ErasedLogs): Promise<ErasedCounts>;
  /**
   * Whether nothing is left of what was replaced before a time (milliseconds since the epoch): no copy of a file on this disk, no
   * part of a store elsewhere.
   */
  isClear(before: number): Promise<boolean>;
}
