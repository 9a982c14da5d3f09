/** Calls to gateways that deployments register. */
import { Service } from '../services.ts';

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
