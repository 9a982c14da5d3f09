/** Whether an account answers: one request through the data plane, at one of its providers. */
import { z } from 'zod';
import type { Principal } from '../../auth/principal.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { text } from '../body-fields.ts';
import { workspaceOf } from '../common.ts';
import { itemAction } from '../define.ts';
import { tenantFields } from '../fields.ts';
import { afterCommit, Service } from '../services.ts';
import type { ResourceSpec } from '../spec.ts';

/** One request at `@slug` of a workspace: of a model with one token, or without a model for the list of models. */
export interface AccountTrial {
  readonly principal: Principal;
  readonly workspaceId: string;
  readonly slug: string;
  readonly model: string | null;
  readonly signal: AbortSignal;
}

export interface AccountTrials {
  /** The status and body of the answer, whatever it is. Rejects where this node serves no data plane. */
  run(trial: AccountTrial): Promise<{ readonly status: number; readonly body: unknown }>;
}

export const ACCOUNT_TRIALS = new Service<AccountTrials>('data plane');

/** Models that an answer names. */
const MOST_NAMED = 100;

const tested = z.object({
  object: z.literal('integration-test'),
  success: z.boolean(),
  status: z.int().describe('HTTP status of the request that was sent through the gateway.'),
  latency_ms: z.int(),
  provider: z.string().describe('The provider that was asked, as requests name it.'),
  workspace_id: z.string(),
  asked: z.enum(['models', 'call']).describe('The list of models, or one token of the model of the body.'),
  models: z.array(z.string()).describe('The first 100 models that the account listed.'),
  model_count: z.int().nullable(),
  message: z.string().nullable().describe('What went wrong; null after a success.'),
});

const listed = z.object({ data: z.array(z.object({ id: z.string() })) });
const failed = z.object({ error: z.object({ message: z.string() }) });

export const trial = (spec: ResourceSpec<'integrations'>) =>
  itemAction(spec, {
    name: 'test',
    method: 'POST',
    summary: 'Test an integration',
    description:
      'Sends one request through the gateway at a provider of the integration: it lists the models of the account, or asks ' +
      '`model` for one token, which is charged. Its limits, guardrails and egress rules count, and it leaves a record. The ' +
      'credential needs the scopes that such a request needs (`models.list` or `completions.write`).',
    verb: 'update',
    query: null,
    body: z
      .strictObject({
        ...tenantFields,
        model: text(255, 1).optional().describe('Without `@slug/`. Left out: its models are listed.'),
      })
      .optional(),
    response: tested,
    audit: null,
    run: async (call, row) => {
      const model = call.body?.model ?? null;
      const bound = (await workspaceOf(call)) ?? row.workspace_id;
      const [provider] = await call.tx.list('providers', {
        where: { integration_id: row.id, status: 'active', ...(bound === null ? {} : { workspace_id: bound }) },
        orderBy: [['created_at', 'asc']],
        limit: 1,
      });
      if (provider === undefined) {
        throw new SluiceError(
          'conflict',
          `No workspace${bound === null ? '' : ' that you named'} has a provider of ${row.slug}, so no request can go there. Share it with a workspace first.`,
        );
      }
      const { principal, clock } = call;
      return afterCommit({ trials: ACCOUNT_TRIALS }, async ({ trials, signal }) => {
        const began = clock.monotonic();
        const place = { workspaceId: provider.workspace_id, slug: provider.slug };
        const { status, body } = await trials.run({ principal, ...place, model, signal });
        const success = status >= 200 && status < 300;
        const models = success && model === null ? listed.safeParse(body).data?.data.map(({ id }) => id) : undefined;
        const said = failed.safeParse(body).data?.error.message ?? `The answer had status ${status}.`;
        return {
          object: 'integration-test' as const,
          success,
          status,
          latency_ms: Math.round(clock.monotonic() - began),
          provider: `@${provider.slug}`,
          workspace_id: provider.workspace_id,
          asked: model === null ? ('models' as const) : ('call' as const),
          models: models?.slice(0, MOST_NAMED) ?? [],
          model_count: models?.length ?? null,
          message: success ? null : said,
        };
      });
    },
  });
