import { z } from 'zod';
import { BOTH, ifAsked } from '../support.ts';
import { consult } from './consult.ts';
import { base, credentials, endpoint, hosted, label, redact, secret, word } from './service.ts';
import { codePoints, joined, NOWHERE, placed } from './texts.ts';

const guarded = z.looseObject({
  flagged: z.boolean(),
  breakdown: z.array(z.looseObject({ detector_type: z.string(), detected: z.boolean() })).nullish(),
  payload: z
    .array(
      z.looseObject({
        detector_type: z.string(),
        start: z.number().int(),
        end: z.number().int(),
        text: z.string().optional(),
      }),
    )
    .nullish(),
});

/** Offsets in UTF-16 units. Their unit is not published: the text that comes with them tells. */
function located(
  whole: string,
  start: number,
  end: number,
  text: string | undefined,
): readonly [number, number] | null {
  const { toUnits } = codePoints(whole);
  for (const [from, to] of [
    [toUnits(start), toUnits(end)],
    [start, end],
  ] as const)
    if (from >= 0 && from < to && to <= whole.length && (text === undefined || whole.slice(from, to) === text))
      return [from, to];
  return null;
}

/**
 * `lakera.guard`. The service looks at the last turn of a conversation, so each call holds one message: texts of one role.
 * With `redact`, personal data is replaced; whatever else is flagged fails.
 */
export const lakera = hosted({
  id: 'lakera.guard',
  service: 'Lakera Guard',
  phases: BOTH,
  parameters: z.strictObject({ projectId: word('must be the id of a project').optional(), redact }),
  credentials: credentials({ apiKey: secret, endpoint: endpoint.optional() }),
  redacts: ifAsked,
  compile({ projectId, redact: replace }, { apiKey, endpoint: at }) {
    const to = `${base(at, 'https://api.lakera.ai')}/v2/guard`;
    return (subject, ask) => {
      const fallback = subject.phase === 'input' ? 'user' : 'assistant';
      return consult({
        ask,
        subject,
        redact: replace,
        limits: { piece: 16_000, call: 16_000, most: 1_000, overlap: 256, group: ({ role }) => role ?? fallback },
        async about(pieces) {
          const content = joined(pieces);
          const body = {
            messages: [{ role: pieces[0]?.part.role ?? fallback, content }],
            ...(projectId === undefined ? null : { project_id: projectId }),
            breakdown: true,
            ...(replace ? { payload: true } : null),
          };
          const said = await ask.post(to, { authorization: `Bearer ${apiKey}` }, body, guarded);
          if (!said.flagged) return { blocked: [], masked: [] };
          const names = (said.breakdown ?? []).flatMap((one) => (one.detected ? [label(one.detector_type)] : []));
          const personal = names.length > 0 && names.every((name) => name.startsWith('pii'));
          if (!replace || !personal || (said.payload ?? []).length === 0)
            return { blocked: names.length > 0 ? names : ['what its policy names'], masked: [] };
          const findings = (said.payload ?? []).flatMap(({ detector_type, start, end, text }) => {
            const place = located(content, start, end, text);
            const kind = label(detector_type);
            return place === null ? [{ ...NOWHERE, kind }] : placed(pieces, ...place).map((one) => ({ ...one, kind }));
          });
          return { blocked: [], masked: names, findings };
        },
      });
    };
  },
});
