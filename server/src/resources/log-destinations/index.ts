/** Log destinations: where records of requests are sent as they come. */

import { z } from 'zod';
import { uuidv7 } from '../../kernel/id.ts';
import type { Row } from '../../store/schema.ts';
import { type BatchRules, DESTINATION_KINDS, type DestinationPlan } from '../../telemetry/log-destination.ts';
import { toIso, toMillis } from '../body-fields.ts';
import { actorId, type Patch, refuse } from '../common.ts';
import { defineResource, itemAction } from '../define.ts';
import { restrictionsOf } from '../logs/exports/rights.ts';
import type { Call } from '../resource.ts';
import { afterCommit, Service } from '../services.ts';
import { signingSecrets } from '../settings/webhook-secret.ts';
import { resourceSpec } from '../spec.ts';
import { checkChoices, checkRoom, LEVELS, planOf, SAMPLE_PARTS, stateOf, visible } from './rules.ts';
import {
  type CreateBody,
  createBody,
  created,
  detail,
  item,
  tested,
  type UpdateBody,
  updateBody,
  updated,
} from './schema.ts';
import { type Destination, openTarget, presentTarget, storedTarget } from './secrets.ts';

/** What came of one sample record. */
export interface DestinationAnswer {
  readonly delivered: boolean;
  readonly status: number | null;
  readonly answer: string;
  readonly message: string | null;
}

/** Sends one sample record to a destination, once. Never rejects for a fault of the far side. */
export type TryDestination = (plan: DestinationPlan, terms: BatchRules) => Promise<DestinationAnswer>;

export const DESTINATION_TRIALS = new Service<{ readonly run: TryDestination }>('way to call log destinations');

/** A node has a row of each. */
const MOST_NODES = 1_000;

async function present(row: Destination, call: Call) {
  return {
    id: row.id,
    name: row.name,
    organisation_id: row.organisation_id,
    workspace_id: row.workspace_id,
    kind: row.kind,
    enabled: row.enabled,
    [row.kind]: await presentTarget(call.vault, call.tenant, row),
    filters: row.filters,
    fields: row.fields,
    bodies: row.bodies,
    sample: row.sample / SAMPLE_PARTS,
    start_at: toIso(row.start_at),
    created_by: row.created_by,
    updated_by: row.updated_by,
    created_at: toIso(row.created_at),
    last_updated_at: toIso(row.last_updated_at),
    object: 'log-destination' as const,
  };
}

async function create(call: Call<unknown, unknown, CreateBody>) {
  const { body, clock, tx, tenant, principal } = call;
  const workspaceId = await LEVELS.place(call, 'a log destination');
  await checkRoom(tx, body.kind);
  const now = clock.now();
  const startAt = body.start_at === undefined ? now : toMillis(body.start_at);
  if (startAt > now) throw refuse('start_at', 'must not be in the future');
  const choices = {
    workspace_id: workspaceId,
    filters: body.filters ?? {},
    fields: body.fields ?? null,
    bodies: body.bodies ?? false,
  };
  await checkChoices(call, choices);
  const id = uuidv7(clock);
  const given = body[body.kind];
  if (given === undefined) throw refuse(body.kind, 'is required');
  const row: Row<'log_destinations'> = {
    id,
    organisation_id: tenant.organisationId,
    ...choices,
    name: body.name,
    kind: body.kind,
    enabled: body.enabled ?? true,
    ...(await storedTarget(call, id, body.kind, given, null)),
    sample: Math.round((body.sample ?? 1) * SAMPLE_PARTS),
    start_at: startAt,
    created_by: actorId(principal),
    updated_by: null,
    created_at: now,
    last_updated_at: now,
  };
  return { row, answer: { id, object: 'log-destination' as const } };
}

async function update(call: Call<unknown, unknown, UpdateBody>, row: Destination) {
  const { body, principal } = call;
  const other = DESTINATION_KINDS.find((kind) => kind !== row.kind && body[kind] !== undefined);
  if (other !== undefined) throw refuse(other, `is for destinations of the kind ${other}; this one is ${row.kind}`);
  const patch: Patch<'log_destinations'> = { updated_by: actorId(principal) };
  if (body.name !== undefined) patch.name = body.name;
  if (body.enabled !== undefined) patch.enabled = body.enabled;
  if (body.filters !== undefined) patch.filters = body.filters;
  if (body.fields !== undefined) patch.fields = body.fields;
  if (body.bodies !== undefined) patch.bodies = body.bodies;
  if (body.sample !== undefined) patch.sample = Math.round(body.sample * SAMPLE_PARTS);
  await checkChoices(call, { ...row, ...patch });
  const given = body[row.kind];
  if (given !== undefined) Object.assign(patch, await storedTarget(call, row.id, row.kind, given, row));
  return { patch, answer: { id: row.id, object: 'log-destination' as const } };
}

const spec = resourceSpec({
  name: 'log_destinations',
  tag: 'Log destinations',
  table: 'log_destinations',
  path: '/log-destinations',
  param: 'destinationId',
  scopes: LEVELS.scopes,
  levels: LEVELS,
  tenant: 'organisation',
  object: 'log-destination',
  noun: 'log destination',
  archives: false,
  visible,
  list: {
    query: z.object({ kind: z.enum(DESTINATION_KINDS).optional() }),
    where: ({ query: { kind } }) => (kind === undefined ? {} : { kind }),
    defaultPageSize: 100,
    maxPageSize: 100,
    item,
    present,
  },
  detail,
  present: async (row, call) => {
    const where = { destination_id: row.id };
    const feeds = await call.tx.list('log_destination_feeds', { where, orderBy: [['node', 'asc']], limit: MOST_NODES });
    return { ...(await present(row, call)), state: stateOf(row, feeds) };
  },
  create: {
    description:
      'Requests are sent from now on, or from `start_at`, each at least once. Without a workspace, and with `organisation_id`, it gets the requests of the whole organisation.',
    example: {
      body: {
        name: 'Langfuse',
        kind: 'otlp',
        otlp: {
          url: 'https://cloud.langfuse.com/api/public/otel/v1/traces',
          headers: { authorization: 'Basic cGstbGYtMTpzay1sZi0x' },
        },
        filters: { ai_model: 'gpt-4o' },
        bodies: true,
      },
    },
    body: createBody,
    response: created,
    run: create,
  },
  update: {
    description: 'Absent fields stay. Secrets stay when they are absent or masks, unless the address is another one.',
    body: updateBody,
    response: updated,
    run: update,
  },
  remove: {
    description: 'What waits for it is deleted, too.',
    clean: async ({ tx }, row) => {
      await tx.remove('log_destination_feeds', { destination_id: row.id });
    },
  },
});

const trial = itemAction(spec, {
  name: 'test',
  method: 'POST',
  summary: 'Send a sample to a log destination',
  description: 'Sends one made-up record once, switched on or off, and says what the far side answered.',
  verb: 'update',
  query: null,
  body: z.strictObject({}).optional(),
  response: tested,
  audit: null,
  run: async (call, row) => {
    const target = await openTarget(call.vault, call.tenant, row);
    const plan = { ...(await planOf(call.vault, call.tenant, row)), target };
    const organisation = await call.tx.organisation();
    const { deniedFields } = await restrictionsOf(call.tx, row.workspace_id);
    const secrets = row.kind === 'webhook' ? signingSecrets(call.vault, organisation, call.clock.now()) : [];
    return afterCommit({ trials: DESTINATION_TRIALS }, async ({ trials }) => {
      const began = call.clock.monotonic();
      const answer = await trials.run(plan, { denied: deniedFields, secrets, origin: call.publicUrl });
      const latency_ms = Math.round(call.clock.monotonic() - began);
      return { object: 'log-destination-test' as const, ...answer, latency_ms };
    });
  },
});

export const logDestinations = defineResource({ ...spec, actions: [trial] });
