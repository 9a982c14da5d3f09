/**
 * Guardrails over calls of MCP tools: which of them watch a call, what they judge of it, and what goes on. The
 * arguments are judged as JSON text before the call, the texts of the result after it.
 */

import { isObject, type JsonObject } from '../kernel/json.ts';
import { parseJson } from '../kernel/json-exact.ts';
import type { Subject, TextPart } from './check.ts';
import type { Guardrail, GuardrailResult, Outcome } from './guardrail.ts';
import { type Change, type RunOptions, runGuardrails } from './run.ts';

export type ToolCallPhase = 'beforeToolCall' | 'afterToolCall';

/** A guardrail attached to an MCP server. */
export interface ToolMapping {
  readonly guardrail: Guardrail;
  readonly mcpServerId: string;
  readonly runOn: readonly ToolCallPhase[];
  /** Empty: every tool of the server. */
  readonly capabilityIds: readonly string[];
}

/** Guardrails of the workspace's defaults, then those mapped to the tool; each once, where it comes first. */
export function toolGuardrails(
  defaults: readonly Guardrail[],
  mappings: readonly ToolMapping[],
  call: { readonly mcpServerId: string; readonly capabilityId: string; readonly phase: ToolCallPhase },
): readonly Guardrail[] {
  const found = new Map(defaults.map((one) => [one.id, one]));
  for (const { guardrail, mcpServerId, runOn, capabilityIds } of mappings) {
    if (mcpServerId !== call.mcpServerId || !runOn.includes(call.phase) || found.has(guardrail.id)) continue;
    if (capabilityIds.length > 0 && !capabilityIds.includes(call.capabilityId)) continue;
    found.set(guardrail.id, guardrail);
  }
  return [...found.values()];
}

export interface ToolCall {
  readonly tool: string;
  /** Final ones: as the server would get them. */
  readonly arguments: JsonObject;
  /** Slug of the MCP server. */
  readonly server: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** A header of the caller's request, name in lower case. */
  header(name: string): string | undefined;
}

export interface ToolVerdict<T> {
  /** The call must not be made, or its result not be shown. */
  readonly refused: boolean;
  /** Some guardrail has failed that does not deny. */
  readonly failed: boolean;
  readonly results: readonly GuardrailResult[];
  /** What goes on: as it was given, or as guardrails have changed it. Not for use where the call is refused. */
  readonly value: T;
}

type Options = Omit<RunOptions, 'view'>;
type Maybe<T> = T | Promise<T>;

/** Judges a call before it is made. */
export function beforeToolCall(
  list: readonly Guardrail[],
  call: ToolCall,
  options: Options,
): Maybe<ToolVerdict<JsonObject>> {
  const judged = run(list, options, (change) => subjectBefore(call, change));
  return then(judged, (outcome) => verdictOf(outcome, () => argumentsAfter(call, outcome)));
}

/** Judges what a tool has answered before anybody sees it. `result`: of the `tools/call` method. */
export function afterToolCall(
  list: readonly Guardrail[],
  call: ToolCall,
  result: JsonObject,
  options: Options,
): Maybe<ToolVerdict<JsonObject>> {
  const judged = run(list, options, (change) => subjectAfter(call, resultAfter(result, change) ?? result, change));
  return then(judged, (outcome) => verdictOf(outcome, () => resultAfter(result, outcome)));
}

/** The error of JSON-RPC that tells a refusal. */
export function toolCallRefusal(phase: ToolCallPhase, results: readonly GuardrailResult[]) {
  const before = phase === 'beforeToolCall';
  return {
    code: -32000,
    message: before
      ? 'Guardrails refused this tool call; hook_results says which checks failed.'
      : 'Guardrails withhold the result of this tool call; hook_results says which checks failed.',
    data: { hook_results: { before_request_hooks: before ? results : [], after_request_hooks: before ? [] : results } },
  };
}

function run(
  list: readonly Guardrail[],
  options: Options,
  subjectOf: (change: Change | null) => Subject,
): Maybe<Outcome> {
  return runGuardrails(list, subjectOf(null), { ...options, view: (_messages, change) => subjectOf(change) });
}

const then = <A, B>(value: Maybe<A>, next: (value: A) => B): Maybe<B> =>
  value instanceof Promise ? value.then(next) : next(value);

/** A change that cannot be sent on refuses: what was to be taken out must not go out. */
function verdictOf(outcome: Outcome, valueAfter: () => JsonObject | null): ToolVerdict<JsonObject> {
  const value = outcome.denied ? null : valueAfter();
  return { refused: value === null, failed: outcome.failed, results: outcome.results, value: value ?? {} };
}

const ARGUMENTS = 'arguments';

/** The arguments as JSON text, after what was changed so far. */
function argumentsText(call: ToolCall, change: Change | null): string {
  const text = change?.replacements.findLast(({ path }) => path === ARGUMENTS)?.text;
  return text ?? JSON.stringify(replacedArguments(call, change) ?? call.arguments);
}

/** Of the request that a webhook gave in place of the call. The tool that is called stays what it was. */
function replacedArguments(call: ToolCall, change: Pick<Change, 'replaced'> | null): JsonObject | null {
  if (change?.replaced === undefined) return call.arguments;
  const given = isObject(change.replaced) ? change.replaced[ARGUMENTS] : null;
  return isObject(given) ? (given as JsonObject) : null;
}

/** Null where they are no JSON object any more. */
function argumentsAfter(call: ToolCall, change: Change): JsonObject | null {
  if (change.replacements.length === 0) return replacedArguments(call, change);
  try {
    const parsed: unknown = parseJson(argumentsText(call, change));
    return isObject(parsed) ? (parsed as JsonObject) : null;
  } catch {
    return null;
  }
}

function subjectBefore(call: ToolCall, change: Change | null): Subject {
  const text = argumentsText(call, change);
  return {
    ...common(call, change),
    phase: 'input',
    texts: [{ path: ARGUMENTS, role: 'assistant', text }],
    latest: () => text,
    request: () => ({
      name: call.tool,
      arguments: change === null ? call.arguments : (argumentsAfter(call, change) ?? text),
    }),
    answer: () => undefined,
    callsTools: true,
    status: null,
  };
}

function subjectAfter(call: ToolCall, result: JsonObject, change: Change | null): Subject {
  const texts = textsOf(result);
  return {
    ...common(call, change),
    phase: 'output',
    texts,
    latest: () => texts.map(({ text }) => text).join('\n'),
    request: () => ({ name: call.tool, arguments: call.arguments }),
    answer: () => result,
    callsTools: false,
    status: 200,
  };
}

function common(call: ToolCall, change: Change | null) {
  return {
    window: null,
    model: null,
    provider: call.server,
    requestType: 'toolCall',
    streams: false,
    transformed: change !== null,
    metadata: call.metadata,
    header: (name: string) => call.header(name),
  };
}

/** Where the texts of a result stand. What a tool answers as structure is one text, its JSON. */
function textsOf(result: JsonObject): TextPart[] {
  const out: TextPart[] = [];
  const add = (path: string, text: unknown) => {
    if (typeof text === 'string') out.push({ path, role: 'tool', text });
  };
  const content = Array.isArray(result.content) ? result.content : [];
  for (const [i, part] of content.entries()) {
    if (!isObject(part)) continue;
    for (const name of ['text', 'title', 'description', 'name', 'uri']) add(`content[${i}].${name}`, part[name]);
    if (isObject(part.resource)) {
      for (const name of ['text', 'uri']) add(`content[${i}].resource.${name}`, part.resource[name]);
    }
  }
  if (result.structuredContent !== undefined) add('structuredContent', JSON.stringify(result.structuredContent));
  return out;
}

/** Null where a changed text cannot be put back. */
function resultAfter(result: JsonObject, change: Change | null): JsonObject | null {
  if (change === null) return result;
  if (change.replaced !== undefined && !isObject(change.replaced)) return null;
  const base = change.replaced === undefined ? result : (change.replaced as JsonObject);
  if (change.replacements.length === 0) return base;
  const copy = structuredClone(base);
  const known = new Set(textsOf(base).map(({ path }) => path));
  for (const { path, text } of change.replacements) {
    if (!known.has(path)) return null;
    if (path === 'structuredContent') {
      try {
        copy.structuredContent = parseJson(text);
      } catch {
        return null;
      }
      continue;
    }
    const [, index, inner, name] = /^content\[(\d+)\]\.(resource\.)?(\w+)$/.exec(path) ?? [];
    const part = (copy.content as JsonObject[])[Number(index)];
    const holder = inner === undefined ? part : (part?.resource as JsonObject | undefined);
    if (holder === undefined || name === undefined) return null;
    holder[name] = text;
  }
  return copy;
}
