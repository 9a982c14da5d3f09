/** MCP servers whose tool calls a guardrail watches. */
import { z } from 'zod';
import { uuidv7 } from '../../kernel/id.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { Row, ToolCallPhase } from '../../store/schema.ts';
import { refuse } from '../common.ts';
import { emptyAnswer, itemAction } from '../define.ts';
import { isUuid, tenantFields } from '../fields.ts';
import { childList } from '../kinds/child.ts';
import { ARRAY } from '../kinds/lists.ts';
import { upsert } from '../kinds/upsert.ts';
import { notFound } from '../look-up.ts';
import type { Call } from '../resource.ts';
import type { ResourceSpec } from '../spec.ts';
import type { Guardrail } from './rules.ts';
import { mapping as mappingAnswer } from './schema.ts';

type Mapping = Row<'guardrail_mcp_servers'>;

const MAX_SERVERS = 1000;
const MAX_CAPABILITIES = 1000;

/** `input` and `output` are the names of an older description. */
const PHASES: Readonly<Record<string, ToolCallPhase>> = {
  beforeToolCall: 'beforeToolCall',
  afterToolCall: 'afterToolCall',
  input: 'beforeToolCall',
  output: 'afterToolCall',
};

const phase = z.enum(['beforeToolCall', 'afterToolCall', 'input', 'output']);
const uuid = z.string().refine(isUuid, 'must be a UUID').toLowerCase();
const capabilities = z.array(uuid).max(MAX_CAPABILITIES).optional();

const mappingFields = {
  run_on: z.array(phase).min(1).max(4).optional().describe('Both phases without it.'),
  capability_ids: capabilities.describe('Tools of the server; all of them without it.'),
  mcp_integration_capability_ids: capabilities.describe('The same under its older name.'),
};
const oneName = (given: { capability_ids?: unknown; mcp_integration_capability_ids?: unknown }) =>
  given.capability_ids === undefined || given.mcp_integration_capability_ids === undefined;
const twoNames = {
  path: ['mcp_integration_capability_ids'],
  message: 'is the older name of capability_ids: send one of the two',
};
const mappingBody = z.strictObject(mappingFields).refine(oneName, twoNames);
type MappingBody = z.output<typeof mappingBody>;

const replaceBody = z.strictObject({
  ...tenantFields,
  mcp_servers: z
    .record(z.string(), mappingBody)
    .refine((servers) => Object.keys(servers).length <= MAX_SERVERS, `must name at most ${MAX_SERVERS} servers`)
    .describe('By id of the MCP server. Servers that are left out lose their mapping.'),
});
const upsertBody = z.strictObject({ ...tenantFields, ...mappingFields }).refine(oneName, twoNames);

const present = ({ id, guardrail_id, mcp_server_id, run_on, capability_ids }: Mapping) => ({
  id,
  guardrail_id,
  mcp_server_id,
  run_on,
  capability_ids,
});

export async function mappingsOf(tx: TenantTx, guardrailId: string) {
  const where = { guardrail_id: guardrailId };
  return (await tx.list('guardrail_mcp_servers', { where, orderBy: [['id', 'asc']] })).map(present);
}

const phasesOf = (given: MappingBody['run_on']): ToolCallPhase[] => [
  ...new Set((given ?? ['beforeToolCall', 'afterToolCall']).map((one) => PHASES[one] as ToolCallPhase)),
];

/** Refuses with 400 a guardrail that does not watch tool calls. */
function checkWatches(row: Guardrail): void {
  if (row.target === 'mcp_tools') return;
  throw refuse(
    'guardrailId',
    'names a guardrail of calls of models: only those with target mcp_tools watch MCP servers',
  );
}

function serverId(value: string, param: string): string {
  if (!isUuid(value)) throw refuse(param, 'must be the UUID of an MCP server');
  return value.toLowerCase();
}

/** A mapping as it is wanted: what is left out is as in `kept`, else it gets its default. */
function mappingOf(
  call: Call,
  guardrail: Guardrail,
  server: string,
  wanted: MappingBody,
  before: Mapping | undefined,
  kept: Mapping | undefined,
): Mapping {
  const named = wanted.capability_ids ?? wanted.mcp_integration_capability_ids ?? kept?.capability_ids ?? [];
  const now = call.clock.now();
  return {
    id: before?.id ?? uuidv7(call.clock),
    organisation_id: guardrail.organisation_id,
    guardrail_id: guardrail.id,
    mcp_server_id: server,
    run_on: wanted.run_on === undefined && kept ? kept.run_on : phasesOf(wanted.run_on),
    capability_ids: [...new Set(named)],
    created_at: before?.created_at ?? now,
    last_updated_at: now,
  };
}

const same = (a: Mapping, b: Mapping) =>
  a.run_on.join() === b.run_on.join() && a.capability_ids.join() === b.capability_ids.join();

const put = (call: Call, existing: readonly Mapping[], wanted: readonly Mapping[], others: 'stay' | 'go') =>
  upsert(call.tx, 'guardrail_mcp_servers', ['id'], existing, wanted, { others, same });

type Spec = ResourceSpec<'guardrails', 'guardrail_versions'>;
const name = 'mcp-servers';
const path = `/${name}/:mcpServerId`;

const list = (spec: Spec) =>
  childList(spec, {
    name: `${name}.list`,
    path: `/${name}`,
    summary: 'List the MCP servers of a guardrail',
    table: 'guardrail_mcp_servers',
    where: (guardrail) => {
      checkWatches(guardrail);
      return { guardrail_id: guardrail.id };
    },
    orderBy: [['id', 'asc']],
    item: mappingAnswer,
    envelope: ARRAY,
    present: (rows) => rows.map(present),
  });

const replace = (spec: Spec) =>
  itemAction(spec, {
    name: `${name}.replace`,
    path: `/${name}`,
    method: 'PUT',
    summary: 'Set the MCP servers of a guardrail',
    description: 'Replaces all mappings: `{}` clears them.',
    verb: 'update',
    query: null,
    body: replaceBody,
    response: z.object({ changed: z.boolean(), added: z.int(), updated: z.int(), removed: z.int() }),
    audit: 'update',
    run: async (call, guardrail) => {
      checkWatches(guardrail);
      const where = { guardrail_id: guardrail.id };
      const existing = await call.tx.list('guardrail_mcp_servers', { where, orderBy: [['id', 'asc']] });
      const wanted = new Map<string, Mapping>();
      for (const [given, body] of Object.entries(call.body.mcp_servers)) {
        const server = serverId(given, `mcp_servers.${given}`);
        if (wanted.has(server)) throw refuse(`mcp_servers.${given}`, 'repeats a server');
        const before = existing.find(({ mcp_server_id }) => mcp_server_id === server);
        wanted.set(server, mappingOf(call, guardrail, server, body, before, undefined));
      }
      const done = await put(call, existing, [...wanted.values()], 'go');
      const after = await mappingsOf(call.tx, guardrail.id);
      call.audit(guardrail.id, { before: { mcp_servers: existing.map(present) }, after: { mcp_servers: after } });
      const changed = done.added + done.updated + done.removed > 0;
      return { ...(changed ? { patch: {} } : {}), answer: { changed, ...done } };
    },
  });

const update = (spec: Spec) =>
  itemAction(spec, {
    name: `${name}.update`,
    path,
    method: 'PUT',
    summary: 'Let a guardrail watch an MCP server',
    description: 'For a server that is mapped already, what is left out stays as it is.',
    verb: 'update',
    query: null,
    body: upsertBody,
    response: z.object({ map_id: z.string() }),
    audit: 'update',
    run: async (call, guardrail) => {
      checkWatches(guardrail);
      const server = serverId(call.params.mcpServerId ?? '', 'mcpServerId');
      const key = { guardrail_id: guardrail.id, mcp_server_id: server };
      const before = await call.tx.find('guardrail_mcp_servers', key);
      const after = mappingOf(call, guardrail, server, call.body, before, before);
      const done = await put(call, before === undefined ? [] : [before], [after], 'stay');
      call.audit(guardrail.id, { before: before === undefined ? null : present(before), after: present(after) });
      return { ...(done.added + done.updated > 0 ? { patch: {} } : {}), answer: { map_id: after.id } };
    },
  });

const remove = (spec: Spec) =>
  itemAction(spec, {
    name: `${name}.delete`,
    path,
    method: 'DELETE',
    summary: 'Take an MCP server from a guardrail',
    verb: 'update',
    response: emptyAnswer,
    audit: 'update',
    run: async (call, guardrail) => {
      checkWatches(guardrail);
      const given = call.params.mcpServerId ?? '';
      if (!isUuid(given)) throw notFound();
      const server = given.toLowerCase();
      const gone = await call.tx.remove('guardrail_mcp_servers', { guardrail_id: guardrail.id, mcp_server_id: server });
      if (gone === 0) throw notFound();
      call.audit(guardrail.id, { before: { mcp_server_id: server }, after: null });
      return { patch: {}, answer: {} };
    },
  });

export const mappingActions = [list, replace, update, remove] as const;
