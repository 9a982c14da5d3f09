/** MCP servers whose tool calls a guardrail watches. */
import { z } from 'zod';
import { uuidv7 } from '../../kernel/id.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { Row, ToolCallPhase } from '../../store/schema.ts';
import { refuse } from '../common.ts';
import { emptyAnswer, findRow, notFound } from '../define.ts';
import { isUuid, tenantFields } from '../fields.ts';
import type { AnyAction, Call } from '../resource.ts';
import { type Guardrail, levelOf, PATH_PREFIX, PREFIXES, requireLevel, type Verb, visible } from './rules.ts';
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

const target = { table: 'guardrails', param: 'guardrailId', pathPrefix: PATH_PREFIX, archives: true, visible } as const;
type Params = { guardrailId: string; mcpServerId: string };

const present = ({ id, guardrail_id, mcp_server_id, run_on, capability_ids }: Mapping) => ({
  id,
  guardrail_id,
  mcp_server_id,
  run_on,
  capability_ids,
});

export async function mappingsOf(tx: TenantTx, guardrailId: string) {
  const rows = await tx.list('guardrail_mcp_servers', {
    where: { guardrail_id: guardrailId },
    orderBy: [['id', 'asc']],
  });
  return rows.map(present);
}

const phasesOf = (given: MappingBody['run_on']): ToolCallPhase[] => [
  ...new Set((given ?? ['beforeToolCall', 'afterToolCall']).map((one) => PHASES[one] as ToolCallPhase)),
];

/** The guardrail of the path, which must watch tool calls. */
async function guardrailOf(
  call: Call<never, never, never> | Call,
  verb: Exclude<Verb, 'list' | 'create'>,
): Promise<Guardrail> {
  const row = await findRow(target, call as Call<Record<string, unknown>>, verb);
  requireLevel(call, levelOf(row), verb);
  if (row.target !== 'mcp_tools') {
    throw refuse(
      'guardrailId',
      'names a guardrail of calls of models: only those with target mcp_tools watch MCP servers',
    );
  }
  return row;
}

function serverId(value: string, param: string): string {
  if (!isUuid(value)) throw refuse(param, 'must be the UUID of an MCP server');
  return value.toLowerCase();
}

interface Put {
  readonly before: Mapping | null;
  readonly after: Mapping;
  readonly did: 'added' | 'updated' | null;
}

/**
 * Writes a mapping as it is wanted.
 *
 * @param keeps what is left out stays as it is where there is a mapping; otherwise it gets its default
 */
async function put(
  call: Call<never, never, never> | Call,
  guardrail: Guardrail,
  server: string,
  wanted: MappingBody,
  keeps: boolean,
): Promise<Put> {
  const { tx, clock } = call;
  const row = await tx.find('guardrail_mcp_servers', { guardrail_id: guardrail.id, mcp_server_id: server });
  const kept = keeps ? row : undefined;
  const run_on = wanted.run_on === undefined && kept ? kept.run_on : phasesOf(wanted.run_on);
  const named = wanted.capability_ids ?? wanted.mcp_integration_capability_ids ?? kept?.capability_ids ?? [];
  const capability_ids = [...new Set(named)];
  const now = clock.now();
  if (row === undefined) {
    const { organisation_id, id: guardrail_id } = guardrail;
    const stamps = { created_at: now, last_updated_at: now };
    const own = { organisation_id, guardrail_id, mcp_server_id: server, run_on, capability_ids, ...stamps };
    const after = { id: uuidv7(clock), ...own };
    await tx.insert('guardrail_mcp_servers', after);
    return { before: null, after, did: 'added' };
  }
  const same = run_on.join() === row.run_on.join() && capability_ids.join() === row.capability_ids.join();
  if (same) return { before: row, after: row, did: null };
  const change = { run_on, capability_ids, last_updated_at: now };
  await tx.update('guardrail_mcp_servers', { id: row.id }, change);
  return { before: row, after: { ...row, ...change }, did: 'updated' };
}

function announce(call: Call<never, never, never> | Call, row: Guardrail): void {
  call.tx.changed({ workspaceId: row.workspace_id, topic: 'guardrails', entityId: row.id });
}

const common = {
  tag: 'Guardrails',
  auth: 'key_or_login',
  tenant: 'organisation',
} as const;
const scopes = (verb: Verb) => PREFIXES.map((prefix) => `${prefix}.${verb}`);
const path = '/guardrails/:guardrailId/mcp-servers';
const query = z.strictObject(tenantFields);
const audit = { action: 'update', resource: 'guardrails' } as const;

const list: AnyAction = {
  ...common,
  id: 'guardrails.mcp-servers.list',
  method: 'GET',
  path,
  summary: 'List the MCP servers of a guardrail',
  scopes: scopes('read'),
  params: z.strictObject({ guardrailId: z.string() }),
  query,
  body: null,
  response: z.array(mappingAnswer),
  writes: false,
  audit: null,
  run: async (call: Call) => mappingsOf(call.tx, (await guardrailOf(call, 'read')).id),
};

const replace: AnyAction = {
  ...common,
  id: 'guardrails.mcp-servers.replace',
  method: 'PUT',
  path,
  summary: 'Set the MCP servers of a guardrail',
  description: 'Replaces all mappings: `{}` clears them.',
  scopes: scopes('update'),
  params: z.strictObject({ guardrailId: z.string() }),
  query: null,
  body: replaceBody,
  response: z.object({ changed: z.boolean(), added: z.int(), updated: z.int(), removed: z.int() }),
  writes: true,
  audit,
  run: async (call: Call<{ guardrailId: string }, unknown, z.output<typeof replaceBody>>) => {
    const guardrail = await guardrailOf(call as unknown as Call, 'update');
    const before = await mappingsOf(call.tx, guardrail.id);
    const done = { added: 0, updated: 0, removed: 0 };
    const kept = new Set<string>();
    for (const [name, wanted] of Object.entries(call.body.mcp_servers)) {
      const server = serverId(name, `mcp_servers.${name}`);
      if (kept.has(server)) throw refuse(`mcp_servers.${name}`, 'repeats a server');
      kept.add(server);
      const { did } = await put(call as unknown as Call, guardrail, server, wanted, false);
      if (did !== null) done[did] += 1;
    }
    for (const { id, mcp_server_id } of before) {
      if (kept.has(mcp_server_id)) continue;
      await call.tx.remove('guardrail_mcp_servers', { id });
      done.removed += 1;
    }
    const after = await mappingsOf(call.tx, guardrail.id);
    call.audited(guardrail.id, { before: { mcp_servers: before }, after: { mcp_servers: after } });
    const changed = done.added + done.updated + done.removed > 0;
    if (changed) announce(call as unknown as Call, guardrail);
    return { changed, ...done };
  },
};

const upsert: AnyAction = {
  ...common,
  id: 'guardrails.mcp-servers.update',
  method: 'PUT',
  path: `${path}/:mcpServerId`,
  summary: 'Let a guardrail watch an MCP server',
  description: 'For a server that is mapped already, what is left out stays as it is.',
  scopes: scopes('update'),
  params: z.strictObject({ guardrailId: z.string(), mcpServerId: z.string() }),
  query: null,
  body: upsertBody,
  response: z.object({ map_id: z.string() }),
  writes: true,
  audit,
  run: async (call: Call<Params, unknown, z.output<typeof upsertBody>>) => {
    const guardrail = await guardrailOf(call as unknown as Call, 'update');
    const server = serverId(call.params.mcpServerId, 'mcpServerId');
    const { before, after, did } = await put(call as unknown as Call, guardrail, server, call.body, true);
    call.audited(guardrail.id, { before: before && present(before), after: present(after) });
    if (did !== null) announce(call as unknown as Call, guardrail);
    return { map_id: after.id };
  },
};

const remove: AnyAction = {
  ...common,
  id: 'guardrails.mcp-servers.delete',
  method: 'DELETE',
  path: `${path}/:mcpServerId`,
  summary: 'Take an MCP server from a guardrail',
  scopes: scopes('update'),
  params: z.strictObject({ guardrailId: z.string(), mcpServerId: z.string() }),
  query,
  body: null,
  response: emptyAnswer,
  writes: true,
  audit,
  run: async (call: Call<Params>) => {
    const guardrail = await guardrailOf(call as unknown as Call, 'update');
    if (!isUuid(call.params.mcpServerId)) throw notFound();
    const server = call.params.mcpServerId.toLowerCase();
    const gone = await call.tx.remove('guardrail_mcp_servers', { guardrail_id: guardrail.id, mcp_server_id: server });
    if (gone === 0) throw notFound();
    call.audited(guardrail.id, { before: { mcp_server_id: server }, after: null });
    announce(call as unknown as Call, guardrail);
    return {};
  },
};

export const mappingActions: readonly AnyAction[] = [list, replace, upsert, remove];
