import { z } from 'zod';
import { CheckError } from '../../check.ts';
import { BOTH, ifAsked, text } from '../support.ts';
import { consult } from './consult.ts';
import { base, credentials, endpoint, hosted, label, redact, secret } from './service.ts';
import { joined } from './texts.ts';

const detected = z.record(z.string(), z.unknown()).nullish();
const masked = z.looseObject({ data: z.string().nullish() }).nullish();
const scanned = z.looseObject({
  action: z.enum(['allow', 'block']),
  timeout: z.boolean().nullish(),
  error: z.boolean().nullish(),
  prompt_detected: detected,
  response_detected: detected,
  prompt_masked_data: masked,
  response_masked_data: masked,
});

/**
 * `panwPrismaAirs.intercept`: a security profile of Prisma AIRS. With `redact`, a block for nothing but sensitive data passes
 * with the data masked.
 */
export const prismaAirs = hosted({
  id: 'panwPrismaAirs.intercept',
  service: 'Prisma AIRS',
  phases: BOTH,
  parameters: z
    .strictObject({
      profileName: text(100).optional(),
      profileId: z.uuid('must be the UUID of a profile').optional(),
      appName: text(200).optional(),
      redact,
    })
    .refine(({ profileName, profileId }) => (profileName === undefined) !== (profileId === undefined), {
      path: ['profileName'],
      message: 'or profileId is required, and not both',
    }),
  credentials: credentials({ apiKey: secret, endpoint: endpoint.optional() }),
  redacts: ifAsked,
  compile({ profileName, profileId, appName, redact: replace }, { apiKey, endpoint: at }) {
    const to = `${base(at, 'https://service.api.aisecurity.paloaltonetworks.com')}/v1/scan/sync/request`;
    const profile = profileId === undefined ? { profile_name: profileName } : { profile_id: profileId };
    return (subject, ask) => {
      const input = subject.phase === 'input';
      const metadata = {
        ...(appName === undefined ? null : { app_name: appName }),
        ...(subject.model === null ? null : { ai_model: subject.model }),
      };
      return consult({
        ask,
        subject,
        redact: replace,
        limits: { piece: 32_000, call: 32_000, most: 1_000, overlap: replace ? 0 : 256 },
        async about(pieces) {
          const whole = joined(pieces);
          const body = {
            ai_profile: profile,
            ...(Object.keys(metadata).length === 0 ? null : { metadata }),
            contents: [input ? { prompt: whole } : { response: whole }],
          };
          const said = await ask.post(to, { 'x-pan-token': apiKey }, body, scanned);
          if (said.action === 'allow') {
            // Detectors that did not come to an end have allowed nothing.
            if (said.timeout === true || said.error === true) throw new CheckError(`${ask.service} did not finish.`);
            return { blocked: [], masked: [] };
          }
          const hits = Object.entries((input ? said.prompt_detected : said.response_detected) ?? {});
          const names = hits.flatMap(([name, hit]) => (hit === true ? [label(name)] : []));
          const data = (input ? said.prompt_masked_data : said.response_masked_data)?.data ?? null;
          if (data !== null && names.length === 1 && names[0] === 'dlp')
            return { blocked: [], masked: names, texts: pieces.length === 1 ? [data] : null };
          return { blocked: names.length > 0 ? names : ['what its profile names'], masked: [] };
        },
      });
    };
  },
});
