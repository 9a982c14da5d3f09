/** Answers the ping of the Sluice that this gateway is registered with, as `gateway_base_url` of a deployment. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { OperatorHttp } from '../http/operator-http.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { Log } from '../kernel/log.ts';
import type { Secret } from '../kernel/secret.ts';
import { readJsonBody } from './json-body.ts';
import { adminError, adminSuccess, JSON_OK, send } from './respond.ts';

const PATHS = ['/v1/verify-ping', '/v2/verify-ping'];

/** The Sluice that this gateway is registered with, without `/v1`, and the `client_auth` of the deployment. */
interface ControlPlane {
  readonly url: string;
  readonly clientAuth: Secret;
}

interface VerifyPingDeps {
  /** Null: this gateway is registered nowhere. */
  readonly controlPlane: ControlPlane | null;
  /** Asked once, for the first ping: its library takes memory that most nodes never need. */
  readonly openHttp: () => Promise<Pick<OperatorHttp, 'send'>>;
  readonly clock: Clock;
  readonly log: Log;
}

/** Less than the ten seconds that both calls of a ping share. */
const CALL_MS = 8_000;
/** Pings come from people. More at once come from callers who have no reason to send them. */
const MAX_AT_ONCE = 4;
const MAX_CODE = 128;

/**
 * Registers the route. It needs no credential, so it sends nothing to an address that a request names: the code goes to the
 * address in the settings, and only when the request names that one.
 */
export function registerVerifyPing(app: FastifyInstance, deps: VerifyPingDeps): void {
  let running = 0;
  let http: Promise<Pick<OperatorHttp, 'send'>> | null = null;
  const answer = async (request: FastifyRequest) => {
    const { controlPlane, openHttp, clock } = deps;
    if (controlPlane === null) {
      throw new SluiceError(
        'not_found',
        'This gateway answers no pings: set SLUICE_CONTROL_PLANE_URL and SLUICE_CLIENT_AUTH, and start it again.',
      );
    }
    if (running >= MAX_AT_ONCE) {
      throw new SluiceError('throttled', `${MAX_AT_ONCE} pings run already; try again in a second.`, { retryAfter: 1 });
    }
    running += 1;
    try {
      const body = await readJsonBody(request.raw, clock);
      const { code, callback_url: callback } = body ?? {};
      if (typeof code !== 'string' || code === '' || code.length > MAX_CODE)
        throw new SluiceError('validation', `code must be a text of 1 to ${MAX_CODE} characters.`, { param: 'code' });
      const address = `${controlPlane.url}/v1/deployments/self/verify-ping`;
      if (callback !== address) {
        throw new SluiceError('forbidden', `callback_url must be ${address}, as SLUICE_CONTROL_PLANE_URL says.`, {
          param: 'callback_url',
        });
      }
      http ??= openHttp();
      await callBack(await http, address, controlPlane, code);
      return {};
    } finally {
      running -= 1;
    }
  };
  for (const url of PATHS) {
    app.route({
      method: 'POST',
      url,
      onRequest: async (request: FastifyRequest, reply: FastifyReply) => {
        const id = uuidv7(deps.clock);
        try {
          return send(reply, adminSuccess(JSON_OK, await answer(request), id));
        } catch (error) {
          return send(reply, adminError(error, id, deps.log));
        }
      },
      handler: async () => undefined,
    });
  }
}

async function callBack(
  http: Pick<OperatorHttp, 'send'>,
  address: string,
  { clientAuth }: ControlPlane,
  code: string,
): Promise<void> {
  let status: number;
  try {
    const answer = await http.send({
      method: 'POST',
      url: new URL(address),
      headers: { authorization: clientAuth.reveal(), 'content-type': 'application/json' },
      body: Buffer.from(JSON.stringify({ code })),
      timeoutMs: CALL_MS,
    });
    answer.body.destroy();
    status = answer.status;
  } catch (cause) {
    throw new SluiceError('upstream_unreachable', `${address} could not be reached. Check SLUICE_CONTROL_PLANE_URL.`, {
      cause,
    });
  }
  if (status >= 200 && status < 300) return;
  throw new SluiceError(
    'upstream_invalid',
    `${address} answered with ${status} instead of a status from 200 to 299. Check SLUICE_CLIENT_AUTH.`,
  );
}
