import type { AdminDeps } from '../admin/handle.ts';
import type { AdminLimiter } from '../admin/rate-limit.ts';
import type { Clock } from '../kernel/clock.ts';
import type { JsonObject } from '../kernel/json.ts';
import type { TenantTx } from '../store/ports.ts';

/** What SCIM is given by the process. */
export interface ScimDeps
  extends Pick<
    AdminDeps,
    'tables' | 'vault' | 'clock' | 'log' | 'authenticator' | 'publicUrl' | 'caughtUp' | 'accessLog'
  > {
  /** Whether users say which groups they are in, instead of groups who is in them. */
  readonly membersByUser: boolean;
  /** Of each token. */
  readonly limiter: AdminLimiter;
}

/** What the protocol gets of a request: never headers, never HTTP. */
export interface ScimCall {
  readonly tx: TenantTx;
  readonly clock: Clock;
  /** Where the directory reaches its resources, from the public URL: `https://…/v1/scim/{organisationId}`. */
  readonly base: string;
  /** Whether `groups` of users is written and `members` of groups is ignored; else the reverse. */
  readonly membersByUser: boolean;
  /** Id of the token. */
  readonly actorId: string;
  /** What the audit row says of the resource. */
  audit(resourceId: string, change: { before: object | null; after: object | null }): void;
}

/** A resource as it is answered. */
export interface Answered {
  readonly status: 200 | 201 | 204;
  /** Null with 204. */
  readonly body: JsonObject | null;
  /** Of a resource that was made. */
  readonly location?: string;
  readonly etag?: string;
}

/** What a client says of the version that it knows. */
export interface Conditions {
  readonly ifMatch: string | null;
}
