/** `GET /guardrails/checks`: what a guardrail can be made of. The same for every organisation. */
import { z } from 'zod';
import { CHECKS } from '../../guardrails/checks/index.ts';
import { action } from '../resource.ts';
import { LEVELS } from './rules.ts';

const check = z.object({
  id: z.string(),
  phases: z.array(z.enum(['input', 'output'])),
  targets: z.array(z.enum(['llm', 'mcp_tools'])),
  mutates: z.boolean().describe('Whether it may change texts or bodies besides what it redacts.'),
  redacts: z.boolean().describe('Whether its parameters can ask for findings to be taken out.'),
  timeout_ms: z.int().nullable().describe('Milliseconds that it is given by default; null: it has no such limit.'),
  takes_credentials: z.boolean().describe('Whether it signs in to a service with `credentials` of its parameters.'),
  parameters: z.record(z.string(), z.unknown()).describe('JSON Schema of the parameters that this check alone has.'),
  object: z.literal('guardrail-check'),
});

const checks = () =>
  [...CHECKS.values()].map(({ id, phases, targets, mutates, redacts, timeoutMs, credentials, parameters }) => {
    const { $schema: _dialect, ...schema } = z.toJSONSchema(parameters, { io: 'input', unrepresentable: 'any' });
    return {
      id,
      phases: [...phases],
      targets: [...targets],
      mutates,
      redacts: redacts !== undefined,
      timeout_ms: timeoutMs,
      takes_credentials: credentials !== undefined,
      parameters: schema as Record<string, unknown>,
      object: 'guardrail-check' as const,
    };
  });

/** Made with the first call: it never changes while the process runs. */
const made: { list?: ReturnType<typeof checks> } = {};

export const checkCatalogue = action({
  id: 'guardrails.checks',
  method: 'GET',
  path: '/guardrails/checks',
  summary: 'List the checks',
  description:
    'Each check that a guardrail can have, with the JSON Schema of its parameters. Any check also takes `timeout`, `failOnError` and `forwardHeaders`.',
  tag: 'Guardrails',
  auth: 'key_or_login',
  scopes: LEVELS.scopes.map((level) => `${level}.list`),
  tenant: 'organisation',
  params: null,
  query: z.strictObject({}),
  body: null,
  response: z.object({ object: z.literal('list'), total: z.int(), data: z.array(check) }),
  writes: false,
  audit: null,
  run: async () => {
    made.list ??= checks();
    return { object: 'list' as const, total: made.list.length, data: made.list };
  },
});
