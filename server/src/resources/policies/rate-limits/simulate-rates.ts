/** What a rate-limits policy would have blocked: `POST /policies/rate-limits/simulate`. */
import type { z } from 'zod';
import { windowOf } from '../../../limits/admission.ts';
import { ratesEngine } from '../../../limits/simulation/rates.ts';
import type { Row } from '../../../store/schema.ts';
import { type Patch, requireWorkspace, unknownReference } from '../../common.ts';
import { type AnyAction, action, type Call } from '../../resource.ts';
import { afterCommit } from '../../services.ts';
import {
  historyReasons,
  placeOf,
  rangeOf,
  SIMULATIONS,
  simulate,
  simulationAnswer,
  simulationBody,
  subjectOf,
  within,
} from '../simulation.ts';

type PolicyRow = Row<'rate_policies'>;

/** `create` and `changed` make the row of a new policy, and the columns that an update changes. */
export function simulateRates<C, U>(
  create: (call: Call<unknown, unknown, C>) => Promise<{ row: PolicyRow }>,
  changed: (body: U, row: PolicyRow) => Patch<'rate_policies'>,
  policyBody: z.ZodType<C>,
  changesBody: z.ZodType<U>,
): AnyAction {
  return action({
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
    body: simulationBody(policyBody, changesBody),
    response: simulationAnswer,
    writes: false,
    readOnly: true,
    audit: null,
    run: async (call) => {
      const { tx, clock } = call;
      const subject = subjectOf<C, U>(call.body);
      const range = rangeOf(call.body, clock.now());
      const asItIs = subject.id !== undefined && subject.changes === undefined;
      const rowsOf = async (): Promise<{ policy: PolicyRow; active: PolicyRow | null }> => {
        if (subject.id === undefined) {
          requireWorkspace(call);
          const { policy: body } = subject;
          return { policy: (await within('policy', () => create({ ...call, body }))).row, active: null };
        }
        const { id, changes } = subject;
        const active = await tx.find('rate_policies', { id });
        if (active === undefined) throw unknownReference('policy_id', 'rate-limits policy');
        const patch = changes === undefined ? {} : await within('changes', () => changed(changes, active));
        return { policy: { ...active, ...patch }, active };
      };
      const { policy, active } = await rowsOf();
      const place = await placeOf(call, policy.workspace_id);
      const { start } = windowOf(policy.unit, range.from);
      const younger = active !== null && asItIs && active.created_at > start;
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
            asItIs,
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
