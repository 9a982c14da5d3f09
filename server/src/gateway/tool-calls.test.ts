/** Calls of tools, in a plane of the test: limits by server and tool, guardrails on both sides, a time limit, a record. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';
import { compileGuardrail, type GivenActions } from '../guardrails/compile.ts';
import type { JsonObject } from '../kernel/json.ts';
import { parseJson } from '../kernel/json-exact.ts';
import { errorBody } from '../operations/dialects/errors.ts';
import type { CallKind } from './call.ts';
import { runCall } from './non-model-call.ts';
import type { Plane } from './plane.ts';
import type { GatewayServices } from './services.ts';
import { callTool } from './tool-call.ts';

const TOOLS: CallKind = {
  source: 'mcp',
  operation: 'tools/call',
  scope: 'completions.write',
  errorBody: (error) => errorBody(error, 'openai'),
};

const guardrail = (id: string, actions: GivenActions, check: string, parameters: object) =>
  compileGuardrail({
    id,
    slug: id,
    name: id,
    target: 'mcp_tools',
    actions,
    checks: [{ id: check, is_enabled: true, parameters: { ...parameters } }],
  });
const noBombs = guardrail('no-bombs', { deny: true }, 'default.contains', { words: ['bomb'], operator: 'none' });
const noMail = guardrail('no-mail', {}, 'gateway.pii', { categories: ['EMAIL_ADDRESS'], redact: true });
const noLeaks = guardrail('no-leaks', { deny: true }, 'default.contains', { words: ['leak'], operator: 'none' });

/** What each tool answers. */
const ANSWERS: Readonly<Record<string, (given: JsonObject, signal: AbortSignal) => Promise<string>>> = {
  say: async ({ text }) => `said ${text}`,
  leak: async () => 'a leak',
  sleep: (_given, signal) =>
    new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
  deaf: () => new Promise(() => {}),
};
let made: JsonObject[] = [];

const tools = (gateway: GatewayServices): Plane => ({
  name: TOOLS.source,
  prefixes: ['/tools'],
  open: ({ serve }) =>
    serve(['POST'], '/tools/:tool', (request, response, { tool = '' }) => {
      void runCall(gateway, TOOLS, request, response, async (call) => {
        const answer = await callTool(call, {
          server: { id: 's1', slug: 'mail' },
          tool: { id: `s1/${tool}`, name: tool },
          arguments: parseJson((await call.body()).toString('utf8')) as JsonObject,
          defaults: { beforeToolCall: [noBombs], afterToolCall: [noLeaks] },
          mappings: [
            {
              guardrail: noMail,
              mcpServerId: 's1',
              runOn: ['beforeToolCall', 'afterToolCall'],
              capabilityIds: ['s1/say'],
            },
          ],
          cost: 1_000_000,
          timeoutMs: 50,
          async invoke(given, signal) {
            made.push(given);
            return { content: [{ type: 'text', text: (await ANSWERS[tool]?.(given, signal)) ?? '' }] };
          },
        });
        const body = answer.kind === 'answered' ? { result: answer.result } : { error: answer.error };
        return { status: 200, contentType: 'application/json', body: Buffer.from(JSON.stringify(body)) };
      });
    }),
});

let server: TestServer;
beforeAll(async () => {
  server = await startServer({}, { planes: [tools] });
});
afterAll(() => server.stop());

async function use(tool: string, given: object, key = server.first.workspace_api_key) {
  made = [];
  const answer = await fetch(`${server.url}/tools/${tool}`, {
    method: 'POST',
    headers: { 'x-gateway-api-key': key },
    body: JSON.stringify(given),
  });
  const body = (await answer.json()) as Record<string, unknown>;
  return { status: answer.status, body, record: (await server.records())[0] };
}

it('a tool gets the arguments and its caller the result as guardrails have changed them, and the record names both', async () => {
  const { status, body, record } = await use('say', { text: 'write to a@example.com' });
  expect([status, made]).toEqual([200, [{ text: expect.not.stringContaining('a@example.com') }]]);
  expect(JSON.stringify(body)).toContain('said write to');
  expect(record).toMatchObject({
    source: 'mcp',
    operation: 'tools/call',
    outcome: 'ok',
    cost_micros: 1_000_000,
    detail: { mcp_server: 'mail', mcp_tool: 'say' },
    attempts: [{ target: 'mail', provider: 'mcp', status: 200, error: null }],
    guards: { input: ['no-bombs', 'no-mail'], output: ['no-leaks', 'no-mail'] },
  });
  expect(record?.guardrails).toHaveLength(4);
});

it('a call that a guardrail refuses is not made and uses nothing; a result that one refuses is withheld and was paid', async () => {
  const before = await use('say', { text: 'a bomb' });
  expect(made).toEqual([]);
  expect(before.body).toMatchObject({ error: { code: -32000, data: { hook_results: { after_request_hooks: [] } } } });
  expect(before.record).toMatchObject({
    outcome: 'refused',
    error_code: 'hooks_failed',
    cost_micros: null,
    attempts: [],
  });
  const after = await use('leak', {});
  expect(made).toEqual([{}]);
  expect(JSON.stringify(after.body)).not.toContain('a leak');
  expect(after.record).toMatchObject({ outcome: 'refused', cost_micros: 1_000_000, attempts: [{ status: 200 }] });
});

it.each(['sleep', 'deaf'])(
  'a server that does not answer in time is a 408, whether or not it listens: %s',
  async (tool) => {
    const { status, body, record } = await use(tool, {});
    expect([status, (body.error as JsonObject).message]).toEqual([
      408,
      'The MCP server mail did not answer within 50 ms.',
    ]);
    expect(record).toMatchObject({ outcome: 'failed', attempts: [{ status: null, error: 'timeout' }] });
  },
);

it('rate policies of tools count by server and tool, and those of models do not', async () => {
  const policy = (target: string, more: object) =>
    server.admin('POST', '/policies/rate-limits', {
      workspace_id: server.first.workspace_id,
      target,
      type: 'requests',
      unit: 'rpd',
      value: 1,
      ...more,
    });
  const group_by = [{ key: 'api_key' }];
  const conditions = [{ key: 'mcp_tool', value: 'say' }];
  const all = [{ key: 'workspace_id', value: server.first.workspace_id }];
  for (const made of [
    await policy('mcp_tools', { conditions, group_by: [{ key: 'mcp_server' }] }),
    await policy('llm', { conditions: all, group_by }),
  ])
    expect(made.status, JSON.stringify(made.body)).toBe(200);
  const statuses: number[] = [];
  for (const tool of ['leak', 'leak', 'say', 'say']) statuses.push((await use(tool, {})).status);
  expect(statuses).toEqual([200, 200, 200, 429]);
  expect((await server.records())[0]).toMatchObject({
    status: 429,
    limits: { refused: { value_key: 'mcp_server:mail' } },
  });
});

it('usage limits are reserved before a tool is called', async () => {
  const key = await server.admin('POST', '/api-keys/workspace/service', {
    name: 'poor',
    workspace_id: server.first.workspace_id,
    scopes: ['completions.write'],
    usage_limits: { type: 'cost', credit_limit: 1 },
  });
  expect(key.status).toBe(200);
  const poor = String(key.body.key);
  expect((await use('leak', {}, poor)).status).toBe(200);
  expect((await use('leak', {}, poor)).status).toBe(412);
  expect(made).toEqual([]);
});
