/** How a request ends. */
export type Result = 'ok' | 'refused' | 'failed' | 'aborted';

/** What is left to send once the record is in the journal: a whole answer, or the held-back end of one. */
export type Ending =
  | { readonly kind: 'whole'; readonly status: number; readonly headers: string[]; readonly body: readonly Buffer[] }
  | { readonly kind: 'tail'; readonly body: readonly Buffer[] }
  /** The client is gone, or the connection must be cut because the answer cannot be completed. */
  | { readonly kind: 'destroy' };

/** What became of one request, whatever kind of traffic it is. Its record is made of this and of the request. */
export class Outcome {
  ending: Ending | null = null;
  /** The client has the status and the headers. */
  headSent = false;
  /** HTTP status that the client is given; 0 before there is one. */
  status = 0;
  result: Result = 'ok';
  errorCode: string | null = null;
  errorMessage: string | null = null;
  costMicros: number | null = null;
  /** What `costMicros` leaves out, picodollars (`pricing/cost.ts`). */
  costCarry = 0;
  /** Something was used whose cost nobody knows. */
  unpriced = false;
  /** Bytes of bodies, from and to the client. */
  bytesIn = 0;
  bytesOut = 0;
}
