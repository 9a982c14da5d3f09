import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Principal } from '../auth/principal.ts';
import type { InFlight } from '../gateway/in-flight.ts';
import type { Plane, PlaneHandler } from '../gateway/plane.ts';
import { pathOnly } from '../kernel/path-only.ts';
import { OPERATIONS, type Operation } from '../operations/operation.ts';
import type { Services } from './exchange.ts';
import { Exchange } from './exchange.ts';
import { internalExchange } from './internal-calls.ts';
import { run } from './pipeline.ts';

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

/** Where paths begin of which every one is named: what is none must not fall through to a provider. */
const NAMED = new Set(
  Object.values(OPERATIONS)
    .filter(({ family }) => family === 'job')
    .map(({ path }) => `/v1/${path.split('/')[1]}`),
);

/**
 * Every operation under `/v1`. Routes with their own name come first in the router whatever the order; any other
 * `/v1/*` path goes to the provider unchanged, unless another plane or the administration (`admin/handle.ts`) has its beginning.
 */
export function llmPlane(services: Services, inFlight: InFlight): Plane & DataPlane {
  const handle = (x: Exchange): Promise<void> => inFlight.run(x, run);
  return {
    name: 'llm',
    prefixes: ['/v1', ...NAMED],
    open(routes) {
      for (const operation of Object.values(OPERATIONS)) {
        const methods = operation.method === 'ANY' ? PROXY_METHODS : [operation.method];
        const answer: PlaneHandler = (request, response, params) => {
          void handle(new Exchange(services, operation, request, response, params));
        };
        routes.serve(methods, `/v1${operation.path}`, answer);
        // A model as `GET /models` lists it, whose slash need not be encoded.
        if (operation.path.endsWith('/:model'))
          routes.serve(
            methods,
            `/v1${operation.path.replace(':model', '@:slug/*')}`,
            (request, response, { slug, '*': rest }) => answer(request, response, { model: `@${slug}/${rest}` }),
            false,
          );
        if (operation.deployed) routes.serve(methods, `/v1/deployments/:deployment${operation.path}`, answer);
      }
      // A base URL with one /v1 too many: its owner needs to read that, not what a provider makes of the path.
      routes.refuse('/v1/v1/*');
      for (const [method, path] of PASSED_BELOW) routes.serve([method], `/v1${path}`, pass, false);
    },
    runAs(principal, operation, incoming, response, body) {
      return handle(internalExchange(services, operation, { incoming, response, body }, principal));
    },
  };

  function pass(request: IncomingMessage, response: ServerResponse): void {
    const params = { '*': decodeURIComponent(pathOnly(request.url ?? '').slice('/v1/'.length)) };
    void handle(new Exchange(services, OPERATIONS.proxy, request, response, params));
  }
}
