import { describe, expect, it } from 'vitest';
import { subjectOf } from '../../test/support/guardrails.ts';
import { compileCheck } from './catalog.ts';
import type { Judgement, Subject } from './check.ts';
import { joinedTexts } from './joined.ts';

/** A message of these text parts. */
const message = (...texts: string[]): Subject => ({
  ...subjectOf({}),
  texts: texts.map((text, i) => ({ path: `messages[0].content[${i}].text`, role: 'user', text })),
});
const judge = async (id: string, parameters: object, subject: Subject): Promise<Judgement> => {
  const check = compileCheck({ id, is_enabled: true, parameters: { ...parameters } }, 'llm');
  if (check === null) throw new Error('not valid');
  return check.judge.judge(subject, { signal: new AbortController().signal, owner: 'o' } as never);
};

describe('what is split over the text parts of one message', () => {
  const card = message('Pay with 4111 1111', ' 1111 1111, please');

  it('is found by contains, and told where it is in each part', async () => {
    const said = await judge(
      'default.contains',
      { words: ['forbidden'], operator: 'none' },
      message('a for', 'bid', 'den b'),
    );
    expect(said).toMatchObject({ verdict: false, data: { found: [1] } });
    expect(said.excerpts).toEqual([
      { path: 'messages[0].content[0].text', start: 2, end: 5, kind: 'word 1' },
      { path: 'messages[0].content[1].text', start: 0, end: 3, kind: 'word 1' },
      { path: 'messages[0].content[2].text', start: 0, end: 3, kind: 'word 1' },
    ]);
  });

  it('is found by a pattern', async () => {
    expect(await judge('default.regexMatch', { rule: 'forb.dden', not: true }, message('for', 'bidden'))).toMatchObject(
      {
        verdict: false,
      },
    );
  });

  it('is found by detectors as one thing, and denied', async () => {
    const said = await judge('gateway.pii', { categories: ['CREDIT_CARD'] }, card);
    expect(said).toMatchObject({ verdict: false, data: { found: { CREDIT_CARD: 1 } } });
    const key = `sk-proj-${'Ab3dE6gH9jK2mN5pQ8sT'.repeat(2)}`;
    const secret = await judge(
      'gateway.secrets',
      {},
      message(`key ghp_aB3dE6gH9jK2mN5p`, `Q8sT1vW4yZ7bC0dE3fG6 ${key.length}`),
    );
    expect(secret.verdict).toBe(false);
  });

  it('is redacted in both parts, under one name', async () => {
    const said = await judge('gateway.pii', { categories: ['CREDIT_CARD'], redact: true }, card);
    expect(said.replacements).toEqual([
      { path: 'messages[0].content[0].text', text: 'Pay with {{CREDIT_CARD_1}}' },
      { path: 'messages[0].content[1].text', text: '{{CREDIT_CARD_1}}, please' },
    ]);
  });

  it('is found in canonical form, and taken out of the text as it was sent', async () => {
    const hidden = message('Pay 4111 11\u00ad11', ' 1111 １111');
    const said = await judge('gateway.pii', { categories: ['CREDIT_CARD'], redact: true }, hidden);
    expect(said.replacements?.map(({ text }) => text)).toEqual(['Pay {{CREDIT_CARD_1}}', '{{CREDIT_CARD_1}}']);
  });

  it('is not made of parts with something between them, nor of two messages', async () => {
    const apart: Subject = {
      ...subjectOf({}),
      texts: [
        { path: 'messages[0].content[0].text', role: 'user', text: '4111 1111' },
        { path: 'messages[0].content[2].text', role: 'user', text: ' 1111 1111' },
        { path: 'messages[1].content[3].text', role: 'user', text: ' 1111 1111' },
      ],
    };
    expect(joinedTexts(apart)).toEqual([]);
    expect(await judge('gateway.pii', { categories: ['CREDIT_CARD'] }, apart)).toMatchObject({ verdict: true });
  });

  it('costs a message of one part nothing', () => {
    const parts = ['a', 'b'].map((text, i) => ({ path: `messages[${i}].content`, role: 'user' as const, text }));
    expect(joinedTexts({ ...subjectOf({}), texts: parts })).toEqual([]);
    expect(joinedTexts(message('one'))).toBe(joinedTexts(message('two')));
  });
});
