/** The endpoints of the OAuth server in the OpenAPI document: shapes of the standards, as this server has them. */
import type { JsonObject } from '../kernel/json.ts';

const TEXT: JsonObject = { type: 'string' };
const TEXTS: JsonObject = { type: 'array', items: TEXT };
const NUMBER: JsonObject = { type: 'integer' };

const object = (properties: JsonObject, required: readonly string[] = []): JsonObject => ({
  type: 'object',
  properties,
  ...(required.length === 0 ? {} : { required: [...required] }),
});

const ERROR = object({ error: TEXT, error_description: TEXT }, ['error', 'error_description']);
const FORM = 'application/x-www-form-urlencoded';

interface Endpoint {
  readonly id: string;
  readonly summary: string;
  readonly description: string;
  /** Fields of the body, and those that must be sent; null without a body. */
  readonly body: readonly [JsonObject, readonly string[]] | null;
  /** Content types of the body. Default: form and JSON. */
  readonly types?: readonly string[];
  readonly parameters?: readonly JsonObject[];
  readonly status: 200 | 201;
  readonly answer: JsonObject;
}

function endpoint({ id, summary, description, body, types, parameters, status, answer }: Endpoint): JsonObject {
  const schema = body === null ? null : object(...body);
  const content = (types ?? [FORM, 'application/json']).map((type) => [type, { schema }] as const);
  const refused: JsonObject = {
    description: 'Refused: `error` says why, in the codes of the standard.',
    content: { 'application/json': { schema: ERROR } },
  };
  return {
    tags: ['OAuth'],
    operationId: `oauth.${id}`,
    summary,
    description,
    security: [],
    parameters: [...(parameters ?? [])],
    ...(schema === null ? {} : { requestBody: { required: true, content: Object.fromEntries(content) } }),
    responses: {
      [status]: { description: 'Done.', content: { 'application/json': { schema: answer } } },
      default: refused,
    },
  };
}

const query = (name: string, required: boolean): JsonObject => ({ name, in: 'query', required, schema: TEXT });

const CLIENT: JsonObject = {
  client_name: TEXT,
  redirect_uris: TEXTS,
  scope: TEXT,
  scopes: TEXTS,
  logo_uri: TEXT,
  client_uri: TEXT,
  application_type: { type: 'string', enum: ['native', 'web'] },
  token_endpoint_auth_method: { type: 'string', enum: ['none'] },
  grant_types: TEXTS,
  response_types: TEXTS,
};

/** Path items. The authorization endpoint also answers where its path names the resource; all also answer below `/oauth`. */
export function oauthPaths(): JsonObject {
  return {
    '/.well-known/oauth-authorization-server': {
      get: endpoint({
        id: 'metadata',
        summary: 'Read the metadata of the OAuth server',
        description: 'RFC 8414. All addresses are made of the public URL of this installation.',
        body: null,
        status: 200,
        answer: object({
          issuer: TEXT,
          authorization_endpoint: TEXT,
          token_endpoint: TEXT,
          registration_endpoint: TEXT,
        }),
      }),
    },
    '/.well-known/oauth-protected-resource/{slug}/mcp': {
      get: endpoint({
        id: 'resource',
        summary: 'Read which OAuth server an MCP server trusts',
        description: 'RFC 9728. The answer is the same whether or not there is such an MCP server.',
        body: null,
        parameters: [{ name: 'slug', in: 'path', required: true, schema: TEXT }],
        status: 200,
        answer: object({
          resource: TEXT,
          authorization_servers: TEXTS,
          scopes_supported: TEXTS,
          bearer_methods_supported: TEXTS,
        }),
      }),
    },
    '/v2/oauth/register': {
      post: endpoint({
        id: 'register',
        summary: 'Register a client',
        description: 'RFC 7591. Clients have no secret. One that is not used for 90 days is forgotten.',
        body: [CLIENT, ['client_name', 'redirect_uris']],
        types: ['application/json'],
        status: 201,
        answer: object({ client_id: TEXT, client_id_issued_at: NUMBER, ...CLIENT }),
      }),
    },
    '/v2/oauth/authorize': {
      get: {
        ...endpoint({
          id: 'authorize',
          summary: 'Ask a user for access',
          description:
            'The browser of the user opens it. The user answers on a page of the console. Every answer has `iss`.',
          body: null,
          parameters: [
            ...[
              'client_id',
              'redirect_uri',
              'response_type',
              'code_challenge',
              'code_challenge_method',
              'resource',
            ].map((name) => query(name, true)),
            ...['scope', 'state'].map((name) => query(name, false)),
          ],
          status: 200,
          answer: {},
        }),
        responses: {
          '302': { description: 'To the page, or back to the client with `error`.' },
          '400': { description: 'A page: the client or its address is not known, so nothing is sent there.' },
        },
      },
    },
    '/v2/oauth/token': {
      post: endpoint({
        id: 'token',
        summary: 'Get tokens',
        description:
          'For a code, a refresh token or a device code. A second use of a code or a refresh token ends its family.',
        body: [
          {
            grant_type: TEXT,
            client_id: TEXT,
            code: TEXT,
            redirect_uri: TEXT,
            code_verifier: TEXT,
            refresh_token: TEXT,
            device_code: TEXT,
            scope: TEXT,
            resource: TEXT,
          },
          ['grant_type', 'client_id'],
        ],
        status: 200,
        answer: object({ access_token: TEXT, token_type: TEXT, expires_in: NUMBER, refresh_token: TEXT, scope: TEXT }, [
          'access_token',
          'token_type',
          'expires_in',
          'refresh_token',
        ]),
      }),
    },
    '/v2/oauth/revoke': {
      post: endpoint({
        id: 'revoke',
        summary: 'Revoke a token',
        description: 'RFC 7009. Ends all tokens of its family; 200 whatever the token is.',
        body: [{ token: TEXT, token_type_hint: TEXT, client_id: TEXT }, ['token']],
        status: 200,
        answer: object({}),
      }),
    },
    '/v2/oauth/introspect': {
      post: endpoint({
        id: 'introspect',
        summary: 'Look at a token',
        description: 'RFC 7662. Any text that is no live token gets `{"active":false}`.',
        body: [{ token: TEXT, token_type_hint: TEXT }, ['token']],
        status: 200,
        answer: object(
          {
            active: { type: 'boolean' },
            token_type: TEXT,
            client_id: TEXT,
            scope: TEXT,
            exp: NUMBER,
            iat: NUMBER,
            sub: TEXT,
            aud: TEXT,
            iss: TEXT,
            workspace_id: TEXT,
            workspace_name: TEXT,
            workspace_slug: TEXT,
            organisation_id: TEXT,
            organisation_name: TEXT,
            organisation_details: { type: 'object' },
            resource_id: TEXT,
            resource_type: TEXT,
            email: TEXT,
            username: TEXT,
            user_id: TEXT,
            display_name: TEXT,
            rate_limits: { type: 'array', items: { type: 'object' } },
          },
          ['active'],
        ),
      }),
    },
    '/v2/oauth/device_authorization': {
      post: endpoint({
        id: 'device_authorization',
        summary: 'Begin to sign a command line in',
        description: 'RFC 8628, for `sluice login`. A user compares the code in a browser.',
        body: [{ client_id: TEXT }, ['client_id']],
        status: 200,
        answer: object({
          device_code: TEXT,
          user_code: TEXT,
          verification_uri: TEXT,
          verification_uri_complete: TEXT,
          expires_in: NUMBER,
          interval: NUMBER,
        }),
      }),
    },
  };
}
