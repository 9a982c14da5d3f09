/** The table of feedback on requests: a part of `SCHEMA`. */
import { bool, int, json, nullable, table, text, time } from './column.ts';

export const FEEDBACK_TABLES = {
  /** What callers and guardrails say of requests; kept as long as request logs. No references but to its workspace: it outlives keys and configs. */
  feedback: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    trace_id: text(),
    /** -10 to 10. */
    value: int(),
    /** 0 to 1,000,000: millionths. */
    weight_micros: int(),
    /** `value` times `weight_micros`, which averages are made of. */
    weighted_micros: int(),
    metadata: nullable(json<Record<string, unknown>>()),
    source: text<'api' | 'guardrail'>(),
    /** The key that gave it, or that sent the request which a guardrail judged; null for a signed-in user. */
    api_key_id: nullable(text()),
    /** Whose request it is about where that is known, else who gave it: who sees it where members see their own only. */
    user_id: nullable(text()),
    /** The three of the last request of the trace; null where `matched` is false, or where the request had none. */
    ai_model: nullable(text()),
    provider: nullable(text()),
    config_slug: nullable(text()),
    /** Whether the workspace had a request of this trace. */
    matched: bool(),
    created_at: time(),
    last_updated_at: time(),
  }),
};
