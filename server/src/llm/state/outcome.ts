import { Outcome } from '../../gateway/outcome.ts';
import type { TokenUsage } from '../../operations/usage.ts';
import type { FieldChanges } from '../../telemetry/decision-facts.ts';
import type { AttemptRecord } from '../../telemetry/record.ts';
import type { DeliveredPrefix } from '../relay/delivered-prefix.ts';
import type { Target } from '../target.ts';
import type { LlmRequest } from './request.ts';

/** What one attempt used that was not the last. */
export interface Spent {
  readonly usage: TokenUsage;
  /** Whose price it has. */
  readonly target: Target;
  /** As it was sent, and as the answer said, if it did. */
  readonly model: string;
  readonly answered: string | null;
}

/** What became of a request to a model. */
export class LlmOutcome extends Outcome {
  /** Fields of the body that are not sent as they came; null where a body was not looked into. */
  fieldChanges: FieldChanges | null = null;
  readonly attempts: AttemptRecord[] = [];
  /** Upstream calls begun. */
  attemptCount = 0;
  /** Milliseconds between attempts so far. */
  backoffMs = 0;
  /** What the caller has seen of a stream that may have to be continued; null where it never will be. */
  deliveredPrefix: DeliveredPrefix | null = null;
  /** The model that the body of a batch or job names, which is found when it is begun; null for all other requests. */
  modelNamed: string | null = null;
  modelAnswered: string | null = null;
  usage: TokenUsage | null = null;
  /** What attempts used whose answers nobody got; null when there is nothing. */
  spent: Spent[] | null = null;
  usageEstimated = false;
  /** It began something whose usage nobody will be able to read. */
  uncounted = false;
  price: { readonly source: string; readonly rates: Readonly<Record<string, number>> } | null = null;
  /** Milliseconds until the first byte of the answer. */
  firstTokenMs: number | null = null;
  upstreamBytesIn = 0;
  upstreamBytesOut = 0;

  /** The answer is nobody's: another attempt gives one. What the client has seen of it, and what it used, remains. */
  forgetAnswer(): void {
    this.ending = null;
    this.result = 'ok';
    this.errorCode = null;
    this.errorMessage = null;
    this.modelAnswered = null;
    this.costMicros = null;
    if (this.headSent) return;
    this.status = 0;
    this.firstTokenMs = null;
  }

  /** The model as the caller has named it; empty where nobody names one. */
  asked({ model }: Pick<LlmRequest, 'model'>): string {
    return this.modelNamed ?? model;
  }

  /** Of the attempts whose answers nobody got, in their order. */
  spentUsage(): readonly TokenUsage[] {
    return this.spent?.map(({ usage }) => usage) ?? [];
  }
}
