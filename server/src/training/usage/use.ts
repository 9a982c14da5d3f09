/** What a batch or fine-tuning job at a provider used, read from what the provider tells, and what that costs. */
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { OPERATIONS } from '../../operations/operation.ts';
import { chatUsage } from '../../operations/shapes/chat/usage.ts';
import { messagesUsage } from '../../operations/shapes/messages/usage.ts';
import type { FineTuningJob } from '../../operations/training.ts';
import { NO_TOKENS, type TokenUsage, type UsageForm } from '../../operations/usage.ts';
import { costMicros } from '../../pricing/cost.ts';
import type { Pricer } from '../../pricing/price.ts';
import { operationAt, type ResultLine } from '../../providers/batch-lines.ts';
import type { Account } from '../../runtime/object-call.ts';
import { isSuccess } from '../managed/result-line.ts';

/** `object_usage.result`. */
export interface ObjectUse {
  /** Null when nothing told it, or nothing was used. */
  readonly usage: TokenUsage | null;
  readonly estimated: boolean;
  /** Micro-dollars, and picodollars beside them. */
  readonly cost: number;
  readonly carry: number;
  /** Answers of a batch; 0 for jobs. */
  readonly requests: number;
  /** Answers, or a whole object, that used what nobody could count or price. */
  readonly unpriced: number;
  /** That answered. */
  readonly model: string | null;
  readonly price: { readonly source: string; readonly rates: Readonly<Record<string, number>> } | null;
  /** Why something is not counted, for the record. */
  readonly note: string | null;
}

export const NOTHING_USED: ObjectUse = {
  usage: null,
  estimated: false,
  cost: 0,
  carry: 0,
  requests: 0,
  unpriced: 0,
  model: null,
  price: null,
  note: null,
};

export const unknownUse = (note: string): ObjectUse => ({ ...NOTHING_USED, unpriced: 1, note });

/** What a job cost as its answer shows it. */
export interface JobPaid {
  /** Dollars, as they are booked. */
  readonly usd: number;
  /** Where the price came from; null where nothing was trained. */
  readonly basis: string | null;
  readonly usd_per_million_tokens: number | null;
}

/** Null when it is not known. */
export function costOf({ cost, unpriced, price }: ObjectUse): JobPaid | null {
  if (unpriced > 0) return null;
  return {
    usd: cost / 1_000_000,
    basis: price?.source ?? null,
    usd_per_million_tokens: price?.rates.training ?? null,
  };
}

/** Where prices come from. */
export interface Priced {
  readonly account: Pick<Account, 'provider' | 'stored'>;
  readonly pricer: Pick<Pricer, 'price'>;
  /** Milliseconds since the epoch: prices of that moment. */
  readonly at: number;
}

/** How an answer that is not in the shape of its endpoint may tell its usage. */
const OTHERS: readonly UsageForm[] = [chatUsage, messagesUsage];

/** Adds up the answers of a batch, one by one. */
export class BatchMeter {
  readonly #priced: Priced;
  readonly #asked: string | null;
  readonly #forms: readonly UsageForm[];
  #usage: TokenUsage | null = null;
  #cost = 0;
  #carry = 0;
  #requests = 0;
  #unpriced = 0;
  #model: string | null = null;
  #price: ObjectUse['price'] = null;

  /** `asked`: the batch's model, null when its lines name their own. */
  constructor(priced: Priced, endpoint: string, asked: string | null) {
    const operation = operationAt(endpoint);
    this.#priced = priced;
    this.#asked = asked;
    this.#forms = [...(operation === null ? [] : [OPERATIONS[operation].wire.usage]), ...OTHERS];
  }

  add(line: ResultLine): void {
    // A refused or failed call costs nothing, and limits count what was accepted.
    if (!isSuccess(line)) return;
    this.#requests += 1;
    const body = line.response?.body;
    const told = isObject(body) && isObject(body.usage) ? body.usage : null;
    const usage = told === null ? null : first(this.#forms, told);
    if (usage === null) {
      this.#unpriced += 1;
      return;
    }
    this.#usage = sum(this.#usage, usage);
    const answered = isObject(body) && typeof body.model === 'string' ? body.model.slice(0, 2048) : null;
    this.#model ??= answered;
    const { account, pricer, at } = this.#priced;
    const asked = this.#asked ?? answered;
    const price = asked === null ? null : pricer.price(account.provider.id, answered, asked, account.stored, at);
    if (price === null) {
      this.#unpriced += 1;
      return;
    }
    const { micros, carry, rates } = costMicros(price, usage);
    this.#cost += micros;
    this.#carry += carry;
    this.#price ??= { source: price.source, rates };
  }

  total(): ObjectUse {
    const unpriced = this.#unpriced;
    return {
      usage: this.#usage,
      estimated: false,
      cost: this.#cost,
      carry: this.#carry,
      requests: this.#requests,
      unpriced,
      model: this.#model,
      price: this.#price,
      note: unpriced === 0 ? null : `${unpriced} of ${this.#requests} answers have no usage or no known price.`,
    };
  }
}

function first(forms: readonly UsageForm[], told: JsonObject): TokenUsage | null {
  for (const form of forms) {
    const found = form.read(told);
    if (found !== null) return found;
  }
  return null;
}

function sum(a: TokenUsage | null, b: TokenUsage): TokenUsage {
  if (a === null) return b;
  return {
    input: a.input + b.input,
    output: a.output + b.output,
    cache_read: a.cache_read + b.cache_read,
    cache_write: a.cache_write + b.cache_write,
    reasoning: a.reasoning + b.reasoning,
    audio_input: a.audio_input + b.audio_input,
    audio_output: a.audio_output + b.audio_output,
  };
}

/** A price of training. */
export interface TrainingRate {
  /**
   * `finetune_config`: the price of training of the integration's own model. `input_tokens`: no price of training is
   * known, so the model's price of input tokens takes its place; providers usually ask more.
   */
  readonly basis: 'finetune_config' | 'input_tokens';
  readonly usd_per_million_tokens: number;
}

/** A cent a token in dollars a million tokens. */
const FROM_CENTS = 10_000;

/** The integration's own price of training, else the model's price of input tokens; null when neither is known. */
export function trainingRate(model: string, { account, pricer, at }: Priced): TrainingRate | null {
  const config = account.stored?.models.get(model.toLowerCase())?.pricing?.finetune_config;
  const paid = isObject(config) && isObject(config.pay_per_token) ? config.pay_per_token.price : undefined;
  if (typeof paid === 'number' && Number.isFinite(paid) && paid >= 0) {
    return { basis: 'finetune_config', usd_per_million_tokens: Number((paid * FROM_CENTS).toPrecision(12)) };
  }
  const price = pricer.price(account.provider.id, null, model, account.stored, at);
  const input = price?.rates.input;
  return input === undefined ? null : { basis: 'input_tokens', usd_per_million_tokens: input };
}

/**
 * What a job that has ended used: the tokens it trained, whatever became of it. `expected`: an estimate for a job that
 * succeeded at a provider that does not count; `began`: whether it can have trained anything.
 */
export function jobUse(
  job: Pick<FineTuningJob, 'status' | 'trained_tokens'>,
  model: string,
  priced: Priced | null,
  more: { readonly began: boolean; readonly expected: number | null },
): ObjectUse {
  const told =
    typeof job.trained_tokens === 'number' && job.trained_tokens >= 0 ? Math.floor(job.trained_tokens) : null;
  const tokens = told ?? (job.status === 'succeeded' ? more.expected : null);
  if (tokens === null) {
    return more.began || job.status === 'succeeded'
      ? unknownUse(`The provider does not tell what the job used, which has ${job.status}.`)
      : NOTHING_USED;
  }
  const use = {
    ...NOTHING_USED,
    usage: { ...NO_TOKENS, input: tokens },
    estimated: told === null,
    model,
  };
  if (tokens === 0) return use;
  const rate = priced === null ? null : trainingRate(model, priced);
  if (rate === null) return { ...use, unpriced: 1, note: `No price of training ${model.slice(0, 200)} is known.` };
  // Tokens times dollars per million are micro-dollars.
  const micros = Math.ceil(Number((tokens * rate.usd_per_million_tokens).toPrecision(15)));
  const { basis, usd_per_million_tokens: training } = rate;
  return { ...use, cost: Math.min(micros, Number.MAX_SAFE_INTEGER), price: { source: basis, rates: { training } } };
}
