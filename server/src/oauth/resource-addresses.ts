/**
 * What tokens are for: the address of one MCP server or one agent of this installation (RFC 8707, RFC 9728). Made of
 * the public URL alone, never of what a request names as its host.
 */

/** Scopes, narrowest first. `mcp` is both of the others. */
export const SCOPES = ['mcp:read', 'mcp:write', 'mcp'] as const;

/** Paths of MCP servers, also by their workspace, and of agents. */
const PATHS = /^\/(?:(?:[A-Za-z0-9][\w-]{0,99}\/){1,2}mcp|v1\/agent\/[A-Za-z0-9][\w-]{0,99})$/;

/** Whether a path can be that of an MCP server or an agent. It says nothing about there being one. */
export const isResourcePath = (path: string): boolean => PATHS.test(path);

/** The path of a resource of this installation; null for anything else. Other spellings of one address are other texts. */
export function resourcePath(publicUrl: string, address: string): string | null {
  if (!address.startsWith(`${publicUrl}/`)) return null;
  const path = address.slice(publicUrl.length);
  return isResourcePath(path) ? path : null;
}
