/**
 * One call of an MCP tool in the frame of a call: its limits, the guardrails before it, its time limit, the guardrails
 * after it, and what its record says.
 */
import type { Guardrail, GuardrailResult } from '../guardrails/guardrail.ts';
import {
  afterToolCall,
  beforeToolCall,
  type ToolCall,
  type ToolCallPhase,
  type ToolMapping,
  toolCallRefusal,
  toolGuardrails,
} from '../guardrails/tool-calls.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { JsonObject } from '../kernel/json.ts';
import { recordedAs } from '../operations/dialects/errors.ts';
import type { Call } from './call.ts';
import { GuardrailState } from './guardrail-state.ts';
import { runOptions } from './tool-call-guardrails.ts';

/** What a plane says of a tool that is called. */
export interface ToolUse {
  readonly server: { readonly id: string; readonly slug: string };
  /** `id`: of the capability, as mappings name it. */
  readonly tool: { readonly id: string; readonly name: string };
  /** Final ones: as the server would get them. */
  readonly arguments: JsonObject;
  /** Guardrails of every call in the workspace, by phase. */
  readonly defaults: Readonly<Record<ToolCallPhase, readonly Guardrail[]>>;
  readonly mappings: readonly ToolMapping[];
  /** Micro-dollars; null: no price is known. */
  readonly cost: number | null;
  /** Milliseconds that the server has to answer in. */
  readonly timeoutMs: number;
  /** Makes the call; `signal` ends it. Resolves with the result of `tools/call`. */
  invoke(given: JsonObject, signal: AbortSignal): Promise<JsonObject>;
}

/** `refused`: the error of JSON-RPC by which guardrails refuse the call or withhold its result. */
export type ToolAnswer =
  | { readonly kind: 'answered'; readonly result: JsonObject }
  | { readonly kind: 'refused'; readonly error: ReturnType<typeof toolCallRefusal> };

/** Rejects with the refusal of a limit, with `timeout`, and with what `invoke` rejects with. */
export async function callTool(call: Call, use: ToolUse): Promise<ToolAnswer> {
  const { server, tool } = use;
  const { services, signal } = call;
  call.detail = { mcp_server: server.slug, mcp_tool: tool.name };
  const facts = { endpoint_type: 'toolCall', mcp_server: server.slug, mcp_tool: tool.name };
  await call.admit(facts, 'mcpTools');
  const name = `${server.slug}/${tool.name}`;
  await call.reserve(facts, { name, cost: use.cost, tokens: 0, bounded: true });

  const listOf = (phase: ToolCallPhase) =>
    toolGuardrails(use.defaults[phase], use.mappings, { mcpServerId: server.id, capabilityId: tool.id, phase });
  const guardrails = new GuardrailState(services, call, {
    input: listOf('beforeToolCall'),
    output: listOf('afterToolCall'),
  });
  if (guardrails.input.length + guardrails.output.length > 0) call.guardrails = guardrails;
  const asked: ToolCall = {
    tool: tool.name,
    arguments: use.arguments,
    server: server.slug,
    metadata: call.metadata ?? {},
    header: (header) => call.header(header),
  };
  const options = runOptions(guardrails, { clock: services.clock, signal });
  const before = await beforeToolCall(guardrails.input, asked, options);
  guardrails.before = before.results;
  guardrails.failed = before.failed;
  if (before.refused) return refusal(call, 'beforeToolCall', before.results);

  call.use = { cost: use.cost, tokens: 0 };
  const result = await invoked(call, use, before.value);
  const after = await afterToolCall(guardrails.output, { ...asked, arguments: before.value }, result, options);
  guardrails.after = after.results;
  guardrails.failed ||= after.failed;
  if (after.refused) return refusal(call, 'afterToolCall', after.results);
  return { kind: 'answered', result: after.value };
}

/** JSON-RPC tells a refusal with status 200: the record says what it was. */
function refusal({ outcome }: Call, phase: ToolCallPhase, results: readonly GuardrailResult[]): ToolAnswer {
  const error = toolCallRefusal(phase, results);
  outcome.result = 'refused';
  outcome.errorCode = recordedAs(new SluiceError('guardrail_denied', error.message));
  outcome.errorMessage = error.message;
  return { kind: 'refused', error };
}

/** The call itself, which is an attempt of the record. */
async function invoked(call: Call, { server, timeoutMs, invoke }: ToolUse, given: JsonObject): Promise<JsonObject> {
  const { clock } = call.services;
  const ended = new AbortController();
  const late = () =>
    ended.abort(new SluiceError('timeout', `The MCP server ${server.slug} did not answer within ${timeoutMs} ms.`));
  const leave = () => ended.abort(call.signal.reason);
  const cancel = clock.after(timeoutMs, late);
  call.signal.addEventListener('abort', leave, { once: true });
  const started = clock.monotonic();
  const attempted = (status: number | null, error: string | null) =>
    call.attempts.push({
      target: server.slug,
      provider: 'mcp',
      status,
      error,
      began_ms: Math.round((started - call.started) * 1000) / 1000,
      duration_ms: Math.round((clock.monotonic() - started) * 1000) / 1000,
    });
  try {
    const gaveUp = new Promise<never>((_resolve, reject) => {
      ended.signal.addEventListener('abort', () => reject(ended.signal.reason), { once: true });
    });
    const result = await Promise.race([invoke(given, ended.signal), gaveUp]);
    attempted(200, null);
    return result;
  } catch (thrown) {
    const error: unknown = ended.signal.aborted ? ended.signal.reason : thrown;
    attempted(null, error instanceof SluiceError ? recordedAs(error) : 'gateway_failure');
    throw error;
  } finally {
    cancel();
    call.signal.removeEventListener('abort', leave);
  }
}
