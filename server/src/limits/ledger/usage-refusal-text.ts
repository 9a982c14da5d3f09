/** The answer to a caller whose request a usage limit does not let pass. */
import { SluiceError } from '../../kernel/errors.ts';
import type { LimitOwner, Row } from '../../store/schema.ts';
import { limitName, UsageRefused } from '../usage-limit-refused.ts';
import { type LimitSpec, shownAmount } from './limit-spec.ts';

/** Nobody waits for longer, whatever a header says; in milliseconds. */
const MAX_WAIT_MS = 86_400_000;
/** Seconds after which a store that was away may be back. */
const AWAY_S = 2;
/** What is only reserved comes back when requests end. */
const RESERVED_S = 1;

const MONTHS = 'January February March April May June July August September October November December'.split(' ');

type Counted = Pick<Row<'usage_buckets'>, 'used' | 'credit_limit' | 'resets_at' | 'value_key'>;

/**
 * `usage_limit_exceeded`, with what is used, of how much, and when it begins anew. `now` is the store's time,
 * `committed` what was used and reserved then.
 */
export function exceeded(spec: LimitSpec, row: Counted, now: number, committed: number): UsageRefused {
  const { type } = spec;
  const { used, credit_limit: limit, resets_at: resetsAt } = row;
  const shown = (value: number) => `${type === 'cost' ? '$' : ''}${shownAmount(type, value)}`;
  const unit = type === 'cost' ? '' : type === 'tokens' ? ' tokens' : ' requests';
  const left = Math.max(0, limit - used);
  const { limit: name, whom } = limitName(spec);
  const state =
    left === 0
      ? `is used up${whom}: ${shown(used)} of ${shown(limit)}${unit}.`
      : `has no room left${whom}: ${shown(used)} of ${shown(limit)}${unit} are used, and requests that still run have reserved the other ${shown(left)}. Try again when they have ended.`;
  const reset =
    resetsAt === null ? `It does not reset by itself: ${raises(spec)}.` : `It resets on ${dateAndTime(resetsAt)}.`;
  const wait = left > 0 ? RESERVED_S : secondsTo(resetsAt, now);
  return new UsageRefused(`${name} ${state} ${reset}`, spec, { spec, left: 0, free: 0, resetsAt }, wait, committed);
}

/** Who can raise a limit, and where. */
function raises({ ownerKind, ownerId }: LimitSpec): string {
  const [who, where] = RAISED[ownerKind];
  return `an administrator of the ${who} can raise it, in the console or with PUT ${where.replace('{id}', ownerId)}`;
}

const RAISED: Readonly<Record<LimitOwner, readonly [who: 'workspace' | 'organisation', where: string]>> = {
  policy: ['workspace', '/v1/policies/usage-limits/{id}'],
  key: ['workspace', '/v1/api-keys/{id}'],
  provider: ['workspace', '/v1/providers'],
  'virtual-key': ['workspace', '/v1/virtual-keys'],
  workspace: ['organisation', '/v1/admin/workspaces/{id}'],
  integration: ['organisation', '/v1/integrations'],
  token: ['organisation', '/v1/policies/usage-limits'],
};

/** As people write it: `1 December 2026, 00:00 UTC`. */
function dateAndTime(at: number): string {
  const date = new Date(at);
  const time = date.toISOString().slice(11, 16);
  return `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]} ${date.getUTCFullYear()}, ${time} UTC`;
}

function secondsTo(at: number | null, now: number): number | null {
  return at === null || at - now > MAX_WAIT_MS ? null : Math.max(1, Math.ceil((at - now) / 1000));
}

export function unrecordable(detail?: unknown): SluiceError {
  return new SluiceError(
    'out_of_service',
    'Usage cannot be recorded at the moment, and this request has a usage limit.',
    { detail, retryAfter: AWAY_S },
  );
}

export function unreachable(detail: unknown): SluiceError {
  return new SluiceError(
    'out_of_service',
    'The usage limits of this request cannot be read at the moment; try again in a few seconds.',
    { detail, retryAfter: AWAY_S },
  );
}
