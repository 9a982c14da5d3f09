/** Moderation of texts by category: OpenAI and Mistral publish the same form. */
import { z } from 'zod';
import { CheckError } from '../../check.ts';
import { BOTH, MAX_CHOICES } from '../support.ts';
import { consult } from './consult.ts';
import { base, credentials, endpoint, hosted, secret } from './service.ts';
import type { Limits } from './texts.ts';

const keys = credentials({ apiKey: secret, endpoint: endpoint.optional() });
const flags = z.looseObject({
  results: z.array(z.looseObject({ categories: z.record(z.string(), z.unknown()) })),
});

function moderation<const C extends string>(given: {
  readonly id: string;
  readonly service: string;
  readonly model: string;
  readonly url: string;
  readonly known: readonly [C, ...C[]];
  /** Absent: all. */
  readonly required: boolean;
  readonly limits: Limits;
}) {
  const { id, service, model, known, limits } = given;
  const list = z.array(z.enum(known)).min(1).max(MAX_CHOICES);
  return hosted({
    id,
    service,
    phases: BOTH,
    parameters: z.strictObject({ categories: given.required ? list : list.default([...known]) }),
    credentials: keys,
    compile({ categories }, { apiKey, endpoint: at }) {
      const to = `${base(at, given.url)}/v1/moderations`;
      return (subject, ask) =>
        consult({
          ask,
          subject,
          limits,
          async about(pieces) {
            const body = { model, input: pieces.map(({ text }) => text) };
            const { results } = await ask.post(to, { authorization: `Bearer ${apiKey}` }, body, flags);
            if (results.length !== pieces.length) throw new CheckError(`${service} did not judge every text.`);
            const blocked = results.flatMap(({ categories: said }) => categories.filter((name) => said[name] === true));
            // A category that is gone must not pass for one that was not found.
            const gone = categories.find((name) => results.some((one) => typeof one.categories[name] !== 'boolean'));
            if (blocked.length === 0 && gone !== undefined) throw new CheckError(`${service} says nothing of ${gone}.`);
            return { blocked, masked: [] };
          },
        });
    },
  });
}

/** `gateway.moderateContent`: the published categories of OpenAI's moderation model. */
export const openaiModeration = moderation({
  id: 'gateway.moderateContent',
  service: 'OpenAI moderation',
  model: 'omni-moderation-latest',
  url: 'https://api.openai.com',
  known: [
    'hate',
    'hate/threatening',
    'harassment',
    'harassment/threatening',
    'self-harm',
    'self-harm/intent',
    'self-harm/instructions',
    'sexual',
    'sexual/minors',
    'violence',
    'violence/graphic',
  ],
  required: true,
  limits: { piece: 20_000, call: 200_000, most: 32, overlap: 256 },
});

/** `mistral.moderateContent`. Its model reads 8 000 tokens of each text, and a character is at most about one. */
export const mistralModeration = moderation({
  id: 'mistral.moderateContent',
  service: 'Mistral moderation',
  model: 'mistral-moderation-latest',
  url: 'https://api.mistral.ai',
  known: [
    'sexual',
    'hate_and_discrimination',
    'violence_and_threats',
    'dangerous_and_criminal_content',
    'selfharm',
    'health',
    'financial',
    'law',
    'pii',
  ],
  required: false,
  limits: { piece: 8_000, call: 128_000, most: 16, overlap: 256 },
});
