/** Pages for requests for access whose client or address cannot be trusted: nothing that the request brought is in them. */
import type { FastifyReply } from 'fastify';
import type { Log } from '../kernel/log.ts';
import type { PageFault } from './authorization.ts';
import { oauthError } from './errors.ts';

type Fault = PageFault | 'often' | 'failed';

const TEXTS: Readonly<Record<Fault, string>> = {
  client:
    'This Sluice does not know the program that asks for access. Remove the connection in the program and add it again. If the program belongs to your network, sign in to the console first.',
  redirect:
    'The program asks for its answer at an address that it did not register. Do not go on, and tell whoever gave you the link.',
  repeated: 'The address of this page names the program twice. Start again in the program.',
  often: 'Too many requests for access came from your address. Wait a minute and start again in the program.',
  failed: 'Something went wrong on our side. Try again in a moment.',
};

const HEADERS = {
  'content-security-policy': "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-frame-options': 'DENY',
} as const;

export function sendPage(reply: FastifyReply, fault: Fault, status = 400): FastifyReply {
  const page = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Access refused · Sluice</title>
<h1>This request for access cannot be answered</h1>
<p>${TEXTS[fault]}</p></html>`;
  return reply.code(status).headers(HEADERS).type('text/html; charset=utf-8').send(page);
}

export function sendFault(reply: FastifyReply, error: unknown, requestId: string, log: Log): FastifyReply {
  const { status, retryAfter } = oauthError(error);
  if (retryAfter !== null) reply.header('retry-after', String(retryAfter));
  if (status >= 500) log.error('a request for access failed', { request_id: requestId, error });
  return sendPage(reply, status === 429 ? 'often' : 'failed', status);
}
