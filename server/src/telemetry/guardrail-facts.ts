/** What a record tells of a guardrail: verdicts, times and kinds of findings; nothing of what was said. */
export interface GuardrailFacts {
  readonly slug: string;
  /** Of a stored guardrail; null for one inside a config. */
  readonly version: string | null;
  /** Null for one that ran beside the request. */
  readonly phase: 'input' | 'output' | null;
  readonly verdict: boolean;
  readonly deny: boolean;
  readonly async: boolean;
  readonly transformed: boolean;
  readonly skipped: boolean;
  /** Milliseconds. */
  readonly ms: number;
  readonly checks: readonly {
    readonly id: string;
    readonly verdict: boolean;
    readonly ms: number;
    readonly transformed: boolean;
    /** What kind of error it met; null for none. */
    readonly error: string | null;
    /** Kinds of what was found: `EMAIL_ADDRESS`. */
    readonly kinds: readonly string[];
  }[];
}
