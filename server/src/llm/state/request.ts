import type { IncomingMessage } from 'node:http';
import { type RequestClocks, RequestContext } from '../../gateway/request-context.ts';
import type { SluiceError } from '../../kernel/errors.ts';
import type { Operation } from '../../operations/operation.ts';
import type { Plan } from '../plan.ts';
import { NO_BODY, type RequestBody } from './body.ts';

/** What is known of a request to a model. The steps of the head find it out (`RequestHead`); for all others it is constant. */
export class LlmRequest extends RequestContext {
  readonly operation: Operation;
  /** Of the path; a model without the slug of a provider once the request is resolved. */
  readonly params: Readonly<Record<string, string>>;
  /** Why the caller, known otherwise, must not call any more; the request is refused with it and recorded as theirs. */
  readonly refusal: SluiceError | null;
  /** Header the gateway credential came in: its value must never leave. */
  readonly credentialHeader: string;
  /** Provider token the caller brought itself. */
  readonly callerToken: string | null;
  /** As it was asked for, without the slug of a provider. */
  readonly model: string;
  /** As it came; what a target is sent is in its attempt. */
  readonly body: RequestBody;
  /** A stream is asked for. */
  readonly stream: boolean;
  readonly dryRun: boolean;
  readonly plan: Plan | null;

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
    this.body = NO_BODY;
    this.stream = false;
    this.dryRun = false;
    this.plan = null;
  }
}

/** The same request, as the steps of the head may write it, and who makes one whose caller is known. */
export interface RequestHead extends LlmRequest {
  body: LlmRequest['body'];
  callerToken: LlmRequest['callerToken'];
  credentialHeader: LlmRequest['credentialHeader'];
  dryRun: LlmRequest['dryRun'];
  metadata: LlmRequest['metadata'];
  model: LlmRequest['model'];
  params: LlmRequest['params'];
  plan: LlmRequest['plan'];
  principal: LlmRequest['principal'];
  refusal: LlmRequest['refusal'];
  snapshot: LlmRequest['snapshot'];
  stream: LlmRequest['stream'];
}
