/** `GET /metrics` beside the API: for the operator, who is not shown what belongs to organisations. */
import type { FastifyInstance } from 'fastify';
import type { Authenticator } from '../auth/authenticator.ts';
import { readCredential } from '../auth/credential.ts';
import { clientAddress } from '../http/client-address.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { Log } from '../kernel/log.ts';
import type { Exposed } from '../telemetry/metrics/exposed.ts';
import { adminError, send } from './respond.ts';

interface MetricsRouteDeps {
  readonly metrics: Exposed;
  readonly authenticator: Pick<Authenticator, 'authenticate'>;
  readonly clock: Clock;
  readonly log: Log;
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
        const { contentType, body } = await metrics.answer(raw.headers.accept);
        return reply
          .headers({ 'content-type': contentType, 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' })
          .send(body);
      } catch (error) {
        return send(reply, adminError(error, uuidv7(clock), log));
      }
    },
    handler: async () => undefined,
  });
}
