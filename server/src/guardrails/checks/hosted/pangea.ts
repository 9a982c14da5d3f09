import { z } from 'zod';
import { BOTH, INPUT, ifAsked, MAX_CHOICES, text } from '../support.ts';
import { consult } from './consult.ts';
import { base, credential, credentials, endpoint, hosted, label, redact, secret, word } from './service.ts';
import { joined } from './texts.ts';

const keys = credentials({
  token: secret,
  // Only Pangea's own: another address is in `endpoint`, where its change asks for the token again.
  domain: credential(
    word('must be a domain such as aws.us.pangea.cloud', /^(?:[a-z0-9-]{1,63}\.){1,6}pangea\.cloud$/),
  ).optional(),
  endpoint: endpoint.optional(),
});
const DOMAIN = 'aws.us.pangea.cloud';

/** 20 KiB of UTF-8: a UTF-16 unit is at most three bytes of it. */
const ROOM = 6_800;

const checked = z.looseObject({
  status: z.literal('Success'),
  result: z.looseObject({
    blocked: z.boolean().nullish(),
    prompt_text: z.string().nullish(),
    detectors: z.record(z.string(), z.unknown()).nullish(),
  }),
});
const detection = z.looseObject({ detected: z.boolean() });

/**
 * `pangea.textGuard`: a recipe of AI Guard. Fails on what the recipe blocks, and on what it redacts; with `redact` the latter
 * passes redacted. What the recipe only reports passes.
 */
export const pangeaText = hosted({
  id: 'pangea.textGuard',
  service: 'Pangea AI Guard',
  phases: BOTH,
  parameters: z.strictObject({ recipe: text(200).optional(), redact }),
  credentials: keys,
  redacts: ifAsked,
  compile({ recipe, redact: replace }, { token, domain = DOMAIN, endpoint: at }) {
    const to = `${base(at, `https://ai-guard.${domain}`)}/v1/text/guard`;
    return (subject, ask) =>
      consult({
        ask,
        subject,
        redact: replace,
        limits: { piece: ROOM, call: ROOM, most: 1_000, overlap: replace ? 0 : 256 },
        async about(pieces) {
          const whole = joined(pieces);
          const body = { text: whole, ...(recipe === undefined ? null : { recipe }) };
          const { result } = await ask.post(to, { authorization: `Bearer ${token}` }, body, checked);
          const names = Object.entries(result.detectors ?? {}).flatMap(([name, said]) =>
            detection.safeParse(said).data?.detected === true ? [label(name)] : [],
          );
          if (result.blocked === true)
            return { blocked: names.length > 0 ? names : ['what its recipe blocks'], masked: [] };
          const made = result.prompt_text ?? whole;
          if (made === whole) return { blocked: [], masked: [] };
          const masked = names.length > 0 ? names : ['what its recipe redacts'];
          return { blocked: [], masked, texts: pieces.length === 1 ? [made] : null };
        },
      });
  },
});

const judged = z.looseObject({
  status: z.literal('Success'),
  result: z.looseObject({ detected: z.boolean(), type: z.string().nullish(), analyzer: z.string().nullish() }),
});

/** `pangea.promptGuard`: prompt injection by Pangea's analyzers, in requests. */
export const pangeaPrompt = hosted({
  id: 'pangea.promptGuard',
  service: 'Pangea Prompt Guard',
  phases: INPUT,
  parameters: z.strictObject({
    analyzers: z
      .array(word('must be an analyzer such as PA4002', /^[A-Z0-9]{1,20}$/))
      .min(1)
      .max(MAX_CHOICES)
      .optional(),
  }),
  credentials: keys,
  compile({ analyzers }, { token, domain = DOMAIN, endpoint: at }) {
    const to = `${base(at, `https://prompt-guard.${domain}`)}/v1/guard`;
    const roleOf = (role: string | null | undefined) => (role === 'system' || role === 'assistant' ? role : 'user');
    return (subject, ask) =>
      consult({
        ask,
        subject,
        limits: { piece: ROOM, call: ROOM, most: 1_000, overlap: 256, group: ({ role }) => roleOf(role) },
        async about(pieces) {
          const body = {
            messages: [{ role: roleOf(pieces[0]?.part.role), content: joined(pieces) }],
            ...(analyzers === undefined ? null : { analyzers }),
          };
          const { result } = await ask.post(to, { authorization: `Bearer ${token}` }, body, judged);
          if (!result.detected) return { blocked: [], masked: [] };
          const analyzer = result.analyzer ?? '';
          return { blocked: [analyzer === '' ? 'prompt injection' : label(analyzer)], masked: [] };
        },
      });
  },
});
