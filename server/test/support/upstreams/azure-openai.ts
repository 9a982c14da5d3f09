import { z } from 'zod';
import { type StrictUpstream, startStrictUpstream } from '../strict-upstream.ts';
import { sendJson } from '../upstream.ts';
import { CREATE_BATCH, CREATE_JOB, type OpenAiObjects, startObjects } from './openai.ts';

export const DATED_VERSION = '2025-04-01-preview';

const text = z.string().min(1);
const integer = z.number().int();

/** Body of a create request of the dated authoring definition (2025-04-01-preview). */
const DATED_JOB = z.strictObject({
  model: text,
  training_file: text,
  validation_file: text.optional(),
  suffix: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,40}$/)
    .optional(),
  seed: integer.optional(),
  method: z.strictObject({ type: z.enum(['supervised', 'dpo']) }).optional(),
  hyperparameters: z
    .strictObject({
      n_epochs: integer.optional(),
      batch_size: integer.optional(),
      learning_rate_multiplier: z.number().optional(),
    })
    .optional(),
  integrations: z
    .array(z.strictObject({ type: z.literal('wandb'), wandb: z.strictObject({ project: text }) }))
    .optional(),
  trainingType: z.string().optional(),
});

const folder = z.strictObject({ url: z.url(), delimiter: z.string().optional() });
const V1_BATCH = CREATE_BATCH.extend({ output_folder: folder.optional() });
const DATED_BATCH = V1_BATCH.extend({ endpoint: z.enum(['/chat/completions', '/completions', '/embeddings']) });

/** Azure OpenAI on one of its surfaces; signs callers in by the resource's key unless told another header. */
export function startAzureOpenAi(
  surface: 'v1' | 'dated',
  signIn: Readonly<Record<string, RegExp>> = { 'api-key': /^test-key$/ },
): Promise<OpenAiObjects> {
  const dated = surface === 'dated';
  return startObjects(
    {
      prefix: dated ? '/openai' : '/openai/v1',
      ...(dated ? { query: { 'api-version': DATED_VERSION } } : {}),
      createJob: dated ? DATED_JOB : CREATE_JOB,
      createBatch: dated ? DATED_BATCH : V1_BATCH,
      purposes: ['fine-tune', 'assistants', 'batch', 'evals'],
      fileQuery: dated ? ['purpose'] : ['purpose', 'limit', 'order', 'after'],
      batchQuery: ['after', 'limit'],
      uploads: true,
      ...(dated
        ? {
            created: 201,
            deleted: 204,
            job: ({ organization_id: _named, result_files: _none, seed, ...row }) => ({
              ...row,
              organisation_id: null,
              ...(seed === 42 ? {} : { seed }),
              hyperparameters: { n_epochs: -1, batch_size: -1, learning_rate_multiplier: 1 },
            }),
          }
        : {}),
    },
    signIn,
  );
}

export interface EntraServer extends StrictUpstream {
  /** Tokens given out. */
  readonly tokens: string[];
  /** The next call is refused with this `error` and description. */
  refuse: { readonly status: number; readonly error: string; readonly description: string } | null;
  /** Seconds that tokens live. */
  lifetime: number;
}

const AUDIENCES = ['https://cognitiveservices.azure.com', 'https://ai.azure.com'] as const;
const GRANT = {
  client_id: text,
  grant_type: z.literal('client_credentials'),
  scope: z.enum(AUDIENCES.map((audience) => `${audience}/.default`) as [string, ...string[]]),
};

/** The token endpoint of Microsoft Entra, and that of App Service's managed identity beside it. */
export async function startEntra(
  tenant = 'tenant-1',
  options: {
    /** Checks the assertion of a federated identity; rejects when it does not hold. */
    readonly verify?: (assertion: string, client: string) => Promise<unknown>;
  } = {},
): Promise<EntraServer> {
  const tokens: string[] = [];
  const upstream: StrictUpstream = await startStrictUpstream({
    routes: [
      {
        method: 'POST',
        path: new RegExp(`^/${tenant}/oauth2/v2\\.0/token$`),
        form: 'urlencoded',
        body: z.union([
          z.strictObject({ ...GRANT, client_secret: text }),
          z.strictObject({
            ...GRANT,
            client_assertion_type: z.literal('urn:ietf:params:oauth:client-assertion-type:jwt-bearer'),
            client_assertion: text,
          }),
        ]),
        answer(body, response) {
          const { refuse, lifetime } = server;
          if (refuse !== null) {
            server.refuse = null;
            sendJson(response, refuse.status, { error: refuse.error, error_description: refuse.description });
            return;
          }
          const give = () => {
            tokens.push(`entra-${tokens.length + 1}`);
            sendJson(response, 200, { token_type: 'Bearer', expires_in: lifetime, access_token: tokens.at(-1) });
          };
          const { client_assertion: assertion, client_id: client } = body;
          if (options.verify === undefined || typeof assertion !== 'string') give();
          else
            options
              .verify(assertion, String(client))
              .then(give, () =>
                sendJson(response, 401, { error: 'invalid_client', error_description: 'AADSTS700027: assertion' }),
              );
        },
      },
      {
        method: 'GET',
        path: /^\/msi\/token$/,
        query: ['resource', 'api-version', 'client_id'],
        body: null,
        answer(_body, response, request) {
          if (request.headers['x-identity-header'] !== 'platform-secret') throw new Error('x-identity-header');
          const query = new URL(request.path, 'http://upstream').searchParams;
          if (!AUDIENCES.some((audience) => audience === query.get('resource'))) throw new Error('resource');
          if (query.get('api-version') !== '2019-08-01') throw new Error('api-version');
          tokens.push(`managed-${tokens.length + 1}`);
          sendJson(response, 200, {
            access_token: tokens.at(-1),
            expires_on: String(1_767_225_600 + server.lifetime),
            token_type: 'Bearer',
          });
        },
      },
    ],
    headers: {},
    optional: ['x-identity-header'],
    error: (_status, message) => ({ error: 'invalid_request', error_description: message }),
  });
  const server = Object.defineProperties(upstream, {
    tokens: { value: tokens },
    refuse: { value: null, writable: true },
    lifetime: { value: 3600, writable: true },
  }) as EntraServer;
  return server;
}
