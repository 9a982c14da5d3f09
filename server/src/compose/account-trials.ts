/** Requests that test an account, through the data plane of this node. */
import { internalRequest } from '../gateway/internal-request.ts';
import { InProcessResponse, inProcessRequest } from '../http/in-process.ts';
import { SluiceError } from '../kernel/errors.ts';
import { parseJson } from '../kernel/json-exact.ts';
import type { DataPlane } from '../llm/routes.ts';
import { OPERATIONS } from '../operations/operation.ts';
import type { AccountTrials } from '../resources/integrations/trial.ts';

/** A list of models may be long. */
const MAX_ANSWER = 8 * 1024 * 1024;
const EMPTY = Buffer.alloc(0);

/** @param plane null where this node does not serve it */
export function accountTrials(plane: DataPlane | null): AccountTrials {
  return {
    async run({ principal, workspaceId, slug, model, signal }) {
      if (plane === null) {
        throw new SluiceError('unavailable', 'This node does not serve the data plane (SLUICE_ROLES).');
      }
      const caller = { ...principal, workspaceId };
      const headers = { 'x-gateway-provider': `@${slug}` };
      if (model === null) {
        const incoming = inProcessRequest('GET', '/v1/models', headers);
        const response = new InProcessResponse(incoming, MAX_ANSWER);
        return answered(response, signal, plane.runAs(caller, OPERATIONS.models, incoming, response, EMPTY));
      }
      const request = { model: `@${slug}/${model}`, max_tokens: 1, messages: [{ role: 'user', content: 'Hi' }] };
      const { incoming, response, body } = internalRequest('/v1/chat/completions', {}, request, MAX_ANSWER);
      return answered(response, signal, plane.runAs(caller, OPERATIONS.chat, incoming, response, body));
    },
  };
}

async function answered(response: InProcessResponse, signal: AbortSignal, run: Promise<void>) {
  const leave = () => response.destroy();
  signal.addEventListener('abort', leave, { once: true });
  try {
    const [{ status, body, complete }] = await Promise.all([response.collected, run]);
    if (!complete) return { status: 502, body: { error: { message: 'The answer was cut before it was complete.' } } };
    return { status, body: parsed(body) };
  } finally {
    signal.removeEventListener('abort', leave);
  }
}

function parsed(bytes: Buffer): unknown {
  try {
    return parseJson(bytes.toString('utf8'));
  } catch {
    return null;
  }
}
