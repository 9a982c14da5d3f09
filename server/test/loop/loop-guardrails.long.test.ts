import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CHECKS } from '../../src/guardrails/checks/index.ts';
import { CASES } from '../support/hosted-cases.ts';
import { BODY, type LoopCase, type LoopServer, MB, SMALL, startLoopServer } from '../support/loop.ts';
import { sampled } from '../support/sampled.ts';

/** Milliseconds of CPU for which one turn of the event loop may last. */
const BAR = 20;

let loop: LoopServer;
beforeAll(async () => {
  loop = await startLoopServer();
}, 60_000);
afterAll(async () => loop?.stop());

type Parameters = Readonly<Record<string, unknown>>;

/** One set of parameters for each check: what makes it look at every text. `URL` is the upstream. */
const PARAMETERS: Readonly<Record<string, Parameters>> = {
  'default.regexMatch': { rule: 'never (found|seen)[0-9]+$', not: true },
  'default.sentenceCount': { maxSentences: 9 },
  'default.wordCount': { maxWords: 9 },
  'default.characterCount': { maxCharacters: 9 },
  'default.alluppercase': {},
  'default.isAllLowerCase': {},
  'default.endsWith': { suffix: 'never' },
  'default.contains': { words: ['never found', 'n'.repeat(100)], operator: 'none' },
  'default.containsCode': { format: 'SQL', not: true },
  'default.jsonSchema': { schema: { type: 'object', properties: { a: { type: 'string' } } } },
  'default.jsonKeys': { keys: ['never'], operator: 'none' },
  'default.validUrls': { onlyDNS: true },
  'default.notNull': {},
  'default.modelWhitelist': { models: ['m'] },
  'default.modelRules': { rules: { defaults: ['m'] } },
  'default.allowedRequestTypes': { allowedTypes: ['chatComplete'] },
  'default.requiredMetadataKeys': { metadataKeys: ['never'] },
  'default.requiredMetadataKeyPairs': { metadataPairs: { never: 'x' } },
  'default.requestParametersCheck': { params: { blockedKeys: ['never'] } },
  'default.jwt': { jwks: { keys: [] } },
  'default.addPrefix': { prefix: 'Be brief.' },
  'default.inlineImageUrls': {},
  'default.webhook': { webhookURL: 'URL/webhook' },
  'default.log': { logURL: 'URL/log' },
  'gateway.pii': {
    categories: ['EMAIL_ADDRESS', 'PHONE_NUMBER', 'CREDIT_CARD', 'NAME', 'LOCATION_ADDRESS', 'IBAN', 'SSN'],
    redact: true,
  },
  'gateway.language': { language: 'eng' },
  'gateway.gibberish': {},
  'gateway.secrets': { redact: true },
  'gateway.promptInjection': {},
  ...Object.fromEntries(CASES.map(({ id, parameters }) => [id, hosted(parameters)])),
};

/** Parameters of a check of a hosted service, whose address is the upstream's. */
function hosted(parameters: Parameters): Parameters {
  const { credentials } = parameters;
  if (typeof credentials !== 'object' || credentials === null) return { ...parameters, analyzerURL: 'URL/analyzer' };
  return 'domain' in credentials
    ? parameters
    : { ...parameters, credentials: { ...credentials, endpoint: 'URL/hosted' } };
}

const fill = (unit: string, bytes: number): string => unit.repeat(Math.floor(bytes / unit.length));
/** What there is much of, as the content of a message. */
const CONTENTS: Readonly<Record<string, string>> = {
  'one text': `"${fill('Lorem ipsum dolor sit amet, ', BODY)}"`,
  'one word': `"${fill('a', BODY)}"`,
  'card numbers': `"${fill('4111 1111 1111 1111, ', BODY)}"`,
  'other scripts': `"${fill('漢字é', BODY / 3)}"`,
  'wide letters': `"${fill('ａ\u00ad', BODY / 3)}"`,
  'several parts': `[${Array(7_000)
    .fill(`{"type":"text","text":"${'x '.repeat(2_200)}"}`)
    .join(',')}]`,
  'small parts': `[${Array(9_000).fill('{"type":"text","text":"Hi, 4111 1111 1111 1111"}').join(',')}]`,
};
/** Texts that hold JSON, and what else of a message is walked. */
const INNER: Readonly<Record<string, string>> = {
  'JSON with escapes': `"${fill('{\\"a\\":\\"b\\\\n\\"},', BODY / 2)}"`,
  'a JSON text': `"[${fill('{\\"a\\":\\"b\\\\n\\"},', BODY / 2)}1]"`,
  base64: `[{"type":"file","file":{"file_data":"data:text/plain;base64,${fill('TG9yZW0gaXBzdW0g', BODY)}"}}]`,
  'empty members': `[${fill('[],', BODY / 8)}[]]`,
};
const asked = (content: string): string =>
  `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":${content}}]}`;
const said = (content: string): string =>
  `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":${content}},"finish_reason":"stop"}]}`;
const chunks = (text: string): Buffer[] => {
  const bytes = Buffer.from(text);
  return Array.from({ length: Math.ceil(bytes.length / MB) }, (_, i) => bytes.subarray(i * MB, (i + 1) * MB));
};

const CHAT = { path: '/chat/completions', slug: 'openai' } as const;
type Late = Omit<LoopCase, 'headers'> & { readonly config: object };

function caseOf(title: string, phase: 'input' | 'output', guardrail: object, content: string): Late {
  const config = { [`${phase}_guardrails`]: [guardrail] };
  const aside = (path: string) => !path.endsWith('/chat/completions');
  if (phase === 'input') {
    const answer = (path: string) => ({ parts: aside(path) ? ['{"verdict":true}'] : [said('"Hi"')] });
    return { ...CHAT, title: `a request: ${title}`, body: asked(content), config, answer };
  }
  const answer = (path: string) => ({ parts: aside(path) ? ['{"verdict":true}'] : chunks(said(content)) });
  return { ...CHAT, title: `an answer: ${title}`, body: SMALL, config, answer };
}

const WHATS = Object.entries({ ...CONTENTS, ...INNER });
/** Some checks compute for minutes over the largest bodies, in the thread: much smaller ones go there, too. */
const LONG_TEXT = `"${fill('Lorem ipsum dolor sit amet, ', 2 * MB)}"`;
const cases: Late[] = [...CHECKS.values()].flatMap(({ id, phases }) =>
  phases.map((phase) => caseOf(`${id}, a long text`, phase, { [id]: PARAMETERS[id] ?? {} }, LONG_TEXT)),
);
for (const id of ['default.webhook', 'default.addPrefix', 'default.contains'])
  for (const [what, content] of Object.entries(CONTENTS))
    cases.push(caseOf(`${id}, ${what}`, 'input', { [id]: PARAMETERS[id] ?? {} }, content));
for (const [what, content] of WHATS)
  for (const phase of ['input', 'output'] as const) {
    const pii = { 'gateway.pii': { categories: ['CREDIT_CARD'], redact: true } };
    cases.push(caseOf(`redacted, ${what}`, phase, pii, content));
    cases.push(caseOf(`judged beside it, ${what}`, phase, { ...pii, async: true }, content));
    cases.push(
      caseOf(`denied, ${what}`, phase, { 'default.contains': { words: ['a'], operator: 'none' }, deny: true }, content),
    );
  }

describe('the event loop is not held for longer than 20 ms by a guardrail over', () => {
  it('each check of the catalogue, which has parameters here', () => {
    expect([...CHECKS.keys()].filter((id) => PARAMETERS[id] === undefined)).toEqual([]);
  });

  it.each(sampled(cases, ({ title }) => title))(
    '$title',
    async ({ config, ...one }) => {
      const headers = { 'x-gateway-config': JSON.stringify(config).replaceAll('URL/', `${loop.upstream.url}/`) };
      expect(await loop.measured({ ...one, headers }, BAR)).toBeLessThan(BAR);
    },
    180_000,
  );
});
