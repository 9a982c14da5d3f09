import type { Ending, Outcome, Result } from '../../gateway/outcome.ts';
import type { TokenUsage } from '../../operations/usage.ts';
import type { FieldChanges } from '../../telemetry/decision-facts.ts';
import type { AttemptRecord } from '../../telemetry/record.ts';
import type { DeliveredPrefix } from '../relay/delivered-prefix.ts';
import type { Target } from '../target.ts';
import { Answer } from './answer.ts';
import type { LlmRequest } from './request.ts';
import { RequestTimes } from './request-times.ts';

/** What one attempt used that was not the last. */
export interface Spent {
  readonly usage: TokenUsage;
  /** Whose price it has. */
  readonly target: Target;
  /** As it was sent, and as the answer said, if it did. */
  readonly model: string;
  readonly answered: string | null;
}

/**
 * What became of a request to a model. It is only added to: a further call begins another answer, and what was said before stays.
 * What it says of an answer it says of the last one, which the client gets.
 */
export class LlmOutcome implements Outcome {
  /** The last. */
  answer = new Answer();
  /** Those before it, in their order; null without any. */
  passedOver: Answer[] | null = null;
  /** The client has the status and the headers. */
  headSent = false;
  /** Of the whole request; known when it is settled. */
  costMicros: number | null = null;
  /** What `costMicros` leaves out, picodollars (`pricing/cost.ts`). */
  costCarry = 0;
  /** Something was used whose cost nobody knows. */
  unpriced = false;
  /** Bytes of bodies, from and to the client. */
  bytesIn = 0;
  bytesOut = 0;
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
  /** Of all calls together; known when it is settled. */
  usage: TokenUsage | null = null;
  /** What calls used whose answers nobody got; null when there is nothing. */
  spent: Spent[] | null = null;
  usageEstimated = false;
  /** It began something whose usage nobody will be able to read. */
  uncounted = false;
  price: { readonly source: string; readonly rates: Readonly<Record<string, number>> } | null = null;
  readonly times = new RequestTimes();
  upstreamBytesIn = 0;
  upstreamBytesOut = 0;

  get ending(): Ending | null {
    return this.answer.ending;
  }

  set ending(ending: Ending | null) {
    this.answer.ending = ending;
  }

  get status(): number {
    return this.answer.status;
  }

  set status(status: number) {
    this.answer.status = status;
  }

  get result(): Result {
    return this.answer.result;
  }

  set result(result: Result) {
    this.answer.result = result;
  }

  get errorCode(): string | null {
    return this.answer.errorCode;
  }

  set errorCode(code: string | null) {
    this.answer.errorCode = code;
  }

  get errorMessage(): string | null {
    return this.answer.errorMessage;
  }

  set errorMessage(message: string | null) {
    this.answer.errorMessage = message;
  }

  get modelAnswered(): string | null {
    return this.answer.modelAnswered;
  }

  set modelAnswered(model: string | null) {
    this.answer.modelAnswered = model;
  }

  get firstTokenMs(): number | null {
    return this.answer.firstTokenMs;
  }

  set firstTokenMs(ms: number | null) {
    this.answer.firstTokenMs = ms;
  }

  /**
   * Another call gives the answer. The last one is kept, and what it used stays on the account of the target that it was sent to.
   * What the client has seen of it, it has seen.
   *
   * @param target that gave it; null where none did
   * @param model as it was sent
   */
  passOver(target: Target | null, model: string): void {
    const { answer, headSent } = this;
    const { usage, modelAnswered: answered } = answer;
    if (usage !== null && target !== null) this.spend({ usage, target, model, answered });
    this.passedOver ??= [];
    this.passedOver.push(answer);
    this.answer = new Answer();
    if (!headSent) return;
    this.answer.status = answer.status;
    this.answer.firstTokenMs = answer.firstTokenMs;
  }

  /** A call has used something, and its answer is nobody's. */
  spend(spent: Spent): void {
    this.spent ??= [];
    this.spent.push(spent);
  }

  /** The model as the caller has named it; empty where nobody names one. */
  asked({ model }: Pick<LlmRequest, 'model'>): string {
    return this.modelNamed ?? model;
  }

  /** Of the calls whose answers nobody got, in their order. */
  spentUsage(): readonly TokenUsage[] {
    return this.spent?.map(({ usage }) => usage) ?? [];
  }
}
