/** Feedback as it is stored, whoever gives it: callers, and guardrails by their verdicts. */
import type { Row } from '../store/schema.ts';
import type { LogRecord } from './record.ts';

export const MICROS = 1_000_000;

export interface Opinion {
  /** -10 to 10. Of guardrails it may have decimals: scores are then counted by the whole number next to it, averages are exact. */
  readonly value: number;
  /** 0 to 1; kept to six decimals. */
  readonly weight: number;
  readonly metadata: Readonly<Record<string, unknown>> | null;
}

/** The columns that an opinion decides. */
export function opinionColumns({ value, weight, metadata }: Opinion) {
  const weightMicros = Math.round(weight * MICROS);
  return {
    value: Math.round(value) + 0,
    weight_micros: weightMicros,
    weighted_micros: Math.round(value * weightMicros) + 0,
    metadata: metadata === null ? null : { ...metadata },
  } satisfies Partial<Row<'feedback'>>;
}

/** What feedback copies of the record of the request that it is about. */
type Subject = 'provider' | 'config_slug' | 'model_requested' | 'model_sent';

/** The columns that the request decides; `record` is null where the workspace has none of the trace. */
export function subjectColumns(record: Readonly<Record<string, unknown>> | null) {
  const told = (name: Subject & keyof LogRecord): string | null => {
    const value = record?.[name];
    return typeof value === 'string' ? value : null;
  };
  return {
    ai_model: told('model_sent') ?? told('model_requested'),
    provider: told('provider'),
    config_slug: told('config_slug'),
    matched: record !== null,
  } satisfies Partial<Row<'feedback'>>;
}
