/** One guardrail run on what a caller sends to try it: no model is called. */

import { withoutChange } from '../../gateway/guardrail-state.ts';
import type { Subject } from '../../guardrails/check.ts';
import type { Guardrail, GuardrailResult } from '../../guardrails/guardrail.ts';
import type { GuardrailInvocation, GuardrailInvoker } from '../../guardrails/invocation.ts';
import { type Change, type CheckHttpClientFactory, runGuardrails } from '../../guardrails/run.ts';
import { afterToolCall, beforeToolCall, type ToolCall } from '../../guardrails/tool-calls.ts';
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { OPERATIONS, type Operation } from '../../operations/operation.ts';
import {
  answerCallsTools,
  answerTexts,
  applyReplacements,
  latestAnswerText,
  latestRequestText,
  ReplacementError,
  requestTexts,
} from './texts.ts';

interface Deps {
  readonly outside: (organisationId: string) => CheckHttpClientFactory;
  readonly clock: Clock;
}

export function createGuardrailInvoker({ outside, clock }: Deps): GuardrailInvoker {
  return {
    async run(trial) {
      const make = outside(trial.organisationId);
      let told: (result: GuardrailResult) => void = () => {};
      const beside = new Promise<GuardrailResult>((resolve) => {
        told = resolve;
      });
      const options = {
        outside: (signal: AbortSignal) => make(AbortSignal.any([signal, trial.signal])),
        clock,
        onAsync: told,
      };
      const guardrail = runnable(trial);
      const { results, changed } = await (guardrail.target === 'mcp_tools'
        ? tryTool(guardrail, trial, options)
        : tryModel(guardrail, trial, options));
      const result = results[0] ?? (await beside);
      if (!result.transformed) return { result, changed: null };
      try {
        return { result, changed: changed() };
      } catch (error) {
        if (!(error instanceof ReplacementError)) throw error;
        return { result: withoutChange([result], error.message)[0] ?? result, changed: null };
      }
    },
  };
}

type Options = Parameters<typeof beforeToolCall>[2];
interface Run {
  readonly results: readonly GuardrailResult[];
  readonly changed: () => unknown;
}

/** A guardrail without a check for the phase runs in line: beside the request it would report nothing. */
function runnable({ guardrail, phase }: GuardrailInvocation): Guardrail {
  if (guardrail.checks.some(({ phases }) => phases.includes(phase))) return guardrail;
  return { ...guardrail, actions: { ...guardrail.actions, async: false } };
}

/** The first operation of the type whose body is JSON; what has none is read as any JSON. */
function operationOf(requestType: string): Operation {
  const found = Object.values(OPERATIONS).find((one) => one.requestType === requestType && one.body === 'json');
  return found ?? OPERATIONS.proxy;
}

async function tryModel(guardrail: Guardrail, trial: GuardrailInvocation, options: Options): Promise<Run> {
  const { input: tried, phase } = trial;
  const operation =
    tried.form === 'text' || tried.form === 'messages' ? OPERATIONS.chat : operationOf(trial.requestType);
  const base = bodyOf(trial);
  const body = (change: Change | null): unknown => {
    if (change === null) return base;
    const whole = change.replaced ?? base;
    return change.replacements.length === 0 ? whole : applyReplacements(operation, whole, change.replacements);
  };
  const input = phase === 'input';
  const view = (messages: Guardrail['actions']['messages'], change: Change | null): Subject => {
    const now = body(change);
    return {
      phase,
      window: null,
      texts: input ? requestTexts(operation, now, messages) : answerTexts(operation, now),
      latest: () => (input ? latestRequestText(operation, now) : latestAnswerText(operation, now)),
      request: () => (input ? now : tried.form === 'response' ? (tried.request ?? undefined) : undefined),
      answer: () => (input ? undefined : now),
      callsTools: !input && answerCallsTools(operation, now),
      model: trial.model,
      provider: null,
      requestType: trial.requestType,
      streams: false,
      transformed: change !== null,
      status: input ? null : 200,
      metadata: trial.metadata,
      header: (name) => trial.headers.get(name),
    };
  };
  const outcome = await runGuardrails([guardrail], view(guardrail.actions.messages, null), { ...options, view });
  return { results: outcome.results, changed: () => formOf(trial, body(outcome)) };
}

/** The body that stands for what was sent: a text is one message, or one answer. */
function bodyOf({ input: tried, phase, model }: GuardrailInvocation): JsonObject {
  if (tried.form === 'request') return tried.request;
  if (tried.form === 'response') return tried.response;
  const named = model === null ? {} : { model };
  if (tried.form === 'messages') return { ...named, messages: [...tried.messages] };
  const message = { role: phase === 'input' ? 'user' : 'assistant', content: tried.text };
  if (phase === 'input') return { ...named, messages: [message] };
  return { ...named, choices: [{ index: 0, message, finish_reason: 'stop' }] };
}

/** A changed body in the form in which it was sent; the body itself where it no longer has that form. */
function formOf({ input: tried, phase }: GuardrailInvocation, body: unknown): unknown {
  if (!isObject(body)) return body;
  if (tried.form === 'messages') return body.messages ?? body;
  if (tried.form !== 'text') return body;
  const { messages, choices } = body;
  const first = phase === 'input' ? messages : choices;
  const part = Array.isArray(first) && first.length === 1 && isObject(first[0]) ? first[0] : {};
  const message = phase === 'input' ? part : isObject(part.message) ? part.message : {};
  return typeof message.content === 'string' ? message.content : body;
}

async function tryTool(guardrail: Guardrail, trial: GuardrailInvocation, options: Options): Promise<Run> {
  const { input: tried, phase, metadata, headers } = trial;
  if (tried.form !== 'text') throw new SluiceError('internal', 'Calls of tools are tried on texts.');
  const call: ToolCall = { tool: '', arguments: {}, server: '', metadata, header: (name) => headers.get(name) };
  if (phase === 'output') {
    const result = { content: [{ type: 'text', text: tried.text }] };
    const { results, value } = await afterToolCall([guardrail], call, result, options);
    return { results, changed: () => (value as typeof result).content?.[0]?.text ?? value };
  }
  let given: unknown;
  try {
    given = parseJson(tried.text);
  } catch {
    given = null;
  }
  if (!isObject(given)) {
    throw new SluiceError('validation', 'text must be the arguments of a tool call: a JSON object.', { param: 'text' });
  }
  const { results, value } = await beforeToolCall([guardrail], { ...call, arguments: given }, options);
  return { results, changed: () => JSON.stringify(value) };
}
