import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { Principal } from '../auth/principal.ts';
import type { InFlight } from '../gateway/in-flight.ts';
import { pathOnly } from '../kernel/path-only.ts';
import { OPERATIONS, type Operation } from '../operations/operation.ts';
import { Exchange } from './exchange.ts';
import { run } from './pipeline.ts';
import type { Services } from './services.ts';

const PROXY_METHODS = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH'] as const;

/** What is passed through below a prefix whose other paths are named: only to accounts of OpenAI's shape. */
const PASSED_BELOW = [
  ['POST', '/fine_tuning/alpha/graders/run'],
  ['POST', '/fine_tuning/alpha/graders/validate'],
  ['GET', '/fine_tuning/checkpoints/:checkpoint/permissions'],
  ['POST', '/fine_tuning/checkpoints/:checkpoint/permissions'],
  ['DELETE', '/fine_tuning/checkpoints/:checkpoint/permissions/:permission'],
] as const;

export interface DataPlane {
  /** Runs one request as a principal that was authenticated elsewhere (the console's own page). */
  runAs(
    principal: Principal,
    operation: Operation,
    request: IncomingMessage,
    response: ServerResponse,
    body: Buffer,
  ): Promise<void>;
}

/** Handlers of POST routes without parameters by raw target (`http/app.ts`). */
export type Express = Map<string, (request: IncomingMessage, response: ServerResponse) => void>;

const NO_PARAMS: Readonly<Record<string, string>> = Object.freeze({});

/**
 * Registers every operation under `/v1`. Routes with a name of their own come first in the router whatever the order;
 * any other `/v1/*` path goes to the provider unchanged, unless it begins like one of the administration (`admin/handle.ts`).
 */
export function registerDataPlane(
  app: FastifyInstance,
  services: Services,
  express: Express,
  inFlight: InFlight,
): DataPlane {
  const handle = (x: Exchange): Promise<void> => inFlight.run(x, run);
  for (const operation of Object.values(OPERATIONS)) {
    if (operation.method === 'POST' && !/[:*]/.test(operation.path)) {
      express.set(`/v1${operation.path}`, (request, response) => {
        void handle(new Exchange(services, operation, request, response, NO_PARAMS));
      });
    }
    for (const url of operation.deployed
      ? [`/v1${operation.path}`, `/v1/deployments/:deployment${operation.path}`]
      : [`/v1${operation.path}`]) {
      services.paths.know(operation.method, url);
      app.route({
        method: operation.method === 'ANY' ? [...PROXY_METHODS] : operation.method,
        url,
        exposeHeadRoute: false,
        // Taken in the first hook: the router's own look at the content type would refuse requests without a record.
        onRequest: (request, reply) => {
          reply.hijack();
          void handle(
            new Exchange(services, operation, request.raw, reply.raw, request.params as Record<string, string>),
          );
        },
        handler: () => {},
      });
    }
  }
  const methods = [...PROXY_METHODS];
  // A base URL with one /v1 too many: its owner needs to read that, not what a provider makes of the path.
  app.route({
    method: methods,
    url: '/v1/v1/*',
    exposeHeadRoute: false,
    onRequest: (_request, reply) => reply.callNotFound(),
    handler() {},
  });
  for (const [method, path] of PASSED_BELOW) {
    app.route({
      method,
      url: `/v1${path}`,
      exposeHeadRoute: false,
      onRequest: (request, reply) => {
        reply.hijack();
        const params = { '*': decodeURIComponent(pathOnly(request.raw.url ?? '').slice('/v1/'.length)) };
        void handle(new Exchange(services, OPERATIONS.proxy, request.raw, reply.raw, params));
      },
      handler: () => {},
    });
  }
  // Below these prefixes every route is named: what is none must not fall through to a provider.
  for (const prefix of ['/v1/files', '/v1/batches', '/v1/fine_tuning']) {
    const taken = new Set<string>(
      Object.values(OPERATIONS)
        .filter((op) => `/v1${op.path}` === prefix)
        .map((op) => op.method),
    );
    const free = methods.filter((method) => !taken.has(method));
    for (const [url, method] of [
      [prefix, free],
      [`${prefix}/*`, methods],
    ] as const) {
      app.route({
        method,
        url,
        exposeHeadRoute: false,
        onRequest: (_request, reply) => reply.callNotFound(),
        handler() {},
      });
    }
  }
  return {
    runAs(principal, operation, request, response, body) {
      const x = new Exchange(services, operation, request, response, {});
      x.request.principal = principal;
      x.attempt.body = body;
      x.outcome.bytesIn = body.length;
      return handle(x);
    },
  };
}
