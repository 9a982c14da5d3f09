/** The documents by which clients find the server (RFC 8414, RFC 9207, RFC 9728). Made of the public URL, never of `Host`. */
import { isResourcePath, SCOPES } from './resource-addresses.ts';

/** The document of the authorization server; its issuer is the public URL. */
export function serverMetadata(publicUrl: string): object {
  const base = `${publicUrl}/v2/oauth`;
  return {
    issuer: publicUrl,
    authorization_endpoint: `${base}/authorize`,
    token_endpoint: `${base}/token`,
    registration_endpoint: `${base}/register`,
    revocation_endpoint: `${base}/revoke`,
    introspection_endpoint: `${base}/introspect`,
    device_authorization_endpoint: `${base}/device_authorization`,
    scopes_supported: SCOPES,
    response_types_supported: ['code'],
    response_modes_supported: ['query'],
    grant_types_supported: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'],
    code_challenge_methods_supported: ['S256'],
    token_endpoint_auth_methods_supported: ['none'],
    revocation_endpoint_auth_methods_supported: ['none'],
    introspection_endpoint_auth_methods_supported: ['none'],
    authorization_response_iss_parameter_supported: true,
    client_id_metadata_document_supported: true,
  };
}

/**
 * The document of the origin, for clients that look nowhere else. It leads to the authorization server; tokens are for one
 * MCP server or agent each, so none can be had for the origin itself.
 */
export const originMetadata = (publicUrl: string): object => described(publicUrl, publicUrl);

/**
 * The document of a resource; null for a path that no MCP server or agent can have. It is the same whether or not there
 * is one, so that strangers cannot list them.
 */
export function resourceMetadata(publicUrl: string, path: string): object | null {
  return isResourcePath(path) ? described(publicUrl, `${publicUrl}${path}`) : null;
}

const described = (publicUrl: string, resource: string): object => ({
  resource,
  authorization_servers: [publicUrl],
  scopes_supported: SCOPES,
  bearer_methods_supported: ['header'],
});
