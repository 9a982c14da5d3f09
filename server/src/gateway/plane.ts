import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { KnownPaths } from '../http/known-paths.ts';
import { SluiceError } from '../kernel/errors.ts';

export type PlaneMethod = 'GET' | 'POST' | 'PUT' | 'DELETE' | 'PATCH';

/** Answers a request; never throws. `params`: decoded `:name` segments of the path. */
export type PlaneHandler = (
  request: IncomingMessage,
  response: ServerResponse,
  params: Readonly<Record<string, string>>,
) => void;

/** Handlers of POST routes without parameters by raw target (`http/app.ts`). */
export type Express = Map<string, (request: IncomingMessage, response: ServerResponse) => void>;

/** How a plane says what it serves. */
export interface PlaneRoutes {
  /** `url` as the router takes it: `/v1/files/:id`. One that is not `known` is never what a misspelt path was meant to be. */
  serve(methods: readonly PlaneMethod[], url: string, handle: PlaneHandler, known?: boolean): void;
  /** Paths that are unknown although a wider route of the plane would take them. */
  refuse(url: string): void;
}

/** One kind of traffic, as `compose` is given it. */
export interface Plane {
  /** For errors at the start, and the source of its records. */
  readonly name: string;
  /**
   * Where its paths begin, said here and nowhere else: `/v1/mcp`. Every route is below one of them, and what is below one and
   * has no route is unknown, whatever another plane serves around it.
   */
  readonly prefixes: readonly string[];
  /** Registers its routes. */
  open(routes: PlaneRoutes): void;
}

const METHODS: readonly PlaneMethod[] = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH'];
const NO_PARAMS: Readonly<Record<string, string>> = Object.freeze({});

/** Where planes are served: the listener, its short cut for frequent routes, and what is known of paths for errors. */
export interface PlaneFront {
  readonly app: FastifyInstance;
  readonly express: Express;
  readonly paths: KnownPaths;
}

/** Registers planes. Throws for a route outside its plane's prefixes, and for a prefix that two of them have. */
export function openPlanes({ app, express, paths }: PlaneFront, planes: readonly Plane[]): void {
  const owners = new Map<string, string>();
  for (const { name, prefixes } of planes) {
    for (const prefix of prefixes) {
      const other = owners.get(prefix);
      if (other !== undefined)
        throw new SluiceError('internal', `The planes ${other} and ${name} both have ${prefix}.`);
      owners.set(prefix, name);
    }
  }
  for (const plane of planes) {
    plane.open({
      refuse: (url) => refuseRest(app, url),
      serve(methods, url, handle, known = true) {
        if (!plane.prefixes.some((prefix) => url === prefix || url.startsWith(`${prefix}/`)))
          throw new SluiceError('internal', `The plane ${plane.name} has no prefix for ${url}.`);
        if (known) for (const method of methods) paths.know(method, url);
        if (methods.includes('POST') && !/[:*]/.test(url)) {
          express.set(url, (request, response) => handle(request, response, NO_PARAMS));
        }
        app.route({
          method: [...methods],
          url,
          exposeHeadRoute: false,
          // Taken in the first hook: the router's own look at the content type would refuse requests without a record.
          onRequest: (request, reply) => {
            reply.hijack();
            handle(request.raw, reply.raw, (request.params ?? NO_PARAMS) as Record<string, string>);
          },
          handler() {},
        });
      },
    });
  }
  for (const prefix of owners.keys()) for (const url of [prefix, `${prefix}/*`]) refuseRest(app, url);
}

/** What has no route must not fall through to a plane around it. */
function refuseRest(app: FastifyInstance, url: string): void {
  const free = METHODS.filter((method) => !app.hasRoute({ method, url }));
  if (free.length === 0) return;
  app.route({
    method: free,
    url,
    exposeHeadRoute: false,
    onRequest: (_request, reply) => reply.callNotFound(),
    handler() {},
  });
}
