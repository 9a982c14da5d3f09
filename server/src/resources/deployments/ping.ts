/** Whether Sluice and a registered gateway reach each other. */
import { createHash, randomBytes } from 'node:crypto';
import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import { refuse } from '../common.ts';
import { emptyAnswer, type ItemAction } from '../define.ts';
import type { PingedAnswer, PingedGateway } from '../ports.ts';
import { text } from '../shapes.ts';

const leg = { success: z.boolean(), error: z.string().nullable() };

const answer = z.object({
  outbound: z.object({ ...leg, version: z.string().nullable() }).describe('From Sluice to the gateway.'),
  inbound: z.object(leg).describe('From the gateway to Sluice.'),
  object: z.literal('deployment-ping'),
});

const callback = z.strictObject({ code: text(128, 1).describe('The code of the ping.') });

const digestOf = (code: string): string => createHash('sha256').update(code).digest('hex');

interface Asked extends PingedAnswer {
  readonly code: string;
}

const NO_CALL =
  'The gateway did not call back. It must send POST /v1/deployments/self/verify-ping with the code and its client_auth before it answers.';

/**
 * The code is known to this call and to the gateway only, and the call-back, on whichever node, leaves its digest in the
 * row: so the two find each other without anything shared but the store.
 */
export const ping: ItemAction<'deployments', unknown, z.input<typeof answer>> = {
  name: 'ping',
  method: 'GET',
  summary: 'Ping a deployment',
  description:
    'Asks `{gateway_base_url}/v1/health`, then sends `{code, callback_url}` to `{gateway_base_url}/v1/verify-ping`. Within 10 seconds the gateway must answer both, and call `callback_url` back with the code and its `client_auth`. Sets `connection_status`.',
  verb: 'read',
  body: null,
  response: answer,
  audit: 'manage',
  ahead: {
    find: async ({ publicUrl, tenant }, row): Promise<PingedGateway> => {
      const { gateway_base_url: baseUrl } = row.auth_settings;
      if (baseUrl === null) throw refuse('auth_settings.gateway_base_url', 'is not set: set it before a ping');
      return {
        organisationId: tenant.organisationId,
        baseUrl,
        callbackUrl: `${publicUrl}/v1/deployments/self/verify-ping`,
        code: randomBytes(32).toString('hex'),
      };
    },
    ask: async ({ gateways, signal }, found): Promise<Asked> => {
      const gateway = found as PingedGateway;
      return { ...(await gateways.ping(gateway, signal)), code: gateway.code };
    },
  },
  run: async (call, row) => {
    const { version, outboundError, inboundError, code } = call.asked as Asked;
    const heard = row.ping_digest === digestOf(code);
    const error = inboundError ?? (heard ? null : NO_CALL);
    const healthy = outboundError === null && error === null;
    return {
      patch: { connection_status: healthy ? 'healthy' : 'unhealthy', last_updated_at: row.last_updated_at },
      answer: {
        outbound: { success: outboundError === null, version, error: outboundError },
        inbound: { success: error === null, error },
        object: 'deployment-ping',
      },
    };
  },
};

export const verifyPing: ItemAction<'deployments', z.output<typeof callback>, object> = {
  name: 'verify-ping',
  method: 'POST',
  summary: 'Call back for a ping',
  description: 'For the gateway itself, with its `client_auth`: answers a ping with the code that came with it.',
  verb: 'read',
  body: callback,
  response: emptyAnswer,
  audit: 'manage',
  run: async (call, row) => {
    if (call.principal.kind !== 'deployment') {
      throw new SluiceError('forbidden', 'Only the deployment itself calls back: send its client_auth.');
    }
    // A ping is no change of the registration, so `last_updated_at` stays.
    const patch = { last_synced_at: call.clock.now(), last_updated_at: row.last_updated_at };
    return { patch: { ping_digest: digestOf(call.body.code), ...patch }, answer: {} };
  },
};
