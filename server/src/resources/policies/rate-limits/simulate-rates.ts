/** What a rate-limits policy would have blocked: `POST /policies/rate-limits/simulate`. */
import type { z } from 'zod';
import { windowOf } from '../../../limits/admission.ts';
import { ratesEngine } from '../../../limits/simulation/rates.ts';
import type { Row } from '../../../store/schema.ts';
import { type Patch, requireWorkspace, unknownReference } from '../../common.ts';
import { type AnyAction, action, type Call } from '../../resource.ts';
import { afterCommit } from '../../services.ts';
import {
  checkSubject,
  historyReasons,
  placeOf,
  rangeOf,
  SIMULATIONS,
  simulate,
  simulationAnswer,
  simulationBody,
  within,
} from '../simulation.ts';

type PolicyRow = Row<'rate_policies'>;

/** `create` and `changed` make the row of a new policy, and the columns that an update changes. */
export function simulateRates<C, U>(
  create: (call: Call<unknown, unknown, C>) => Promise<{ row: PolicyRow }>,
  changed: (body: U, row: PolicyRow) => Patch<'rate_policies'>,
  policyBody: z.ZodType,
  changesBody: z.ZodType,
): AnyAction {
  return action<
    unknown,
    unknown,
    {
      readonly policy?: C;
      readonly policy_id?: string;
      readonly changes?: U;
      readonly start_time: string;
      readonly end_time: string;
    },
    unknown
  >({
    id: 'policies.rate-limits.simulate',
    method: 'POST',
    path: '/policies/rate-limits/simulate',
    summary: 'Try a rate-limits policy on stored requests',
    description:
      'Shows the requests that the policy would have blocked: a new policy, or an existing one as it is or with changes. Nothing is written.',
    tag: 'Policies',
    auth: 'key_or_login',
    scopes: ['policies.read'],
    tenant: 'workspace_optional',
    params: null,
    query: null,
    body: simulationBody(policyBody, changesBody) as never,
    response: simulationAnswer as z.ZodType,
    writes: false,
    readOnly: true,
    audit: null,
    run: async (call) => {
      const { tx, clock } = call;
      const { policy: wanted, policy_id: id, changes } = call.body;
      checkSubject(call.body);
      const range = rangeOf(call.body, clock.now());
      const active = id === undefined ? null : ((await tx.find('rate_policies', { id })) ?? null);
      if (id !== undefined && active === null) throw unknownReference('policy_id', 'rate-limits policy');
      let policy: PolicyRow;
      if (active === null) {
        requireWorkspace(call as Call);
        policy = (await within('policy', () => create({ ...call, body: wanted as C }))).row;
      } else if (changes === undefined) policy = active;
      else policy = { ...active, ...(await within('changes', () => changed(changes, active))) };
      const place = await placeOf(call as Call, policy.workspace_id);
      const { start } = windowOf(policy.unit, range.from);
      const younger = active !== null && changes === undefined && active.created_at > start;
      const countedFrom = younger ? Math.min(active.created_at, range.from) : start;
      const reasons = active === null ? [] : historyReasons(active, range, countedFrom);
      if (policy.target === 'mcp_tools') {
        reasons.push({ code: 'not_recorded', message: 'Calls of MCP tools are not recorded.' });
      }
      return afterCommit({ simulations: SIMULATIONS }, ({ signal, simulations }) =>
        simulations.run(call.principal.organisationId, (records) =>
          simulate(call, records, signal, {
            engine: ratesEngine(policy, place, records.countersFor),
            kind: 'rate',
            type: policy.type,
            policyId: active?.id ?? null,
            asItIs: active !== null && changes === undefined,
            place,
            range,
            countedFrom,
            reasons,
          }),
        ),
      );
    },
  });
}
