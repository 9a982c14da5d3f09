import { z } from 'zod';
import type { Replacement } from '../../check.ts';
import { BOTH, ifAsked, MAX_CHOICES, text, url } from '../support.ts';
import { headers } from '../webhook.ts';
import { consult } from './consult.ts';
import { base, hosted, label, redact, word } from './service.ts';
import { codePoints, joined, MAX_CALLS, NOWHERE, placed } from './texts.ts';

const results = z.array(
  z.looseObject({ entity_type: z.string(), start: z.number().int(), end: z.number().int(), score: z.number() }),
);
const anonymized = z.looseObject({ text: z.string() });
const operator = z.looseObject({ type: text(50) });

/**
 * `presidio.analyze`: personal data found by Presidio servers of one's own. Fails on a finding; with `redact` passes, with the
 * text that the anonymizer makes of it, or with placeholders where no anonymizer is named.
 */
export const presidio = hosted({
  id: 'presidio.analyze',
  service: 'Presidio',
  phases: BOTH,
  parameters: z
    .strictObject({
      analyzerURL: url,
      anonymizerURL: url.optional(),
      headers,
      language: word('must be a language such as en', /^[a-z]{2}$/).default('en'),
      entities: z
        .array(word('must be an entity such as PHONE_NUMBER', /^[A-Z0-9_]{1,100}$/))
        .min(1)
        .max(MAX_CHOICES)
        .optional(),
      scoreThreshold: z.number().min(0).max(1).optional(),
      anonymizers: z.record(text(100), operator).optional(),
      redact,
    })
    .refine(({ anonymizers, anonymizerURL }) => anonymizers === undefined || anonymizerURL !== undefined, {
      path: ['anonymizers'],
      message: 'needs anonymizerURL',
    }),
  redacts: ifAsked,
  compile({
    analyzerURL,
    anonymizerURL,
    headers: own,
    language,
    entities,
    scoreThreshold,
    anonymizers,
    redact: replace,
  }) {
    const given = Object.fromEntries(Object.entries(own).map(([name, value]) => [name.toLowerCase(), value]));
    return (subject, ask) =>
      consult({
        ask,
        subject,
        redact: replace,
        limits: { piece: 50_000, call: 50_000, most: 1_000, overlap: 256 },
        async about(pieces) {
          const whole = joined(pieces);
          const body = {
            text: whole,
            language,
            ...(entities === undefined ? null : { entities }),
            ...(scoreThreshold === undefined ? null : { score_threshold: scoreThreshold }),
          };
          const found = await ask.post(`${base(analyzerURL, '')}/analyze`, given, body, results);
          // Python counts code points.
          const { toUnits } = codePoints(whole);
          const findings = found.flatMap(({ entity_type, start, end }) => {
            const [from, to] = [toUnits(start), toUnits(end)];
            const kind = label(entity_type);
            if (!(from >= 0 && from < to && to <= whole.length)) return [{ ...NOWHERE, kind }];
            return placed(pieces, from, to).map((place) => ({ ...place, kind }));
          });
          return { blocked: [], masked: findings.map(({ kind }) => kind), findings };
        },
        ...(anonymizerURL === undefined
          ? null
          : {
              async anonymize(places): Promise<Replacement[] | null> {
                if (places.size > MAX_CALLS) return null;
                const made = [...places].map(async ([{ path, text: whole }, findings]) => {
                  const { toPoints } = codePoints(whole);
                  const said = await ask.post(
                    `${base(anonymizerURL, '')}/anonymize`,
                    given,
                    {
                      text: whole,
                      ...(anonymizers === undefined ? null : { anonymizers }),
                      analyzer_results: findings.map(({ kind, start, end }) => ({
                        start: toPoints(start),
                        end: toPoints(end),
                        score: 1,
                        entity_type: kind,
                      })),
                    },
                    anonymized,
                  );
                  return { path, text: said.text };
                });
                return Promise.all(made);
              },
            }),
      });
  },
});
