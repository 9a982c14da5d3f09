import { z } from 'zod';
import { isObject } from '../../../kernel/json.ts';
import type { Subject } from '../../check.ts';
import { BOTH, ifAsked } from '../support.ts';
import { consult } from './consult.ts';
import { base, credentials, endpoint, hosted, redact, secret, word } from './service.ts';
import { joined } from './texts.ts';

const validated = z.looseObject({
  action: z.enum(['passthrough', 'block', 'rephrase', 'modify']),
  revised_response: z.string().nullish(),
});

const roleOf = (role: unknown): string =>
  role === 'system' || role === 'user' || role === 'assistant' ? role : 'other';

/** Messages of the request that an answer belongs to, as far as they are plain text: the service wants them beside it. */
const MESSAGES = 20;
const EACH = 4_000;
function asked(subject: Subject): { readonly role: string; readonly content: string }[] {
  const request = subject.request();
  const messages = isObject(request) && Array.isArray(request.messages) ? request.messages : [];
  return messages.slice(-MESSAGES).flatMap((message) => {
    if (!isObject(message) || typeof message.content !== 'string') return [];
    return [{ role: roleOf(message.role), content: message.content.slice(0, EACH).toWellFormed() }];
  });
}

/**
 * `aporia.validateProject`: the policies of a project of Aporia Guardrails. Fails unless the text passes as it is; with `redact`
 * an answer that the service modifies or rephrases passes with its words.
 */
export const aporia = hosted({
  id: 'aporia.validateProject',
  service: 'Aporia Guardrails',
  phases: BOTH,
  parameters: z.strictObject({ projectID: word('must be the id of a project'), redact }),
  credentials: credentials({ apiKey: secret, endpoint: endpoint.optional() }),
  redacts: ifAsked,
  compile({ projectID, redact: replace }, { apiKey, endpoint: at }) {
    const to = `${base(at, 'https://gr-prd.aporia.com')}/${projectID}/validate`;
    return (subject, ask) => {
      const input = subject.phase === 'input';
      return consult({
        ask,
        subject,
        redact: replace,
        limits: {
          piece: 16_000,
          call: 16_000,
          most: 1_000,
          overlap: replace ? 0 : 256,
          group: ({ role }) => (input ? roleOf(role ?? 'user') : ''),
        },
        async about(pieces) {
          const content = joined(pieces);
          const body = input
            ? { messages: [{ role: roleOf(pieces[0]?.part.role ?? 'user'), content }], validation_target: 'prompt' }
            : { messages: asked(subject), response: content, validation_target: 'response' };
          const said = await ask.post(to, { 'x-aporia-api-key': apiKey }, { ...body, explain: false }, validated);
          if (said.action === 'passthrough') return { blocked: [], masked: [] };
          const revised = said.revised_response ?? null;
          if (said.action === 'block' || input || revised === null) return { blocked: [said.action], masked: [] };
          return { blocked: [], masked: [said.action], texts: pieces.length === 1 ? [revised] : null };
        },
      });
    };
  },
});
