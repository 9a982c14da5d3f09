/** Refusals by usage limits, which tell where the limit stands. */
import type { LimitOwner } from '../store/schema.ts';
import type { LimitState } from './ledger/hold.ts';
import type { Terms } from './ledger/terms.ts';
import { LimitRefused } from './refused.ts';

const NAMES: Readonly<Record<LimitOwner, string>> = {
  key: 'API key',
  workspace: 'workspace',
  provider: 'provider',
  'virtual-key': 'virtual key',
  integration: 'integration',
  policy: 'policy',
  token: 'token',
};

/** `usage_limit_exceeded`, with the limit that refused as the answer's headers tell it. */
export class UsageRefused extends LimitRefused {
  readonly state: LimitState | null;
  /** Of the model, not of what was used: another model may be served. */
  override readonly unpriced: boolean;

  constructor(
    message: string,
    terms: Terms,
    state: LimitState | null,
    retryAfter: number | null,
    committed?: number,
    unpriced = false,
  ) {
    const { ownerKind: kind, ownerId: id, valueKey } = terms;
    super(
      'usage_limit_exceeded',
      message,
      {
        limit: 'usage',
        kind,
        id,
        value_key: kind === 'policy' ? valueKey : null,
        ...(committed === undefined ? {} : { committed }),
      },
      retryAfter === null ? {} : { retryAfter },
    );
    this.state = state;
    this.unpriced = unpriced;
  }
}

/** Whose limit it is, and for whom: `API key ci`, `policy team budget for metadata._user:alice`. */
export function limitName({ ownerKind, label, valueKey }: Terms): string {
  return `${NAMES[ownerKind]} ${label}${ownerKind === 'policy' ? ` for ${shownKey(valueKey)}` : ''}`;
}

/** A policy is of one workspace, whose id says nothing to a caller; a request without the value is said to have none. */
function shownKey(valueKey: string): string {
  const named = valueKey.replace(/(^|-)workspace_id:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/, '$1this workspace');
  return named.endsWith(':') ? `${named} (no value)` : named;
}

/** A limit that does not let pass what has no known price. */
export function unpricedRefused(terms: Terms, model: string): UsageRefused {
  return new UsageRefused(
    `The usage limit of ${limitName(terms)} refuses models without a known price, and none is known for ${model}. Give the model a price in its integration, or set what the limit does with unpriced models.`,
    terms,
    null,
    null,
    undefined,
    true,
  );
}
