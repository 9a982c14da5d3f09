/** Whose error bodies and stream framing the caller expects. */
export type Dialect = 'openai' | 'anthropic' | 'responses';
