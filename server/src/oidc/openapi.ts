/** The addresses of an SSO client in the OpenAPI document: those that an identity provider calls or sends browsers to. */
import type { JsonObject } from '../kernel/json.ts';

const TEXT: JsonObject = { type: 'string' };
const CLIENT: JsonObject = {
  name: 'sso_client_id',
  in: 'path',
  required: true,
  schema: { type: 'string', format: 'uuid' },
};
const query = (name: string, description: string): JsonObject => ({
  name,
  in: 'query',
  required: false,
  schema: TEXT,
  description,
});
const json = (description: string, schema: JsonObject): JsonObject => ({
  description,
  content: { 'application/json': { schema } },
});
const REFUSED: JsonObject = { $ref: '#/components/schemas/Error' };
const TOO_MANY = json('Too many requests from this address; see Retry-After.', REFUSED);

/** Path items. */
export function ssoPaths(): JsonObject {
  const common = { tags: ['Sign-in'], security: [] };
  return {
    '/v2/auth/callback': {
      get: {
        ...common,
        operationId: 'auth.callback',
        summary: 'Come back from an identity provider',
        description:
          'The redirect address to register at a provider. The browser that asked for the sign-in opens it, once. It is sent on into the console.',
        parameters: [
          query('state', 'Of the sign-in.'),
          query('code', 'For the ID token.'),
          query('iss', 'The issuer, where the provider sends it.'),
          query('error', 'Why the provider refused.'),
        ],
        responses: {
          '302': { description: 'To the console, signed in; or to its sign-in page with `error`.' },
        },
      },
    },
    '/v2/auth/jwks/{sso_client_id}': {
      get: {
        ...common,
        operationId: 'auth.jwks',
        summary: 'Read the public keys of an SSO client',
        description: 'What a provider checks the assertions of `private_key_jwt` with: `jwks_uri` of the client.',
        parameters: [CLIENT],
        responses: {
          '200': json('The keys.', {
            type: 'object',
            required: ['keys'],
            properties: { keys: { type: 'array', items: { type: 'object' } } },
          }),
          '404': json('The client has no keys, or does not exist.', REFUSED),
          '429': TOO_MANY,
        },
      },
    },
    '/v2/auth/backchannel-logout/{sso_client_id}': {
      post: {
        ...common,
        operationId: 'auth.backchannel-logout',
        summary: 'End the sessions that a provider ends',
        description:
          'OpenID Connect Back-Channel Logout: `backchannel_logout_uri` of the client. `sid` of the token ends that session, `sub` alone all of the subject.',
        parameters: [CLIENT],
        requestBody: {
          required: true,
          content: {
            'application/x-www-form-urlencoded': {
              schema: { type: 'object', required: ['logout_token'], properties: { logout_token: TEXT } },
            },
          },
        },
        responses: {
          '200': { description: 'Done, also where there was no session.' },
          '400': json('The token is not valid, or was used.', { type: 'object', properties: { error: TEXT } }),
          '429': TOO_MANY,
        },
      },
    },
  };
}
