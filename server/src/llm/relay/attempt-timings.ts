import type { Clock } from '../../kernel/clock.ts';
import type { AttemptRecord } from '../../telemetry/record.ts';
import { rounded } from '../attempt-cause.ts';

/** When what happened in an attempt, by the monotonic clock; 0 where it has not. */
export class AttemptTimings {
  sentAt = 0;
  /** How long its connection took to make, milliseconds. */
  connectMs = 0;
  headAt = 0;
  /** Of streams. */
  contentAt = 0;
  /** The last byte had come; 0 where that was when the attempt ended, as it is of what is passed on as it comes. */
  endedAt = 0;

  /** The answer is whole: what is done with it now is no time of the upstream. */
  ends(clock: Clock): void {
    if (this.endedAt === 0) this.endedAt = clock.monotonic();
  }

  /** As the record has it. `started`: of the attempt, signing in included. */
  since(started: number): Pick<AttemptRecord, 'queued_ms' | 'connect_ms' | 'first_byte_ms' | 'first_content_ms'> {
    const { sentAt, connectMs, headAt, contentAt } = this;
    const waited = sentAt === 0 ? 0 : Math.max(0, sentAt - started);
    // The connection may have been begun for another call, before this one.
    const connecting = Math.min(connectMs, waited);
    return {
      queued_ms: sentAt === 0 ? undefined : rounded(waited - connecting),
      connect_ms: sentAt === 0 ? undefined : rounded(connecting),
      first_byte_ms: headAt === 0 ? undefined : rounded(headAt - started),
      first_content_ms: contentAt === 0 ? undefined : rounded(contentAt - started),
    };
  }
}
