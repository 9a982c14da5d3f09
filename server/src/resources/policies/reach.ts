/** How many policies may concern one request: each of them is a counter that it waits for. */
import { compilePolicies } from '../../limits/policies/conditions.ts';
import type { Where } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { refuse } from '../common.ts';
import type { Call } from '../resource.ts';
import { placeOf } from './simulation.ts';

/** Policies of one kind that one request may belong to. */
const MAX_MATCHES = 200;

type PolicyTable = 'rate_policies' | 'usage_policies';

/**
 * Throws 400 when a policy as it will be makes some request belong to more than `MAX_MATCHES` policies of its workspace
 * and kind. Reads them only where there are so many in all.
 */
export async function checkReach<N extends PolicyTable>(
  call: Pick<Call, 'tx' | 'principal'>,
  table: N,
  next: Row<N>,
): Promise<void> {
  const { tx } = call;
  const where = { workspace_id: next.workspace_id, status: 'active' } as Where<PolicyTable> as Where<N>;
  if ((await tx.count(table, { where })) < MAX_MATCHES) return;
  const place = await placeOf(call, next.workspace_id);
  const known = (await tx.list(table, { where })).filter((row) => kindOf(row) === kindOf(next));
  const most = (rows: readonly Row<PolicyTable>[]) => compilePolicies(rows, place)?.most ?? 0;
  const after = most([...known.filter(({ id }) => id !== next.id), next]);
  if (after <= MAX_MATCHES || after <= most(known)) return;
  throw refuse(
    'conditions',
    `would let ${after} policies of the workspace apply to one request; at most ${MAX_MATCHES} may. Name values that fewer policies share, or archive policies`,
  );
}

const kindOf = (row: Row<PolicyTable>) => ('target' in row ? row.target : 'llm');
