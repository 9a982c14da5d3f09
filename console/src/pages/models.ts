/** Models of the sandbox provider: offline, deterministic, free. */
export interface SandboxModel {
  readonly id: string;
  readonly label: string;
  readonly hint: string;
  /** Shows how the gateway reports a failing provider. */
  readonly fault: boolean;
}

/** Chosen when the page opens: paced, so that the first answer is seen to arrive. */
export const FIRST_MODEL = '@sandbox/lorem?tokens=60&tokens_per_s=40';

export const SANDBOX_MODELS: readonly SandboxModel[] = [
  { id: '@sandbox/echo', label: 'Echo', hint: 'Repeats your prompt.', fault: false },
  { id: FIRST_MODEL, label: 'Lorem', hint: 'Answers with 60 tokens of filler text, 40 a second.', fault: false },
  {
    id: '@sandbox/slow?ttft_ms=800&tokens_per_s=20',
    label: 'Slow',
    hint: 'Waits 0.8 s, then streams 20 tokens a second. A good one to stop half way.',
    fault: false,
  },
  {
    id: '@sandbox/error?status=429&retry_after=2',
    label: 'Rate limited',
    hint: 'The provider refuses with 429 and asks to wait 2 s.',
    fault: true,
  },
  {
    id: '@sandbox/cut?after_tokens=12',
    label: 'Cut off',
    hint: 'The provider drops the connection after 12 tokens; the gateway says so instead of ending quietly.',
    fault: true,
  },
  {
    id: '@sandbox/malformed?event=6',
    label: 'Malformed',
    hint: 'The provider sends a broken event in mid-stream.',
    fault: true,
  },
];
