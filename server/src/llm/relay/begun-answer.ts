/** An answer whose head has come, which is no error; the caller has seen nothing of it. */
export interface BegunAnswer {
  /** Of the upstream. */
  readonly headers: readonly string[];
  /** `json` is made anew in the caller's shape. */
  readonly mode: 'bytes' | 'json' | 'events';
  /** No fields may be added to it. */
  readonly strict: boolean;
}

/**
 * How output guardrails judge an answer: `events` on their way, all of it `kept` until it was judged, `beside` once it has
 * passed. `denied`: nothing of it is shown.
 */
export type Judging = 'not' | 'events' | 'kept' | 'beside' | 'denied';
