/** What a policy would have blocked: `POST /policies/{rate,usage}-limits/simulate`. */
import type { z } from 'zod';
import type { PolicyPlace } from '../../limits/policies/conditions.ts';
import type { Engine } from '../../limits/simulation/replay.ts';
import type { SimulationSource } from '../../limits/simulation/simulation-runner.ts';
import type { TenantTx, Where } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { requireWorkspace, unknownReference } from '../common.ts';
import { type AnyAction, action, type Call } from '../resource.ts';
import { afterCommit } from '../services.ts';
import {
  placeOf,
  type Range,
  type Reason,
  rangeOf,
  SIMULATIONS,
  simulate,
  simulationAnswer,
  simulationBody,
  subjectOf,
  within,
} from './simulation.ts';

type PolicyTable = 'rate_policies' | 'usage_policies';

/** The policy that is tried. */
export interface SimulationInput<T extends PolicyTable> {
  readonly policy: Row<T>;
  /** The policy in force that `policy_id` names. */
  readonly active: Row<T> | null;
  /** Whether that one is tried without changes. */
  readonly asItIs: boolean;
  readonly range: Range;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/** From when on requests are counted, what makes the count inexact, and what counts. */
export interface Counting<M, H> {
  readonly countedFrom: number;
  readonly reasons: readonly Reason[];
  readonly engine: (place: PolicyPlace, records: SimulationSource) => Engine<M, H>;
}

/** Policies of one kind: `C` and `U` are bodies of a create and of an update, `M` and `H` are of the engine that counts. */
export interface SimulatedKind<T extends PolicyTable, C, U, M, H> {
  readonly kind: 'rate' | 'usage';
  readonly table: T;
  /** As in its path and its errors. */
  readonly name: 'rate-limits' | 'usage-limits';
  readonly bodies: { readonly policy: z.ZodType<C>; readonly changes: z.ZodType<U> };
  /** The row of a new policy. The clock of `call` shows the start of the range. */
  readonly created: (call: Call<unknown, unknown, C>) => Promise<{ readonly row: Row<T> }>;
  /** The row of a policy with changes, as if made at `from`. */
  readonly changed: (changes: U, active: Row<T>, from: number) => Row<T>;
  readonly counting: (tx: TenantTx, input: SimulationInput<T>) => Counting<M, H> | Promise<Counting<M, H>>;
}

/** The action that tries policies of one kind on stored requests. */
export function simulateAction<T extends PolicyTable, C, U, M, H>(of: SimulatedKind<T, C, U, M, H>): AnyAction {
  return action({
    id: `policies.${of.name}.simulate`,
    method: 'POST',
    path: `/policies/${of.name}/simulate`,
    summary: `Try a ${of.name} policy on stored requests`,
    description:
      'Shows the requests that the policy would have blocked: a new policy as if made at start_time, or an existing one as it is or with changes. Nothing is written.',
    tag: 'Policies',
    auth: 'key_or_login',
    scopes: ['policies.read'],
    tenant: 'workspace_optional',
    params: null,
    query: null,
    body: simulationBody(of.bodies.policy, of.bodies.changes),
    response: simulationAnswer,
    writes: false,
    readOnly: true,
    audit: null,
    run: async (call) => {
      const { tx, clock } = call;
      const subject = subjectOf<C, U>(call.body);
      const now = clock.now();
      const range = rangeOf(call.body, now);
      const rowsOf = async (): Promise<{ policy: Row<T>; active: Row<T> | null }> => {
        if (subject.id === undefined) {
          requireWorkspace(call);
          const past = { ...call, body: subject.policy, clock: { ...clock, now: () => range.from } };
          return { policy: (await within('policy', () => of.created(past))).row, active: null };
        }
        const { id, changes } = subject;
        const active = await tx.find(of.table, { id } as Where<T>);
        if (active === undefined) throw unknownReference('policy_id', `${of.name} policy`);
        if (changes === undefined) return { policy: active, active };
        return { policy: await within('changes', () => of.changed(changes, active, range.from)), active };
      };
      const { policy, active } = await rowsOf();
      const place = await placeOf(call, policy.workspace_id);
      const asItIs = subject.id !== undefined && subject.changes === undefined;
      const { countedFrom, reasons, engine } = await of.counting(tx, { policy, active, asItIs, range, now });
      return afterCommit({ simulations: SIMULATIONS }, ({ signal, simulations }) =>
        simulations.run(call.principal.organisationId, (records) =>
          simulate(call, records, signal, {
            engine: engine(place, records),
            kind: of.kind,
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
