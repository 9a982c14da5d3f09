/** What a caller is told whose request a usage limit does not let pass. */
import { SluiceError } from '../../kernel/errors.ts';
import type { Row } from '../../store/schema.ts';
import { limitName, UsageRefused } from '../usage-refused.ts';
import { shownAmount, type Terms } from './terms.ts';

/** Nobody waits for longer, whatever a header says; in milliseconds. */
const MAX_WAIT_MS = 86_400_000;
/** Seconds after which books that were away may be back. */
const AWAY_S = 2;
/** What is only reserved comes back when requests end. */
const RESERVED_S = 1;

type Counted = Pick<Row<'usage_buckets'>, 'used' | 'credit_limit' | 'resets_at' | 'value_key'>;

/**
 * `usage_limit_exceeded` (api §15.5), with what is used, of how much, and when it begins anew. `now` is the store's time,
 * `committed` what was used and reserved then.
 */
export function exceeded(terms: Terms, row: Counted, now: number, committed: number): UsageRefused {
  const { type } = terms;
  const { used, credit_limit: limit, resets_at: resetsAt } = row;
  const amount = (value: number) =>
    type === 'cost'
      ? `$${shownAmount(type, value)}`
      : `${shownAmount(type, value)} ${type === 'tokens' ? 'tokens' : 'requests'}`;
  const left = Math.max(0, limit - used);
  const state =
    left === 0
      ? `is exhausted: ${amount(used)} of ${amount(limit)} used, nothing left.`
      : `is taken up: ${amount(used)} of ${amount(limit)} used, the other ${amount(left)} reserved by requests that still run; try again when they have ended.`;
  const reset =
    resetsAt === null ? 'It does not reset by itself.' : `It resets at ${new Date(resetsAt).toISOString()}.`;
  const wait = left > 0 ? RESERVED_S : secondsTo(resetsAt, now);
  return new UsageRefused(
    `The usage limit of ${limitName(terms)} ${state} ${reset}`,
    terms,
    { terms, left: 0, resetsAt },
    wait,
    committed,
  );
}

function secondsTo(at: number | null, now: number): number | null {
  return at === null || at - now > MAX_WAIT_MS ? null : Math.max(1, Math.ceil((at - now) / 1000));
}

export function unrecordable(detail?: unknown): SluiceError {
  return new SluiceError(
    'gateway_unavailable',
    'Usage cannot be recorded at the moment, and this request has a usage limit.',
    { detail, retryAfter: AWAY_S },
  );
}

export function unreachable(detail: unknown): SluiceError {
  return new SluiceError(
    'gateway_unavailable',
    'The usage limits of this request cannot be read at the moment; try again in a few seconds.',
    { detail, retryAfter: AWAY_S },
  );
}
