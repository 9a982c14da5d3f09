import type { Clock } from '../kernel/clock.ts';
import { Bound } from '../kernel/notes.ts';
import { withoutSecrets } from '../kernel/quoted.ts';
import { pretty } from './logger.ts';
import type { RecordDraft } from './recorder.ts';

export type AccessMode = 'none' | 'errors' | 'all';

/** One answered request: ids, names and numbers, nothing of its contents. */
export interface AccessEntry {
  readonly request_id: string;
  readonly trace_id?: string;
  readonly method: string;
  /** Without its query. */
  readonly path: string;
  readonly status: number;
  readonly duration_ms: number;
  /** Code of the error; null for what went well. */
  readonly error: string | null;
  readonly organisation_id: string | null;
  readonly workspace_id: string | null;
  readonly api_key_id: string | null;
  readonly provider?: string | null;
  readonly model?: string | null;
  readonly input_tokens?: number | null;
  readonly output_tokens?: number | null;
  readonly cost_micros?: number | null;
}

export interface AccessLog {
  /** False: only what was refused or failed is written. */
  readonly all: boolean;
  write(entry: AccessEntry): void;
  /** Writes what waits. */
  close(): Promise<void>;
}

/** In the mode `errors`: a caller that is refused in a loop must not fill a disk. About 170 MB a day at most. */
const BOUND = { burst: 100, perSecond: 5 };
/** Names come from callers. */
const MAX_TEXT = 200;
/** Some readers of logs take these for line ends. */
const LINE_ENDS = /[\u007f-\u009f\u2028\u2029]/g;

const text = (value: string): string =>
  withoutSecrets(value.slice(0, MAX_TEXT)).replace(
    LINE_ENDS,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );

/**
 * One line for each request, in the format of the log and apart from its level. Lines of one turn of the event loop go out by
 * one write. Null in the mode `none`.
 */
export function createAccessLog(options: {
  readonly mode: AccessMode;
  readonly format: 'pretty' | 'json';
  readonly clock: Clock;
  readonly write: (lines: string) => void;
}): AccessLog | null {
  const { mode, format, clock, write } = options;
  if (mode === 'none') return null;
  const bound = mode === 'errors' ? new Bound(clock, BOUND) : null;
  let waiting = '';
  const flush = () => {
    const lines = waiting;
    waiting = '';
    try {
      if (lines !== '') write(lines);
    } catch {
      // Standard output has no reader, or is full: requests go on without their lines.
    }
  };
  return {
    all: mode === 'all',
    write(entry) {
      const suppressed = bound === null ? 0 : bound.take();
      if (suppressed === null) return;
      const line = JSON.stringify({
        level: 30,
        time: clock.now(),
        msg: 'request',
        ...entry,
        path: text(entry.path),
        ...(entry.trace_id === undefined ? null : { trace_id: text(entry.trace_id) }),
        ...(entry.model == null ? null : { model: text(entry.model) }),
        ...(suppressed === 0 ? null : { suppressed }),
      });
      if (waiting === '') setImmediate(flush);
      waiting += format === 'json' ? `${line}\n` : pretty(line);
    },
    async close() {
      flush();
    },
  };
}

/** The line of a request that has a record. */
export function entryOf(draft: RecordDraft): AccessEntry {
  return {
    request_id: draft.id,
    trace_id: draft.trace_id,
    method: draft.method,
    path: draft.path,
    status: draft.status,
    duration_ms: draft.latency_ms,
    error: draft.error_code,
    organisation_id: draft.organisation_id,
    workspace_id: draft.workspace_id,
    api_key_id: draft.api_key_id,
    provider: draft.provider_slug ?? draft.provider,
    model: draft.model_requested,
    input_tokens: draft.usage?.input ?? null,
    output_tokens: draft.usage?.output ?? null,
    cost_micros: draft.cost_micros,
  };
}
