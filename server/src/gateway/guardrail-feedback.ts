/** Feedback that guardrails give by their verdicts, on its way into the store: beside requests, in batches. */
import type { GivenFeedback } from '../guardrails/guardrail.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import type { Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import { opinionColumns, subjectColumns } from '../telemetry/feedback.ts';
import type { RecordDraft } from '../telemetry/recorder.ts';

/** Rows that wait at most: some 10 MB. More are dropped. */
const MOST_WAITING = 10_000;
/** Rows of one transaction: others write between two of them. */
const BATCH = 200;
const EVERY_MS = 500;
/** How long a stop waits for what is left. */
const CLOSE_MS = 5_000;

export interface GuardrailFeedback extends Closable {
  /** Takes the feedback of one guardrail on one request, and returns at once. One without weight counts nowhere and is not kept. */
  note(request: RecordDraft, guardrail: string, feedback: GivenFeedback): void;
  /** Writes what waits, as far as the store takes it. */
  flush(): Promise<void>;
  /** Rows that were given up because too many waited, or because the store refused them. */
  readonly dropped: number;
}

interface Options {
  readonly tables: Pick<Tables, 'systemWrite'>;
  readonly clock: Clock;
  readonly log: Log;
}

export function openGuardrailFeedback({ tables, clock, log }: Options): GuardrailFeedback {
  let waiting: Row<'feedback'>[] = [];
  let dropped = 0;
  let timer: (() => void) | null = null;
  let flushing: Promise<void> | null = null;

  const drop = (rows: number, why: string, error?: unknown) => {
    dropped += rows;
    log.warn('feedback of guardrails was dropped', { why, rows, dropped, ...(error === undefined ? {} : { error }) });
  };
  const insert = (rows: readonly Row<'feedback'>[]) =>
    tables.systemWrite(async (tx) => {
      for (const row of rows) await tx.insert('feedback', row);
    });

  /** False while the store is away: the rows wait. */
  async function write(rows: readonly Row<'feedback'>[]): Promise<boolean> {
    try {
      await insert(rows);
      return true;
    } catch (error) {
      if (isAway(error)) return false;
      const [row, ...more] = rows;
      if (row === undefined || more.length === 0) {
        drop(rows.length, 'the store refused it', error);
        return true;
      }
    }
    // One of them is at fault: the others are kept.
    for (const [n, row] of rows.entries()) {
      if (await write([row])) continue;
      waiting = [...rows.slice(n), ...waiting];
      return true;
    }
    return true;
  }

  async function work(): Promise<void> {
    while (waiting.length > 0) {
      const rows = waiting.splice(0, BATCH);
      if (await write(rows)) continue;
      waiting = [...rows, ...waiting];
      return;
    }
  }

  function flush(): Promise<void> {
    timer?.();
    timer = null;
    flushing ??= work().finally(() => {
      flushing = null;
      if (waiting.length > 0) later();
    });
    return flushing;
  }

  function later(): void {
    timer ??= clock.after(EVERY_MS, () => {
      timer = null;
      void flush();
    });
  }

  return {
    note(request, guardrail, feedback) {
      const { organisation_id, workspace_id } = request;
      if (feedback.weight === 0 || organisation_id === null || workspace_id === null) return;
      if (waiting.length >= MOST_WAITING) return drop(1, 'too many wait for the store');
      const now = clock.now();
      waiting.push({
        id: uuidv7(clock),
        organisation_id,
        workspace_id,
        trace_id: request.trace_id,
        ...opinionColumns({ ...feedback, metadata: { ...feedback.metadata, guardrail } }),
        ...subjectColumns(request),
        source: 'guardrail',
        api_key_id: request.api_key_id,
        user_id: request.user_id,
        created_at: now,
        last_updated_at: now,
      });
      later();
    },
    flush,
    get dropped() {
      return dropped;
    },
    async close() {
      const end = clock.monotonic() + CLOSE_MS;
      await flushing;
      for (let left = Number.POSITIVE_INFINITY; waiting.length > 0 && waiting.length < left; ) {
        if (clock.monotonic() > end) break;
        left = waiting.length;
        await flush();
      }
      timer?.();
      timer = null;
      if (waiting.length > 0) drop(waiting.length, 'the store was away when this node stopped');
      waiting = [];
    },
  };
}

const isAway = (error: unknown): boolean => error instanceof SluiceError && error.kind === 'unavailable';
