/** `GET /metrics` beside the API: for the operator, who is not shown what belongs to organisations. */
import type { ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { Authenticator } from '../auth/authenticator.ts';
import { readCredential } from '../auth/credential.ts';
import { clientAddress } from '../http/client-address.ts';
import { endParts } from '../http/response-body.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { Log } from '../kernel/log.ts';
import type { Exposed, MetricsAnswer } from '../telemetry/metrics/exposed.ts';
import { adminError, send } from './respond.ts';

interface MetricsRouteDeps {
  readonly metrics: Exposed;
  readonly authenticator: Pick<Authenticator, 'authenticate'>;
  readonly clock: Clock;
  readonly log: Log;
}

/** Sends the whole answer. */
export function sendMetrics(response: ServerResponse, { contentType, pieces }: MetricsAnswer): void {
  response.writeHead(200, {
    'content-type': contentType,
    'content-length': pieces.reduce((sum, { length }) => sum + length, 0),
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
  });
  endParts(response, pieces);
}

/** Registers the route on the listener of all clients. */
export function registerMetrics(app: FastifyInstance, { metrics, authenticator, clock, log }: MetricsRouteDeps): void {
  app.route({
    method: 'GET',
    url: '/metrics',
    exposeHeadRoute: false,
    onRequest: async ({ raw }, reply) => {
      try {
        const token = readCredential(raw.rawHeaders);
        if (token === null) {
          throw new SluiceError(
            'unauthenticated',
            'Send the operator key of the installation: authorization: Bearer slc_opr_…',
          );
        }
        const { kind } = await authenticator.authenticate(token, clientAddress(raw));
        if (kind !== 'operator') throw new SluiceError('forbidden', 'This needs the operator key of the installation.');
        const answer = await metrics.answer(raw.headers.accept);
        reply.hijack();
        sendMetrics(reply.raw, answer);
        return reply;
      } catch (error) {
        return send(reply, adminError(error, uuidv7(clock), log));
      }
    },
    handler: async () => undefined,
  });
}
