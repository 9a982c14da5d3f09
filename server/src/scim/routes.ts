/** The routes of SCIM 2.0, by which a directory keeps users and groups. What answers is loaded with the first request. */
import type { FastifyInstance, FastifyReply, FastifyRequest, HTTPMethods } from 'fastify';
import type { ScimDeps } from './call.ts';

/** Requests a minute of one token, counted over all nodes: Entra wants 25 a second. */
export const SCIM_REQUESTS_PER_MINUTE = 1_500;

/** Where a directory begins: with the organisation in the path, or without. */
const SCIM_BASES = ['/v1/scim/:organisationId(^[0-9a-fA-F-]{36}$)', '/scim/v2'] as const;

const METHODS: HTTPMethods[] = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];

/** Registers everything below both bases. Which paths are there is the protocol's to say, in its own form of errors. */
export function registerScim(app: FastifyInstance, deps: ScimDeps): void {
  let loaded: Promise<(request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>> | null = null;
  for (const base of SCIM_BASES) {
    app.route({
      method: METHODS,
      url: `${base}/*`,
      exposeHeadRoute: false,
      // Before fastify would look at a content type: credentials come first.
      onRequest: async (request, reply) => {
        loaded ??= import('./serve.ts').then(({ createServe }) => createServe(deps));
        return (await loaded)(request, reply);
      },
      handler: async () => undefined,
    });
  }
}
