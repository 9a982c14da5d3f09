/** Whether Sluice and a registered gateway reach each other. */
import { createHash, randomBytes } from 'node:crypto';
import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import { text } from '../body-fields.ts';
import { refuse } from '../common.ts';
import { emptyAnswer, itemAction } from '../define.ts';
import { Service, withServices } from '../services.ts';
import type { ResourceSpec } from '../spec.ts';

/** A gateway that is to be checked, and the address that it is to call back. */
export interface PingedGateway {
  readonly organisationId: string;
  /** Without `/v1`. */
  readonly baseUrl: string;
  readonly callbackUrl: string;
  readonly code: string;
}

/** What a gateway made of a ping: an error is a sentence for the caller, null for none. */
export interface PingedAnswer {
  readonly version: string | null;
  readonly outboundError: string | null;
  /** Of the request for a call-back; whether that came is for the caller to see. */
  readonly inboundError: string | null;
}

export interface Gateways {
  /** Asks for health, then for a call-back with the code, both within 10 seconds. Rejects for no fault of the gateway. */
  ping(gateway: PingedGateway, signal: AbortSignal): Promise<PingedAnswer>;
}

export const GATEWAYS = new Service<Gateways>('way to call gateways');

const leg = { success: z.boolean(), error: z.string().nullable() };

const answer = z.object({
  outbound: z.object({ ...leg, version: z.string().nullable() }).describe('From Sluice to the gateway.'),
  inbound: z.object(leg).describe('From the gateway to Sluice.'),
  object: z.literal('deployment-ping'),
});

const callback = z.strictObject({ code: text(128, 1).describe('The code of the ping.') });

const digestOf = (code: string): string => createHash('sha256').update(code).digest('hex');

const NO_CALL =
  'The gateway did not call back. It must send POST /v1/deployments/self/verify-ping with the code and its client_auth before it answers.';

/**
 * The code is known to this call and to the gateway only, and the call-back, on whichever node, leaves its digest in the
 * row: so the two find each other without anything shared but the store.
 */
export const ping = (spec: ResourceSpec<'deployments'>) =>
  itemAction(spec, {
    name: 'ping',
    method: 'GET',
    summary: 'Ping a deployment',
    description:
      'Asks `{gateway_base_url}/v1/health`, then sends `{code, callback_url}` to `{gateway_base_url}/v1/verify-ping`. Within 10 seconds the gateway must answer both, and call `callback_url` back with the code and its `client_auth`. Sets `connection_status`.',
    verb: 'read',
    response: answer,
    audit: 'manage',
    ahead: async ({ publicUrl, tenant }, row) => {
      const { gateway_base_url: baseUrl } = row.auth_settings;
      if (baseUrl === null) throw refuse('auth_settings.gateway_base_url', 'is not set: set it before a ping');
      const code = randomBytes(32).toString('hex');
      const callbackUrl = `${publicUrl}/v1/deployments/self/verify-ping`;
      const gateway = { organisationId: tenant.organisationId, baseUrl, callbackUrl, code };
      return withServices({ gateways: GATEWAYS }, async ({ gateways, signal }) => ({
        ...(await gateways.ping(gateway, signal)),
        code,
      }));
    },
    run: async ({ asked }, row) => {
      if (asked === null) throw new Error('a ping has no answer');
      const { version, outboundError, inboundError, code } = asked;
      const heard = row.ping_digest === digestOf(code);
      const error = inboundError ?? (heard ? null : NO_CALL);
      const healthy = outboundError === null && error === null;
      return {
        patch: {
          connection_status: healthy ? ('healthy' as const) : ('unhealthy' as const),
          last_updated_at: row.last_updated_at,
        },
        answer: {
          outbound: { success: outboundError === null, version, error: outboundError },
          inbound: { success: error === null, error },
          object: 'deployment-ping' as const,
        },
      };
    },
  });

export const verifyPing = (spec: ResourceSpec<'deployments'>) =>
  itemAction(spec, {
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
  });
