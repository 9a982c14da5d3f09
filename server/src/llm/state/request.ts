import type { IncomingMessage } from 'node:http';
import { type RequestClocks, RequestContext } from '../../gateway/request-context.ts';
import type { SluiceError } from '../../kernel/errors.ts';
import type { Operation } from '../../operations/operation.ts';
import type { Media } from '../media-names.ts';
import type { Plan } from '../plan.ts';

/** What is known of a request to a model. */
export class LlmRequest extends RequestContext {
  readonly operation: Operation;
  /** Of the path; a model without the slug of a provider once the request is resolved. */
  params: Readonly<Record<string, string>>;
  /** Why the caller, known otherwise, must not call any more; the request is refused with it and recorded as theirs. */
  refusal: SluiceError | null;
  /** Header the gateway credential came in: its value must never leave. */
  credentialHeader: string;
  /** Provider token the caller brought itself. */
  callerToken: string | null;
  /** As it was asked for, without the slug of a provider. */
  model: string;
  dryRun: boolean;
  plan: Plan | null;
  /** What its addresses of pictures and files lead to; null while nothing was fetched. */
  media: Media | null;
  /** Bytes of that. */
  mediaBytes: number;

  constructor(
    clocks: RequestClocks,
    operation: Operation,
    incoming: IncomingMessage,
    params: Readonly<Record<string, string>>,
  ) {
    super(incoming, clocks);
    this.operation = operation;
    this.params = params;
    this.refusal = null;
    this.credentialHeader = 'x-gateway-api-key';
    this.callerToken = null;
    this.model = '';
    this.dryRun = false;
    this.plan = null;
    this.media = null;
    this.mediaBytes = 0;
  }
}
