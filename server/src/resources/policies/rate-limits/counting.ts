/** How requests are counted when a rate-limits policy is tried on them. */

import type { PolicyPlace } from '../../../limits/policies/conditions.ts';
import { windowOf } from '../../../limits/rate-limits.ts';
import { ratesEngine } from '../../../limits/simulation/rates.ts';
import type { SimulationSource } from '../../../limits/simulation/simulation-runner.ts';
import type { TenantTx } from '../../../store/ports.ts';
import type { SimulationInput } from '../simulate.ts';
import { historyReasons } from '../simulation.ts';

export function rateCounting(_tx: TenantTx, { policy, active, asItIs, range }: SimulationInput<'rate_policies'>) {
  const { start } = windowOf(policy.unit, range.from);
  const younger = active !== null && asItIs && active.created_at > start;
  const countedFrom = younger ? Math.min(active.created_at, range.from) : start;
  const reasons = active === null ? [] : historyReasons(active, range, countedFrom);
  if (policy.target === 'mcp_tools') {
    reasons.push({ code: 'not_recorded', message: 'Calls of MCP tools are not recorded.' });
  }
  const engine = (place: PolicyPlace, { countersFor }: SimulationSource) => ratesEngine(policy, place, countersFor);
  return { countedFrom, reasons, engine };
}
