import { z } from 'zod';
import { isObject, type JsonObject } from '../../../kernel/json.ts';
import { awsSigned } from '../../../kernel/sigv4.ts';
import { BOTH, ifAsked } from '../support.ts';
import { consult } from './consult.ts';
import { base, credential, credentials, endpoint, hosted, label, redact, secret, word } from './service.ts';

const applied = z.looseObject({
  action: z.enum(['NONE', 'GUARDRAIL_INTERVENED']),
  outputs: z.array(z.looseObject({ text: z.string().optional() })).default([]),
  assessments: z.array(z.unknown()).default([]),
});

/** Topics and patterns have the names that their guardrail gives them; all else has a type. */
function nameOf({ name, type }: JsonObject): string {
  return typeof name === 'string' && /^[A-Za-z][A-Za-z _-]{0,99}$/.test(name) ? name : label(type ?? name);
}

/** Names of what the policies found, by what was done about it. Policies are objects that hold lists of such. */
function actionsOf(assessments: readonly unknown[]): { readonly blocked: string[]; readonly masked: string[] } {
  const blocked: string[] = [];
  const masked: string[] = [];
  for (const assessment of assessments)
    for (const policy of isObject(assessment) ? Object.values(assessment) : [])
      for (const list of isObject(policy) ? Object.values(policy) : [])
        for (const one of Array.isArray(list) ? list : []) {
          if (!isObject(one)) continue;
          const name = nameOf(one);
          if (one.action === 'BLOCKED') blocked.push(name === 'unnamed' ? 'word' : name);
          if (one.action === 'ANONYMIZED') masked.push(name);
        }
  return { blocked, masked };
}

/**
 * `bedrock.guard`: a guardrail of Amazon Bedrock. Each text is a separate block of content, so that masked texts come back
 * one by one.
 */
export const bedrockGuard = hosted({
  id: 'bedrock.guard',
  service: 'Amazon Bedrock Guardrails',
  phases: BOTH,
  parameters: z.strictObject({
    guardrailId: z
      .string()
      .max(2_048)
      .regex(
        /^(?:[a-z0-9]+|arn:aws(?:-[^:/]+)?:bedrock:[a-z0-9-]{1,20}:[0-9]{12}:guardrail\/[a-z0-9]+)$/,
        'must be the id or the ARN of a guardrail',
      ),
    guardrailVersion: z.string().regex(/^(?:[1-9][0-9]{0,7}|DRAFT)$/, 'must be a version number or DRAFT'),
    redact,
  }),
  credentials: credentials({
    accessKeyId: secret,
    secretAccessKey: secret,
    sessionToken: secret.optional(),
    region: credential(word('must be a region such as us-east-1', /^[a-z]{2}(?:-[a-z]+){1,3}-\d{1,2}$/)),
    endpoint: endpoint.optional(),
  }),
  redacts: ifAsked,
  compile({ guardrailId, guardrailVersion, redact: replace }, given) {
    const { accessKeyId, secretAccessKey, sessionToken, region, endpoint: at } = given;
    const identity = { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? null : { sessionToken }) };
    const root = base(at, `https://bedrock-runtime.${region}.amazonaws.com`);
    const to = `${root}/guardrail/${encodeURIComponent(guardrailId)}/version/${guardrailVersion}/apply`;
    return (subject, ask) =>
      consult({
        ask,
        subject,
        redact: replace,
        // 25 text units of up to 1 000 characters each.
        limits: { piece: 25_000, call: 25_000, most: 100, overlap: replace ? 0 : 256 },
        async about(pieces) {
          const content = pieces.map(({ text }) => ({ text: { text } }));
          const body = JSON.stringify({ source: subject.phase === 'input' ? 'INPUT' : 'OUTPUT', content });
          const headers = await awsSigned(
            {
              method: 'POST',
              url: new URL(to),
              headers: { 'content-type': 'application/json', accept: 'application/json' },
              body: Buffer.from(body),
            },
            identity,
            { service: 'bedrock', region },
            ask.outside.now(),
          );
          const { action, outputs, assessments } = await ask.post(to, headers, body, applied);
          if (action === 'NONE') return { blocked: [], masked: [] };
          const { blocked, masked } = actionsOf(assessments);
          if (blocked.length > 0 || masked.length === 0)
            return { blocked: blocked.length > 0 ? blocked : ['what it blocks'], masked: [] };
          const texts = outputs.map(({ text }) => text);
          // An answer without one text for each would put a text where another was.
          const aligned = texts.length === pieces.length && texts.every((text) => text !== undefined);
          return aligned ? { blocked: [], masked, texts } : { blocked: masked, masked: [] };
        },
      });
  },
});
