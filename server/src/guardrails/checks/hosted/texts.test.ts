import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { outsideOf } from '../../../../test/support/guardrails.ts';
import { CASES, FOUND, TEXT } from '../../../../test/support/hosted-cases.ts';
import { type HostedService, judgedBy, startHosted } from '../../../../test/support/hosted-service.ts';
import type { TextPart } from '../../check.ts';
import { consult } from './consult.ts';
import { BETWEEN, calls, codePoints, joined, type Limits, MAX_CALLS, placed } from './texts.ts';

const part = (text: string, role: TextPart['role'] = 'user', path = text.slice(0, 8)): TextPart => ({
  path,
  role,
  text,
});

let service: HostedService;
beforeEach(async () => {
  service = await startHosted();
});
afterEach(async () => {
  await service.stop();
});

/** Takes every request: what is sent is looked at by the test itself. */
const open = (...urls: string[]) => {
  service.operations = urls.map((url) => ({ url, fault: () => null }));
};
const parametersOf = (id: string) => CASES.find((one) => one.id === id)?.parameters ?? {};

describe('how texts are cut and put together', () => {
  const limits = (more: Partial<Limits> = {}): Limits => ({ piece: 100, call: 250, most: 4, overlap: 0, ...more });
  const sizes = fc.integer({ min: 8, max: 60 });
  const texts = fc.array(
    fc.string({ unit: fc.constantFrom('a', ' ', '\n', '. ', '😀', '\n\n', 'é'), maxLength: 300 }),
    {
      maxLength: 6,
    },
  );

  it('nothing is lost and no limit is passed', () => {
    fc.assert(
      fc.property(
        texts,
        sizes,
        sizes,
        fc.integer({ min: 1, max: 5 }),
        fc.nat(1),
        (list, piece, more, most, overlapping) => {
          const overlap = overlapping === 0 ? 0 : piece >> 2;
          const given = list.map((text, i) => part(text, 'user', String(i)));
          const made = calls(given, limits({ piece, call: piece + more, most, overlap }));
          if (made === null) return;
          expect(made.length).toBeLessThanOrEqual(MAX_CALLS);
          const ends = new Map<TextPart, number>();
          for (const call of made) {
            expect(call.length).toBeLessThanOrEqual(most);
            expect(joined(call).length).toBeLessThanOrEqual(piece + more);
            for (const { part: of, start, text } of call) {
              expect(text.length).toBeLessThanOrEqual(piece);
              expect(of.text.slice(start, start + text.length)).toBe(text);
              expect(text.isWellFormed()).toBe(true);
              const before = ends.get(of) ?? 0;
              expect(overlap === 0 ? start === before : start <= before).toBe(true);
              ends.set(of, start + text.length);
            }
          }
          for (const one of given) expect(ends.get(one) ?? 0).toBe(one.text.trim() === '' ? 0 : one.text.length);
        },
      ),
      { numRuns: 500 },
    );
  });

  it('a text is cut between paragraphs rather than sentences, and between words rather than in them', () => {
    const cuts = (text: string) => (calls([part(text)], limits({ most: 1 })) ?? []).map(([piece]) => piece?.text);
    expect(cuts(`${'a '.repeat(35)}b.\n\n${'c '.repeat(40)}`)[0]).toMatch(/b\.\n\n$/);
    expect(cuts(`${'a '.repeat(35)}b. ${'c '.repeat(40)}`)[0]).toMatch(/b\. $/);
    expect(cuts('word '.repeat(30))[0]).toBe('word '.repeat(20));
    expect(cuts('x'.repeat(150))[0]).toBe('x'.repeat(100));
    expect(cuts(`${'x'.repeat(99)}😀${'x'.repeat(50)}`)[0]).toBe('x'.repeat(99));
  });

  it('what lies on a cut is seen whole where pieces overlap', () => {
    const at = 'x'.repeat(96) + FOUND + 'x'.repeat(100);
    const seen = (overlap: number) =>
      (calls([part(at)], limits({ overlap })) ?? []).flat().some(({ text }) => text.includes(FOUND));
    expect(seen(24)).toBe(true);
  });

  it('groups do not share a call, and more calls than are made are none', () => {
    const made = calls([part('a'), part('b', 'tool'), part('c')], limits({ group: ({ role }) => String(role) }));
    expect(made?.map((call) => joined(call))).toEqual([`a${BETWEEN}c`, 'b']);
    expect(calls([part('x'.repeat(100 * MAX_CALLS))], limits({ most: 1 }))).toHaveLength(MAX_CALLS);
    expect(calls([part('x'.repeat(100 * MAX_CALLS + 1))], limits({ most: 1 }))).toBeNull();
  });

  it('a place in joined texts is found in each of them', () => {
    const [call = []] = calls([part('one'), part('two')], limits()) ?? [];
    expect(placed(call, 5, 8)).toEqual([{ piece: 1, start: 0, end: 3 }]);
    expect(placed(call, 1, 7)).toEqual([
      { piece: 0, start: 1, end: 3 },
      { piece: 1, start: 0, end: 2 },
    ]);
    expect(placed(call, 3, 5)).toEqual([]);
  });

  it('offsets in code points and UTF-16 units are told from each other', () => {
    const { toUnits, toPoints } = codePoints('a😀b');
    expect([0, 1, 2, 3, 4].map(toUnits)).toEqual([0, 1, 3, 4, -1]);
    expect([0, 1, 3, 4].map(toPoints)).toEqual([0, 1, 2, 3]);
  });
});

describe('all texts of a request are looked at', () => {
  it('texts of a conversation share calls as far as the service takes them', async () => {
    open('https://api.openai.com/v1/moderations');
    const texts = Array.from({ length: 40 }, (_, i) => part(`text ${i}`, i % 2 === 0 ? 'user' : 'assistant', `p${i}`));
    service.says = (body) => ({
      body: {
        results: (body as { input: string[] }).input.map((text) => ({ categories: { hate: text === 'text 35' } })),
      },
    });
    const parameters = { categories: ['hate'], credentials: { apiKey: 'k' } };
    const judgement = await judgedBy(service, 'gateway.moderateContent', parameters, { phase: 'input', texts });
    expect(judgement.verdict).toBe(false);
    expect(service.bodies.map((body) => (body as { input: string[] }).input.length)).toEqual([32, 8]);
  });

  it('an answer that leaves a text out is an error', async () => {
    open('https://api.openai.com/v1/moderations');
    service.says = () => ({ body: { results: [{ categories: { hate: false } }] } });
    const parameters = { categories: ['hate'], credentials: { apiKey: 'k' } };
    const two = { phase: 'input', texts: ['a', 'b'] } as const;
    await expect(judgedBy(service, 'gateway.moderateContent', parameters, two)).rejects.toThrow(
      'did not judge every text',
    );
  });

  it('a call that fails does not hide what another found', async () => {
    open('https://api.lakera.ai/v2/guard');
    service.says = (body) =>
      JSON.stringify(body).includes('bad')
        ? { body: { flagged: true, breakdown: [{ detector_type: 'prompt_attack', detected: true }] } }
        : { status: 500 };
    const texts = [part('good', 'system'), part('bad', 'user')];
    const judgement = await judgedBy(
      service,
      'lakera.guard',
      { credentials: { apiKey: 'k' } },
      { phase: 'input', texts },
    );
    expect(judgement.verdict).toBe(false);
    await expect(
      judgedBy(service, 'lakera.guard', { credentials: { apiKey: 'k' } }, { phase: 'input', texts: ['good'] }),
    ).rejects.toThrow('answered with 500');
  });

  it('each message that Lakera Guard is sent is the last one, under its own role', async () => {
    open('https://api.lakera.ai/v2/guard');
    service.says = () => ({ body: { flagged: false } });
    const texts = [part('a', 'system'), part('b', 'user'), part('c', 'tool'), part('d', 'user')];
    await judgedBy(service, 'lakera.guard', { credentials: { apiKey: 'k' } }, { phase: 'input', texts });
    expect(service.bodies.map((body) => (body as { messages: unknown[] }).messages)).toEqual([
      [{ role: 'system', content: 'a' }],
      [{ role: 'user', content: 'b\n\nd' }],
      [{ role: 'tool', content: 'c' }],
    ]);
  });

  it('headers of the caller are sent along where they are listed, and never in place of the key', async () => {
    open('https://api.lakera.ai/v2/guard');
    const seen: unknown[] = [];
    service.says = (_, __, { headers }) => {
      seen.push(headers['x-team'], headers.authorization, headers['x-other']);
      return { body: { flagged: false } };
    };
    const parameters = { credentials: { apiKey: 'k' }, forwardHeaders: ['x-team'] };
    const headers = { 'x-team': 'blue', authorization: 'Bearer theirs', 'x-other': '1' };
    await judgedBy(service, 'lakera.guard', parameters, { phase: 'input', texts: ['a'], headers });
    expect(seen).toEqual(['blue', 'Bearer k', undefined]);
  });
});

describe('redaction of several texts', () => {
  const texts = [part('nothing here', 'user', 'a'), part(TEXT, 'user', 'b'), part(`again ${FOUND}`, 'tool', 'c')];

  it('a service that sends one text back is asked about each text by itself, once it has found something', async () => {
    open('https://ai-guard.aws.us.pangea.cloud/v1/text/guard');
    service.says = (body) => {
      const { text } = body as { text: string };
      return {
        body: {
          status: 'Success',
          result: { blocked: false, prompt_text: text.replaceAll(FOUND, '***'), detectors: {} },
        },
      };
    };
    const parameters = { redact: true, credentials: { token: 't' } };
    const judgement = await judgedBy(service, 'pangea.textGuard', parameters, { phase: 'input', texts });
    expect(judgement.verdict).toBe(true);
    expect(judgement.replacements).toEqual([
      { path: 'b', text: TEXT.replace(FOUND, '***') },
      { path: 'c', text: 'again ***' },
    ]);
    expect(service.bodies).toHaveLength(4);
    await judgedBy(service, 'pangea.textGuard', parameters, { phase: 'input', texts: ['x', 'y', 'z'] });
    expect(service.bodies).toHaveLength(5);
  });

  it('what is only found in the texts together cannot be redacted and fails', async () => {
    open('https://ai-guard.aws.us.pangea.cloud/v1/text/guard');
    service.says = (body, call) => {
      const { text } = body as { text: string };
      return { body: { status: 'Success', result: { blocked: false, prompt_text: call === 0 ? '***' : text } } };
    };
    const parameters = { redact: true, credentials: { token: 't' } };
    const judgement = await judgedBy(service, 'pangea.textGuard', parameters, { phase: 'input', texts });
    expect(judgement.verdict).toBe(false);
    expect(judgement.replacements).toBeUndefined();
  });

  it('a long text is put together again from its masked pieces', async () => {
    open('https://ai-guard.aws.us.pangea.cloud/v1/text/guard');
    service.says = (body) => {
      const { text } = body as { text: string };
      return { body: { status: 'Success', result: { prompt_text: text.replaceAll(FOUND, '***') } } };
    };
    const long = `${'filler words. '.repeat(700)}${FOUND} ${'more words. '.repeat(700)}`;
    const parameters = { redact: true, credentials: { token: 't' } };
    const judgement = await judgedBy(service, 'pangea.textGuard', parameters, {
      phase: 'input',
      texts: [part(long, 'user', 'p')],
    });
    expect(judgement.replacements).toEqual([{ path: 'p', text: long.replace(FOUND, '***') }]);
  });

  it('places are told by text, the same thing under the same number, overlaps once', async () => {
    open('https://analyzer.example/analyze');
    service.says = (body) => {
      const points = [...(body as { text: string }).text];
      const found: unknown[] = [];
      points.forEach((_, start) => {
        if (points.slice(start, start + FOUND.length).join('') !== FOUND) return;
        found.push({ entity_type: 'CREDIT_CARD', start, end: start + 19, score: 1 });
        found.push({ entity_type: 'US_BANK_NUMBER', start, end: start + 9, score: 0.1 });
      });
      return { body: found };
    };
    const parameters = { analyzerURL: 'https://analyzer.example', redact: true };
    const judgement = await judgedBy(service, 'presidio.analyze', parameters, { phase: 'input', texts });
    expect(service.bodies).toHaveLength(1);
    expect(judgement.replacements).toEqual([
      { path: 'b', text: '😀 my card is {{CREDIT_CARD_1}}, thanks' },
      { path: 'c', text: 'again {{CREDIT_CARD_1}}' },
    ]);
    expect(judgement.excerpts?.[0]).toEqual({ path: 'b', start: 14, end: 33, kind: 'CREDIT_CARD' });
  });

  it('the anonymizer of Presidio gets whole texts, its own offsets and operators', async () => {
    open('https://analyzer.example/analyze', 'https://anonymizer.example/anonymize');
    service.says = (_, call) =>
      call === 0
        ? { body: [{ entity_type: 'CREDIT_CARD', start: 13, end: 32, score: 0.9 }] }
        : { body: { text: '😀 my card is <CARD>, thanks', items: [] } };
    const parameters = {
      analyzerURL: 'https://analyzer.example',
      anonymizerURL: 'https://anonymizer.example',
      anonymizers: { DEFAULT: { type: 'replace', new_value: '<CARD>' } },
      redact: true,
    };
    const one = { phase: 'input', texts: [part(TEXT, 'user', 'p')] } as const;
    const judgement = await judgedBy(service, 'presidio.analyze', parameters, one);
    expect(service.bodies[1]).toEqual({
      text: TEXT,
      anonymizers: parameters.anonymizers,
      analyzer_results: [{ start: 13, end: 32, score: 1, entity_type: 'CREDIT_CARD' }],
    });
    expect(judgement.replacements).toEqual([{ path: 'p', text: '😀 my card is <CARD>, thanks' }]);
  });

  it('a place outside of the text fails, whether or not it is to be redacted', async () => {
    open('https://analyzer.example/analyze');
    service.says = () => ({ body: [{ entity_type: 'PERSON', start: 5, end: 5_000, score: 1 }] });
    for (const redact of [true, false]) {
      const parameters = { analyzerURL: 'https://analyzer.example', redact };
      const judgement = await judgedBy(service, 'presidio.analyze', parameters, { phase: 'input', texts });
      expect(judgement.verdict).toBe(false);
    }
  });

  it('masked texts of Bedrock that are not one for each text are not used', async () => {
    const path = `/guardrail/abc/version/DRAFT/apply`;
    open(`https://bedrock-runtime.eu-west-1.amazonaws.com${path}`);
    const piiEntities = [{ match: FOUND, type: 'NAME', action: 'ANONYMIZED' }];
    service.says = () => ({
      body: { action: 'GUARDRAIL_INTERVENED', outputs: [{ text: '***' }], assessments: [{ p: { piiEntities } }] },
    });
    const { credentials } = parametersOf('bedrock.guard');
    const parameters = { guardrailId: 'abc', guardrailVersion: 'DRAFT', credentials, redact: true };
    const judgement = await judgedBy(service, 'bedrock.guard', parameters, { phase: 'input', texts });
    expect(judgement).toMatchObject({ verdict: false, data: { found: ['NAME'] } });
    expect(judgement.replacements).toBeUndefined();
  });
});

describe('Azure AI Content Safety', () => {
  const root = 'https://mine.cognitiveservices.azure.com/contentsafety';
  const credentials = { endpoint: 'https://mine.cognitiveservices.azure.com', apiKey: 'k' };
  const analysed = (severity: number) => ({ body: { categoriesAnalysis: [{ category: 'Hate', severity }] } });
  const judge = (parameters: object, texts: readonly TextPart[] = [part('a')], phase: 'input' | 'output' = 'input') =>
    judgedBy(service, 'azure.contentSafety', { categories: ['Hate'], credentials, ...parameters }, { phase, texts });

  it('a severity fails from the threshold on, for all categories or for each', async () => {
    open(`${root}/text:analyze?api-version=2024-09-01`);
    for (const [severity, said, verdict] of [
      [2, 1, true],
      [2, 2, false],
      [6, 4, true],
      [{ Hate: 4 }, 4, false],
      [{ Violence: 1 }, 2, false],
    ] as const) {
      service.says = () => analysed(said);
      expect((await judge({ severity })).verdict).toBe(verdict);
    }
    expect((service.bodies[0] as { outputType: string }).outputType).toBe('FourSeverityLevels');
    await judge({ severity: 3 });
    expect((service.bodies.at(-1) as { outputType: string }).outputType).toBe('EightSeverityLevels');
    service.says = () => ({ body: { categoriesAnalysis: [] } });
    await expect(judge({})).rejects.toThrow('says nothing of Hate');
  });

  it('prompt shields look at users and documents of requests, and one of the two is enough to fail', async () => {
    open(`${root}/text:analyze?api-version=2024-09-01`, `${root}/text:shieldPrompt?api-version=2024-09-01`);
    const texts = [part('rules', 'system'), part('hello', 'user'), part('result', 'tool'), part('said', 'assistant')];
    let [attack, harmful] = ['', false];
    service.says = (body) => {
      const said = body as { userPrompt?: string; documents?: string[] };
      if (said.userPrompt !== undefined)
        return { body: { userPromptAnalysis: { attackDetected: attack === 'user' }, documentsAnalysis: [] } };
      if (said.documents !== undefined)
        return { body: { documentsAnalysis: [{ attackDetected: attack === 'document' }] } };
      return harmful ? analysed(6) : attack === 'error' ? { status: 500 } : analysed(0);
    };
    expect((await judge({ promptShields: true }, texts)).verdict).toBe(true);
    const shields = service.bodies.filter((body) => !('text' in (body as object)));
    expect(shields).toEqual([{ userPrompt: 'hello' }, { documents: ['result\n\nsaid'] }]);
    for (attack of ['user', 'document'])
      expect(await judge({ promptShields: true }, texts)).toMatchObject({
        verdict: false,
        data: { found: [expect.stringContaining('attack')] },
      });
    attack = 'error';
    await expect(judge({ promptShields: true }, texts)).rejects.toThrow('answered with 500');
    harmful = true;
    expect((await judge({ promptShields: true }, texts)).verdict).toBe(false);
    const before = service.bodies.length;
    await judge({ promptShields: true }, texts, 'output');
    expect(service.bodies).toHaveLength(before + 1);
  });
});

it('findings that overlap are redacted to the end of the last', async () => {
  const text = 'Ann Lee Miller wrote.';
  const places = [
    { kind: 'NAME', start: 0, end: 7, piece: 0 },
    { kind: 'PERSON', start: 4, end: 14, piece: 0 },
  ];
  const judgement = await consult({
    ask: { service: 'Fake', outside: outsideOf(), post: () => Promise.reject(new Error('nobody is asked')) },
    subject: { texts: [{ path: 'a', role: 'user', text }] },
    limits: { piece: 100, call: 100, most: 1, overlap: 0 },
    redact: true,
    about: async () => ({ blocked: [], masked: ['NAME', 'PERSON'], findings: places }),
  });
  expect(judgement).toMatchObject({ verdict: true, replacements: [{ path: 'a', text: '{{NAME_1}} wrote.' }] });
});
