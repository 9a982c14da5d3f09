/** What a caller is told whose request a usage limit does not let pass. */
import { SluiceError } from '../../kernel/errors.ts';
import type { Row } from '../../store/schema.ts';
import { shownAmount, type Terms } from './terms.ts';

const NAMES: Readonly<Record<Terms['ownerKind'], string>> = {
  key: 'API key',
  workspace: 'workspace',
  provider: 'provider',
  'virtual-key': 'virtual key',
  integration: 'integration',
  policy: 'policy',
  token: 'token',
};

type Counted = Pick<Row<'usage_buckets'>, 'used' | 'credit_limit' | 'resets_at' | 'value_key'>;

/** `usage_limit_exceeded` (api §15.5), with what is used, of how much, and when it begins anew. */
export function exceeded(terms: Terms, row: Counted): SluiceError {
  const { type } = terms;
  const amount = (value: number) =>
    type === 'cost'
      ? `$${shownAmount(type, value)}`
      : `${shownAmount(type, value)} ${type === 'tokens' ? 'tokens' : 'requests'}`;
  const whom = terms.ownerKind === 'policy' ? ` for ${row.value_key}` : '';
  const reset =
    row.resets_at === null ? 'It does not reset by itself.' : `It resets at ${new Date(row.resets_at).toISOString()}.`;
  const left = Math.max(0, row.credit_limit - row.used);
  const state =
    left === 0
      ? `is exhausted: ${amount(row.used)} of ${amount(row.credit_limit)} used.`
      : `is taken up: ${amount(row.used)} of ${amount(row.credit_limit)} used, the rest is reserved by requests that still run.`;
  return new SluiceError(
    'usage_limit_exceeded',
    `The usage limit of ${NAMES[terms.ownerKind]} ${terms.label}${whom} ${state} ${reset}`,
  );
}

export function unrecordable(detail?: unknown): SluiceError {
  return new SluiceError(
    'gateway_unavailable',
    'Usage cannot be recorded at the moment, and this request has a usage limit.',
    { detail },
  );
}

export function unreachable(detail: unknown): SluiceError {
  return new SluiceError(
    'gateway_unavailable',
    'The usage limits of this request cannot be read at the moment; try again in a few seconds.',
    { detail },
  );
}
