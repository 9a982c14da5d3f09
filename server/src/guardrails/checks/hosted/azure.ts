import { z } from 'zod';
import { CheckError, type Judgement, type Subject } from '../../check.ts';
import { BOTH, ifAsked, MAX_CHOICES, text, texts } from '../support.ts';
import { both, consult } from './consult.ts';
import { type Ask, base, credentials, endpoint, hosted, label, redact, secret, word } from './service.ts';
import { joined } from './texts.ts';

const keys = credentials({ endpoint, apiKey: secret });
const access = (apiKey: string) => ({ 'ocp-apim-subscription-key': apiKey });

const CATEGORIES = ['Hate', 'SelfHarm', 'Sexual', 'Violence'] as const;
const threshold = z.number().int('must be a whole number').min(1, 'must be 1 to 7: every text has severity 0').max(7);

const analysis = z.looseObject({
  blocklistsMatch: z.array(z.looseObject({ blocklistName: z.string() })).nullish(),
  categoriesAnalysis: z.array(z.looseObject({ category: z.string(), severity: z.number() })),
});
const attack = z.looseObject({ attackDetected: z.boolean() });
const shielded = z.looseObject({ userPromptAnalysis: attack.nullish(), documentsAnalysis: z.array(attack).nullish() });

/**
 * `azure.contentSafety`: fails from a severity on, on terms of blocklists, and with `promptShields` on prompt attacks. Those
 * are looked for in requests: what users say, and as documents what tools and models said. System texts give orders by
 * nature and are left out there.
 */
export const contentSafety = hosted({
  id: 'azure.contentSafety',
  service: 'Azure AI Content Safety',
  phases: BOTH,
  parameters: z.strictObject({
    categories: z
      .array(z.enum(CATEGORIES))
      .min(1)
      .max(MAX_CHOICES)
      .default([...CATEGORIES]),
    severity: z.union([threshold, z.partialRecord(z.enum(CATEGORIES), threshold)]).default(2),
    blocklistNames: texts(10, 64).optional(),
    promptShields: z.boolean('must be true or false').default(false),
  }),
  credentials: keys,
  compile({ categories, severity, blocklistNames = [], promptShields }, { endpoint: at, apiKey }) {
    const root = `${base(at, '')}/contentsafety`;
    const least = (category: string): number =>
      typeof severity === 'number' ? severity : (severity[category as (typeof CATEGORIES)[number]] ?? 2);
    // Four levels are 0, 2, 4 and 6.
    const fine = categories.some((category) => least(category) % 2 === 1);
    const limits = { piece: 10_000, call: 10_000, most: 1_000, overlap: 256 };

    const harms = (subject: Subject, ask: Ask): Promise<Judgement> =>
      consult({
        ask,
        subject,
        limits,
        async about(pieces) {
          const body = {
            text: joined(pieces),
            categories,
            ...(blocklistNames.length === 0 ? null : { blocklistNames, haltOnBlocklistHit: false }),
            outputType: fine ? 'EightSeverityLevels' : 'FourSeverityLevels',
          };
          const said = await ask.post(`${root}/text:analyze?api-version=2024-09-01`, access(apiKey), body, analysis);
          const blocked = (said.blocklistsMatch ?? []).map(({ blocklistName: name }) =>
            blocklistNames.includes(name) ? `blocklist ${name}` : 'blocklist',
          );
          const severities = new Map(said.categoriesAnalysis.map((one) => [one.category, one.severity]));
          blocked.push(...categories.filter((category) => (severities.get(category) ?? 0) >= least(category)));
          const gone = categories.find((category) => !severities.has(category));
          if (blocked.length === 0 && gone !== undefined)
            throw new CheckError(`${ask.service} says nothing of ${gone}.`);
          return { blocked, masked: [] };
        },
      });

    const shields = (subject: Subject, ask: Ask): Promise<Judgement> =>
      consult({
        ask,
        subject: { texts: subject.texts.filter(({ role }) => role !== 'system') },
        limits: { ...limits, group: ({ role }) => (role === 'user' || role === null ? 'user' : 'document') },
        async about(pieces) {
          const role = pieces[0]?.part.role;
          const user = role === 'user' || role === null;
          const body = user ? { userPrompt: joined(pieces) } : { documents: [joined(pieces)] };
          const said = await ask.post(
            `${root}/text:shieldPrompt?api-version=2024-09-01`,
            access(apiKey),
            body,
            shielded,
          );
          const judged = user ? said.userPromptAnalysis : said.documentsAnalysis?.[0];
          if (judged === undefined || judged === null) throw new CheckError(`${ask.service} did not judge every text.`);
          return { blocked: judged.attackDetected ? [user ? 'prompt attack' : 'document attack'] : [], masked: [] };
        },
      });

    return (subject, ask) =>
      promptShields && subject.phase === 'input'
        ? both(harms(subject, ask), shields(subject, ask))
        : harms(subject, ask);
  },
});

const recognised = z.looseObject({
  results: z.looseObject({
    documents: z.array(
      z.looseObject({
        id: z.string(),
        entities: z.array(z.looseObject({ category: z.string(), offset: z.number().int(), length: z.number().int() })),
      }),
    ),
    errors: z.array(z.unknown()),
  }),
});

/** `azure.pii`: personal data found by Azure AI Language. Fails on a finding; with `redact` passes and replaces it. */
export const azurePii = hosted({
  id: 'azure.pii',
  service: 'Azure AI Language',
  phases: BOTH,
  parameters: z.strictObject({
    categories: z
      .array(word('must be a category such as PhoneNumber', /^[A-Za-z0-9]{1,100}$/))
      .min(1)
      .max(MAX_CHOICES)
      .optional(),
    domain: z.enum(['none', 'phi']).default('none'),
    language: word('must be a language such as en', /^[a-z]{2,3}(?:-[A-Za-z]{2,8})?$/).default('en'),
    modelVersion: text(50).default('latest'),
    redact,
  }),
  credentials: keys,
  redacts: ifAsked,
  compile({ categories, domain, language, modelVersion, redact: replace }, { endpoint: at, apiKey }) {
    const to = `${base(at, '')}/language/:analyze-text?api-version=2023-04-01`;
    const parameters = {
      modelVersion,
      // The service must not keep the texts that it looks at here.
      loggingOptOut: true,
      domain,
      ...(categories === undefined ? null : { piiCategories: categories }),
      stringIndexType: 'Utf16CodeUnit',
    };
    return (subject, ask) =>
      consult({
        ask,
        subject,
        redact: replace,
        limits: { piece: 5_120, call: 30_000, most: 5, overlap: 256 },
        async about(pieces) {
          const documents = pieces.map(({ text: said }, i) => ({ id: String(i + 1), language, text: said }));
          const body = { kind: 'PiiEntityRecognition', parameters, analysisInput: { documents } };
          const { results } = await ask.post(to, access(apiKey), body, recognised);
          const judged = new Map(results.documents.map((document) => [document.id, document]));
          if (results.errors.length > 0 || documents.some(({ id }) => !judged.has(id)))
            throw new CheckError(`${ask.service} did not judge every text.`);
          const findings = documents.flatMap(({ id }, piece) =>
            (judged.get(id)?.entities ?? []).map(({ category, offset, length }) => ({
              piece,
              kind: label(category),
              start: offset,
              end: offset + length,
            })),
          );
          return { blocked: [], masked: findings.map(({ kind }) => kind), findings };
        },
      });
  },
});
