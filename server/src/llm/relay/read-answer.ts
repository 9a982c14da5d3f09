/**
 * An answer in one piece that is converted, or whose provider's own transform may change it: read, judged and written again. Made
 * of data alone, so that a thread does it as the event loop does (`../large/`).
 */
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { asProviderError } from '../../operations/dialects/errors.ts';
import { embeddedError, type ProviderError } from '../../operations/dialects/provider-error.ts';
import { OPERATIONS, type OperationId } from '../../operations/operation.ts';
import { SHAPES } from '../../operations/shapes/index.ts';
import type { Bound } from '../../providers/binding.ts';
import type { CallContext } from '../../providers/provider.ts';
import { creationFacts } from '../ownership/creation.ts';
import { type Flaws, flawsOf, readObject } from './answer-flaws.ts';
import { failureIn } from './content.ts';
import { answerTouches, headerOf, nameOf } from './response-inspection.ts';
import { tellsError } from './tells-error.ts';
import { findUsage } from './usage-extraction.ts';

export interface AnswerOrder {
  readonly operation: OperationId;
  readonly raw: Buffer;
  /** Of the upstream. */
  readonly headers: readonly string[];
  /** The answer tells what was made at the account, and somebody notes it. */
  readonly creates: boolean;
}

export interface ReadAnswer {
  /** The answer is an error, whatever its status. */
  readonly error: ProviderError | null;
  /** The transform found it: what was used up to there counts. */
  readonly late: boolean;
  readonly model: string | null;
  /** As the provider reports it. */
  readonly usage: JsonObject | null;
  /** The same in the answer as it is converted, where the provider's own has none. */
  readonly made: JsonObject | null;
  readonly flaws: Flaws;
  /** What made it fail that came with a status of success. */
  readonly failure: ProviderError | null;
  readonly created: JsonObject | null;
  /** What the caller gets; null: the answer as it came. */
  readonly bytes: Buffer | null;
  /** What the caller gets tells of an error (`tells-error.ts`). */
  readonly tells: boolean;
}

const SOUND: Flaws = { missing: null, failure: null, filtered: false };
const NOTHING: Omit<ReadAnswer, 'error'> = {
  late: false,
  model: null,
  usage: null,
  made: null,
  flaws: SOUND,
  failure: null,
  created: null,
  bytes: null,
  tells: false,
};

/** Throws SluiceError('upstream_invalid'), and what transforms throw. */
export function readAnswer(order: AnswerOrder, bound: Bound, context: CallContext): ReadAnswer {
  const { raw } = order;
  const { binding } = bound;
  const operation = OPERATIONS[order.operation];
  const answer = readObject(raw);
  const body = binding.received?.(answer, (name) => headerOf(order.headers, name)) ?? answer;
  const embedded = SHAPES[binding.shape].isOpen ? null : embeddedError(body);
  if (embedded !== null) return { ...NOTHING, error: embedded };
  const model = nameOf(body[binding.modelKey ?? 'model']);
  const usage = findUsage(body, binding.usagePath);
  const touches = answerTouches(bound);
  const touched = touches === null || touches.some((text) => raw.includes(text));
  let out = body;
  if (touched && bound.response !== undefined) {
    try {
      out = bound.response(body, context);
    } catch (error) {
      if (!(error instanceof SluiceError) || error.kind !== 'provider_error') throw error;
      return { ...NOTHING, error: asProviderError(error), late: true, model, usage };
    }
  }
  const bytes = touched ? Buffer.from(JSON.stringify(out)) : null;
  return {
    error: null,
    late: false,
    model,
    usage,
    made: usage === null ? findUsage(out, undefined) : null,
    flaws: flawsOf(operation, out),
    failure: failureIn(operation, out),
    created: order.creates ? creationFacts(answer) : null,
    bytes,
    tells: tellsError(bytes ?? raw),
  };
}
