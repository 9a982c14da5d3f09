import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import fastify, { type FastifyInstance, type onRequestHookHandler } from 'fastify';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { JsonObject } from '../kernel/json.ts';
import { applyAliases, stripIngress } from './headers.ts';
import type { KnownPaths } from './known-paths.ts';
import { createServer } from './node-http-import.ts';
import { checkRequest, hardenServer } from './server-options.ts';

export interface AppOptions {
  readonly clock: Clock;
  readonly headerAliases: readonly string[];
  readonly trustedProxies: readonly string[];
  /** For clients of unknown paths. */
  readonly paths: KnownPaths;
  /** Writes the answer to a request refused before it was routed, and to errors of routes that throw. */
  readonly refuse: (request: IncomingMessage, response: ServerResponse, error: unknown) => void;
  /**
   * Handlers by raw request target for POST, asked before the router: the few routes without parameters that carry
   * nearly all traffic. The router has the same routes, for every other spelling that it accepts.
   */
  readonly express: ReadonlyMap<string, (request: IncomingMessage, response: ServerResponse) => void>;
  /** The body of the answer to what is no HTTP request. */
  readonly unparsedBody?: (message: string) => JsonObject;
  /** True while the server drains: answers then carry `connection: close`. */
  readonly draining: () => boolean;
}

/** Routes are judged by the schemas of the catalog. The compilers of the framework would cost every start 3 MB of code. */
function noSchemas(): never {
  throw new Error('A route has a schema of the framework. Declare its shapes in the catalog instead.');
}

const MEDIA_TYPE = 'The content-type header is not a media type; send content-type: application/json.';

function isMediaType(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE';
}

/**
 * The one listener. Every request passes the same checks before it is matched to a route, and is matched once: later
 * steps read the route object, never the path. Bodies are left unread for the steps that know their limits.
 */
export function createApp(options: AppOptions): FastifyInstance {
  const app = fastify({
    logger: false,
    exposeHeadRoutes: false,
    schemaController: { compilersFactory: { buildValidator: () => noSchemas, buildSerializer: () => noSchemas } },
    routerOptions: {
      caseSensitive: true,
      ignoreTrailingSlash: false,
      ignoreDuplicateSlashes: false,
      // Ids of objects may be long names that were encoded twice; the whole target has its own bound.
      maxParamLength: 8192,
    },
    forceCloseConnections: false,
    return503OnClosing: false,
    genReqId: () => '',
    // `hardenServer` answers framing errors; a second listener would write its own answer behind or instead of it.
    clientErrorHandler: () => {},
    serverFactory: (handler) => {
      const server: Server = createServer((request, response) => {
        try {
          const fault = checkRequest(request);
          if (fault !== null) throw fault;
          stripIngress(request, options.trustedProxies);
          if (options.headerAliases.length > 0) applyAliases(request, options.headerAliases);
        } catch (error) {
          response.setHeader('connection', 'close');
          options.refuse(request, response, error);
          return;
        }
        if (options.draining()) response.setHeader('connection', 'close');
        const express = request.method === 'POST' ? options.express.get(request.url ?? '') : undefined;
        if (express === undefined) handler(request, response);
        else express(request, response);
      });
      const { clock, trustedProxies, unparsedBody } = options;
      hardenServer(server, { clock, trustedProxies, unparsedBody });
      return server;
    },
  });
  // The data plane passes bodies through and the administration handler reads them itself, with its own limits.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, done) => done(null));
  // The router takes the nothing behind a last slash for a parameter: `/v1/providers/` names no provider.
  app.addHook('onRoute', (route) => {
    if (!/\/:\w+$/.test(route.url)) return;
    const last = route.url.slice(route.url.lastIndexOf(':') + 1);
    const named: onRequestHookHandler = (request, reply, done) => {
      if ((request.params as Record<string, string>)[last] === '') reply.callNotFound();
      else done();
    };
    route.onRequest = [named, ...[route.onRequest ?? []].flat()];
  });
  app.setNotFoundHandler((request, reply) => {
    reply.hijack();
    const { method = '', url = '', headers } = request.raw;
    options.refuse(request.raw, reply.raw, new SluiceError('not_found', options.paths.advise(method, url, headers)));
  });
  app.setErrorHandler((error, request, reply) => {
    reply.hijack();
    options.refuse(request.raw, reply.raw, isMediaType(error) ? new SluiceError('validation', MEDIA_TYPE) : error);
  });
  return app;
}
