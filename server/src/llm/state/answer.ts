import type { Ending, Result } from '../../gateway/outcome.ts';
import type { TokenUsage } from '../../operations/usage.ts';

/** What one call was answered with, or what Sluice answers where none was made. */
export class Answer {
  /** A target was called for it. */
  called = false;
  ending: Ending | null = null;
  /** HTTP status that the client is given; 0 before there is one. */
  status = 0;
  result: Result = 'ok';
  errorCode: string | null = null;
  errorMessage: string | null = null;
  modelAnswered: string | null = null;
  /** What this call has used; null where it is not known, or nothing. */
  usage: TokenUsage | null = null;
  /** Milliseconds until its first byte. */
  firstTokenMs: number | null = null;
}
