/** What guardrails know of the request of an exchange. */
import { factsOf } from '../../kernel/json-scan.ts';
import type { Uses } from '../exchange.ts';
import { modelUnder } from '../shaping.ts';
import { addressModel, addressTexts } from './address.ts';
import type { JudgedFacts, JudgedRequest } from './judged-request.ts';

export function judgedRequest(x: Uses<'attempt' | 'request', 'clock'>): JudgedRequest {
  const { request, attempt } = x;
  const { target } = attempt;
  return {
    operation: request.operation,
    body: attempt.body,
    shaping: attempt.shaping,
    model: request.model,
    target: { model: modelUnder(target?.shaping ?? null, request.model), provider: target?.provider.id ?? null },
    otherModels: [addressModel(request), target?.chosen ?? null].filter((name) => name !== null),
    streams: attempt.stream,
    metadata: request.metadata ?? {},
    address: () => addressTexts(request),
    header: (name) => request.header(name),
    services: x.services,
  };
}

export function judgedFacts(x: Uses<'attempt' | 'request', 'clock'>): JudgedFacts {
  const { operation, body, address, header: _, services: __, ...rest } = judgedRequest(x);
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(x.request.incoming.headers))
    if (typeof value === 'string') headers[name] = value;
  return { ...rest, operation: operation.id, scan: body.scan && factsOf(body.scan), address: address(), headers };
}
