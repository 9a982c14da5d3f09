/** One guardrail run directly, on what the caller sends (scope `guardrails.invoke`): `POST /guardrails/{id}/invoke`. */
import { z } from 'zod';
import { compileGuardrail } from '../../guardrails/compile.ts';
import type { Guardrail } from '../../guardrails/guardrail.ts';
import type { GuardrailInvoker, InvocationInput } from '../../guardrails/invocation.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { OPERATIONS } from '../../operations/operation.ts';
import type { Row } from '../../store/schema.ts';
import { text } from '../body-fields.ts';
import { refuse, requireWorkspace } from '../common.ts';
import { tenantFields } from '../fields.ts';
import { currentVersion } from '../kinds/versions.ts';
import type { Call } from '../resource.ts';
import { afterCommit, Service } from '../services.ts';
import type { ItemAction } from '../spec.ts';
import { openParameters } from './secrets.ts';

export const GUARDRAIL_INVOKER = new Service<GuardrailInvoker>('way to run guardrails');

const MAX_CHARACTERS = 200_000;
const REQUEST_TYPES = [...new Set(Object.values(OPERATIONS).map(({ requestType }) => requestType))];

const object = z.record(z.string(), z.unknown());
const headerName = z.string().regex(/^[a-z0-9-]{1,100}$/, 'must be a header name in lower case');

const body = z.strictObject({
  ...tenantFields,
  phase: z.enum(['input', 'output']).describe('Checks of the other phase do not run.'),
  text: text(MAX_CHARACTERS).optional().describe('One text; for `mcp_tools` the arguments as JSON, or the result.'),
  messages: z.array(object).min(1).max(1_000).optional().describe('A conversation as in chat completions; input only.'),
  request: object.optional().describe('A request body of `request_type`; beside `response`, what it answers.'),
  response: object.optional().describe('An answer body of `request_type`; output only.'),
  model: text(255).optional(),
  request_type: z.enum(REQUEST_TYPES).optional().meta({ default: 'chatComplete' }),
  metadata: z.record(text(128, 1), text(256)).optional(),
  headers: z
    .record(headerName, text(8_192))
    .optional()
    .describe('Headers that the checks read, as a request has them.'),
});
type Body = z.output<typeof body>;

const checkResult = z.looseObject({ id: z.string(), verdict: z.boolean() });

const answer = z.looseObject({
  object: z.literal('guardrail_result'),
  id: z.string().describe('The slug.'),
  verdict: z.boolean(),
  transformed: z.boolean(),
  checks: z.array(checkResult),
  deny: z.boolean(),
  async: z.boolean(),
  skipped: z.boolean().describe('No check of the guardrail is for this phase.'),
  transformed_data: z
    .looseObject({})
    .nullable()
    .describe('The text as the guardrail changed it, under the name of the field that carried it.'),
});

/** What the body puts before the guardrail. Throws 400. */
function triedOf(given: Body, target: Guardrail['target']): InvocationInput {
  const { phase, text: plain, messages, request, response } = given;
  const sent = [plain, messages, response ?? request].filter((one) => one !== undefined).length;
  if (sent !== 1) throw refuse('text', 'or messages, or request or response, is required: send one of them');
  if (plain !== undefined) return { form: 'text', text: plain };
  if (target === 'mcp_tools') throw refuse(messages ? 'messages' : 'request', 'is not for calls of tools: send text');
  if (messages !== undefined) {
    if (phase === 'output') throw refuse('messages', 'are of the input phase: send text or response');
    return { form: 'messages', messages: messages as JsonObject[] };
  }
  if (phase === 'input') {
    if (response !== undefined) throw refuse('response', 'is of the output phase: send request');
    return { form: 'request', request: request as JsonObject };
  }
  if (response === undefined) throw refuse('response', 'is required for the output phase beside request');
  return { form: 'response', request: (request as JsonObject | undefined) ?? null, response: response as JsonObject };
}

async function compiled(call: Call, row: Row<'guardrails'>): Promise<Guardrail> {
  const version = await currentVersion(call, 'guardrail_versions', row);
  const checks = version.checks.map(async (check, index) => {
    const { id, is_enabled } = check;
    try {
      const parameters = await openParameters(call.vault, call.tenant, version.id, index, check);
      return { id, is_enabled, parameters };
    } catch {
      return { id, is_enabled, broken: true as const };
    }
  });
  const { id, slug, name, target } = row;
  return compileGuardrail({ id, slug, name, target, actions: version.actions, checks: await Promise.all(checks) });
}

export const invoke: ItemAction<'guardrails', never, unknown, Body, z.input<typeof answer>> = {
  name: 'invoke',
  method: 'POST',
  summary: 'Run a guardrail on a text, a request or an answer',
  description:
    'Returns the guardrail’s verdict without calling a model: nothing is charged, recorded or refused. Checks that call ' +
    'others, such as webhooks, do call them.',
  example: { body: { phase: 'input', text: 'My card is 4111 1111 1111 1111.' } },
  verb: 'read',
  scopes: ['guardrails.invoke'],
  tenant: 'workspace',
  // Those that requests of the workspace can meet: its own and the organisation's.
  visible: (call) => ({ anyOf: [{ workspace_id: requireWorkspace(call) }, { workspace_id: null }] }),
  query: null,
  body,
  response: answer,
  audit: null,
  run: async (call, row) => {
    const tried = triedOf(call.body, row.target);
    const guardrail = await compiled(call, row);
    const { phase, model = null, request_type: requestType = 'chatComplete', metadata = {}, headers = {} } = call.body;
    return afterCommit({ trials: GUARDRAIL_INVOKER }, async ({ trials, signal }) => {
      const { result, changed } = await trials.run({
        organisationId: call.tenant.organisationId,
        guardrail,
        phase,
        input: tried,
        model,
        requestType,
        metadata,
        headers: new Map(Object.entries(headers)),
        signal,
      });
      const transformed_data = changed === null ? null : { [tried.form]: changed };
      return { object: 'guardrail_result' as const, ...result, transformed_data };
    });
  },
};
