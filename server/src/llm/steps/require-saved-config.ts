import { type ErrorReason, SluiceError } from '../../kernel/errors.ts';
import type { Uses } from '../exchange.ts';
import { isManaged } from '../managed.ts';
import { REDIRECTING_HEADERS } from '../provider-headers.ts';
import type { LlmRequest } from '../state/request.ts';

/** Refuses what saved-only mode forbids, by the headers alone and before the body is read. */
export function requireSavedConfig(x: Uses<'request'>): void {
  if (x.request.snapshot?.blockInlineConfig === true) refuseInline(x.request);
}

/** Throws for the first violation in the order of the contract's table. */
function refuseInline(request: LlmRequest): void {
  const config = request.header('x-gateway-config');
  const provider = request.header('x-gateway-provider');
  const blocked = (reason: ErrorReason, field: string, message: string): never => {
    throw new SluiceError('inline_blocked', message, { reason, param: field });
  };
  if (config?.trimStart().startsWith('{')) {
    blocked(
      'inline_config_blocked',
      'x-gateway-config',
      'This organisation allows saved configs only; save the config and send its slug in x-gateway-config.',
    );
  }
  // Sluice's own store is no provider that a caller brings along.
  const own = request.operation.family === 'job' && isManaged(request);
  if (provider !== undefined && !provider.startsWith('@') && !own) {
    blocked(
      'inline_provider_blocked',
      'x-gateway-provider',
      'This organisation allows saved providers only; send x-gateway-provider: @slug.',
    );
  }
  if (request.header('x-gateway-custom-host') !== undefined) {
    blocked(
      'inline_custom_host_blocked',
      'x-gateway-custom-host',
      'This organisation allows saved hosts only; save custom_host on the integration.',
    );
  }
  const redirecting = REDIRECTING_HEADERS.find((name) => request.header(name) !== undefined);
  if (redirecting !== undefined) {
    blocked(
      'inline_provider_url_blocked',
      redirecting,
      `This organisation allows saved hosts only; remove the header ${redirecting}.`,
    );
  }
  if (request.header('x-gateway-forward-headers') !== undefined) {
    blocked(
      'inline_forward_headers_blocked',
      'x-gateway-forward-headers',
      'This organisation allows saved forward headers only; put forward_headers into a saved config.',
    );
  }
}
