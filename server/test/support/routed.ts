/** A server that routes over several upstreams. */
import { afterAll, beforeAll, beforeEach } from 'vitest';
import { type RoutingServer, startRouting } from './routing.ts';
import type { TestServer } from './server.ts';
import type { Received } from './upstream.ts';

let routing: RoutingServer;
export let server: TestServer;
/** What the balancer draws. */
export const dice = { random: 0 };

export const of = (name: string) => routing.of(name);
export const counts = () => routing.counts();
export const saved = (config: object) => routing.saved(config);
export const ask = (...args: Parameters<RoutingServer['ask']>) => routing.ask(...args);
export const bodyOf = ({ body }: Received) => JSON.parse(body.toString('utf8')) as Record<string, unknown>;

export const conditional = (conditions: [query: object, name: string][], targets: object[], otherwise: string) => ({
  strategy: {
    mode: 'conditional',
    // biome-ignore lint/suspicious/noThenProperty: the name is the contract's
    conditions: conditions.map(([query, name]) => ({ query, then: name })),
    default: otherwise,
  },
  targets,
});

/** Starts the server and its upstreams for the tests of a file. */
export function useRouting(): void {
  beforeAll(async () => {
    routing = await startRouting({}, { random: () => dice.random });
    server = routing.server;
  });

  afterAll(() => routing?.stop());

  beforeEach(() => {
    dice.random = 0;
    routing.reset();
  });
}
