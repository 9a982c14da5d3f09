import type { ServerResponse } from 'node:http';
import { ROUTES } from '../openai-upstream.ts';
import { type StrictRoute, type StrictUpstream, sendStream, startStrictUpstream } from '../strict-upstream.ts';
import { type Received, sendJson } from '../upstream.ts';

export const AZURE_VERSION = '2025-01-01-preview';
export const AZURE_KEY = 'azure-resource-key';

/** Deployments of the resource, and the models that answer for them. */
export const DEPLOYED: Readonly<Record<string, string>> = {
  'chat-prod': 'gpt-4o-2024-08-06',
  'chat-small': 'gpt-4o-mini-2024-07-18',
  vectors: 'text-embedding-3-small',
};

/** Operations whose path names the deployment on the dated surface. */
const BY_DEPLOYMENT = /^\/(?:chat\/completions|completions|embeddings|images\/(?:generations|edits))$/;

const FILTERED = { hate: { filtered: false, severity: 'safe' }, violence: { filtered: false, severity: 'safe' } };
const PROMPT_FILTER = [{ prompt_index: 0, content_filter_results: FILTERED }];
export const BLOCKED = {
  code: 'ResponsibleAIPolicyViolation',
  content_filter_result: { violence: { filtered: true, severity: 'medium' } },
};

const error = (status: number, message: string) => ({ error: { code: String(status), message } });

function chat(body: Record<string, unknown>, response: ServerResponse, model: string): void {
  const said = JSON.stringify(body.messages);
  if (said.includes('BLOCK')) {
    sendJson(response, 400, {
      error: {
        message: "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        type: null,
        param: 'prompt',
        code: 'content_filter',
        status: 400,
        innererror: BLOCKED,
      },
    });
    return;
  }
  const head = { id: 'chatcmpl-1', created: 1_767_225_600, model };
  const usage = { prompt_tokens: 9, completion_tokens: 4, total_tokens: 13 };
  if (body.stream !== true) {
    sendJson(response, 200, {
      ...head,
      object: 'chat.completion',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: 'Hello from Azure', refusal: null },
          finish_reason: 'stop',
          content_filter_results: FILTERED,
        },
      ],
      usage,
      prompt_filter_results: PROMPT_FILTER,
    });
    return;
  }
  const event = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`;
  const chunk = (delta: unknown, finish: string | null, more = {}) =>
    event({
      ...head,
      object: 'chat.completion.chunk',
      choices: [{ index: 0, delta, finish_reason: finish, content_filter_results: {}, ...more }],
    });
  const options = body.stream_options as { include_usage?: boolean } | undefined;
  sendStream(response, [
    event({
      choices: [],
      created: 0,
      id: '',
      model: '',
      object: '',
      prompt_filter_results: PROMPT_FILTER,
    }),
    chunk({ role: 'assistant', content: '' }, null),
    chunk({ content: 'Hello ' }, null, { content_filter_results: FILTERED }),
    chunk({ content: 'from Azure' }, null, { content_filter_results: FILTERED }),
    chunk({}, 'stop'),
    ...(options?.include_usage === true
      ? [event({ ...head, object: 'chat.completion.chunk', choices: [], usage })]
      : []),
    'data: [DONE]\n\n',
  ]);
}

/** Inference of an Azure OpenAI resource on one of its surfaces: paths, version, deployment and key are checked. */
export function startAzureInference(
  surface: 'v1' | 'dated',
  options: { readonly headers?: Readonly<Record<string, RegExp>>; readonly root?: string } = {},
): Promise<StrictUpstream> {
  const dated = surface === 'dated';
  const root = options.root ?? (dated ? '/openai' : '/openai/v1');
  const stored = [
    ['GET', '/responses/resp_1'],
    ['DELETE', '/responses/resp_1'],
    ['GET', '/responses/resp_1/input_items'],
  ] as const;
  const routes = [
    ...ROUTES.map((route) => ({ route, path: pathOf(route) })),
    ...stored.map(([method, path]) => ({
      path,
      route: {
        method,
        path: /^$/,
        body: null,
        answer: (_body, response) =>
          sendJson(response, 200, {
            id: 'resp_1',
            object: path.endsWith('items') ? 'list' : 'response',
            ...(method === 'DELETE' ? { deleted: true } : path.endsWith('items') ? { data: [] } : { output: [] }),
          }),
      } satisfies StrictRoute as StrictRoute,
    })),
  ].map(({ route, path }): StrictRoute => {
    const named = dated && (BY_DEPLOYMENT.test(path) || path.startsWith('/audio/'));
    return {
      ...route,
      path: new RegExp(`^${root}${named ? '/deployments/[^/]+' : ''}${path}$`),
      query: dated ? ['api-version', 'limit'] : ['limit'],
      answer(body, response, request) {
        if (dated) checkVersion(request);
        const deployment = named ? decodeURIComponent(request.path.split('/')[3] ?? '') : body.model;
        const model = typeof deployment === 'string' ? DEPLOYED[deployment] : undefined;
        if (route.method === 'POST' && model === undefined && route.form !== true) {
          sendJson(response, 404, {
            error: {
              code: 'DeploymentNotFound',
              message: 'The API deployment for this resource does not exist.',
            },
          });
        } else if (path === '/chat/completions') chat(body, response, model ?? '');
        else route.answer({ ...body, model }, response, request);
      },
    };
  });
  return startStrictUpstream({
    routes,
    headers: options.headers ?? { 'api-key': new RegExp(`^${AZURE_KEY}$`) },
    optional: [],
    error,
  });
}

/** The operation's path below its base, as the table of OpenAI's own server has it. */
function pathOf({ path }: StrictRoute): string {
  return path.source
    .replace(/^\^\\\/v1/, '')
    .replace(/\$$/, '')
    .replaceAll('\\/', '/');
}

function checkVersion(request: Received): void {
  const versions = new URL(request.path, 'http://azure').searchParams.getAll('api-version');
  if (versions.length !== 1 || versions[0] !== AZURE_VERSION) throw new Error(`api-version ${versions.join()}`);
}
