/** Refusals by usage limits, which tell where the limit stands. */
import { groupName } from '../store/limit-types.ts';
import type { LimitOwner } from '../store/schema.ts';
import type { UsageLimitState } from './ledger/held-reservation.ts';
import type { LimitSpec } from './ledger/limit-spec.ts';
import { LimitRefused } from './limit-refused.ts';

const NAMES: Readonly<Record<Exclude<LimitOwner, 'policy'>, string>> = {
  key: 'API key',
  workspace: 'workspace',
  provider: 'provider',
  'virtual-key': 'virtual key',
  integration: 'integration',
  token: 'token',
};

/** `usage_limit_exceeded`, with the limit that refused as the answer's headers tell it. */
export class UsageRefused extends LimitRefused {
  readonly state: UsageLimitState | null;
  /** Of the model, not of what was used: another model may be served. */
  override readonly unpriced: boolean;

  constructor(
    message: string,
    spec: LimitSpec,
    state: UsageLimitState | null,
    retryAfter: number | null,
    committed?: number,
    unpriced = false,
  ) {
    const { ownerKind: kind, ownerId: id, valueKey } = spec;
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

/**
 * Whom a value of a policy means: ` for user alice`. A policy is of one workspace, whose id says nothing to a caller; a
 * request without the value is said to have none. Several values are shown as the API answers them.
 */
function whomOf(given: string): string {
  const valueKey = given.replace(/(^|-)workspace_id:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/, '$1this workspace');
  if (valueKey.endsWith(':')) return ` for ${valueKey} (no value)`;
  const at = valueKey.indexOf(':');
  const value = valueKey.slice(at + 1);
  const group = value.includes(':') ? undefined : groupName(valueKey.slice(0, at));
  return ` for ${group === undefined ? valueKey : `${group} ${value}`}`;
}

/** A limit as the subject of a sentence, and for whom it counts: empty where that is its owner. */
export function limitName({ ownerKind, label, valueKey }: LimitSpec): {
  readonly limit: string;
  readonly whom: string;
} {
  return ownerKind === 'policy'
    ? { limit: `Budget "${label}"`, whom: whomOf(valueKey) }
    : { limit: `The usage limit of ${NAMES[ownerKind]} ${label}`, whom: '' };
}

/** A limit that does not let pass what has no known price. */
export function unpricedRefused(spec: LimitSpec, model: string): UsageRefused {
  const { limit, whom } = limitName(spec);
  return new UsageRefused(
    `${limit} refuses models without a known price${whom}, and none is known for ${model}. Give the model a price in its integration, or set what the limit does with unpriced models.`,
    spec,
    null,
    null,
    undefined,
    true,
  );
}
