import { expect, it } from 'vitest';
import { leastCost, PII_CATEGORIES } from '../../../test/support/cost.ts';
import { subjectOf } from '../../../test/support/guardrails.ts';
import { compileGuardrail } from '../../guardrails/compile.ts';
import { type RunOptions, runGuardrails } from '../../guardrails/run.ts';
import { systemClock } from '../../kernel/clock.ts';
import { OPERATIONS } from '../../operations/operation.ts';
import { requestTexts } from './texts.ts';

const PROMPTS = {
  plain: 'Please summarise the quarterly report for the board and keep it under two pages. ',
  'with numbers':
    'In Q3 2025 our revenue grew by 12.5% to $4.2 million, while costs fell by 3%. Please write 5 bullet points: which results matter, why customers (e.g. Acme Corp.) left, and what we can do in the next 90 days. See section 4.1: risks. ',
  'with umlauts and Chinese':
    'Bitte fasse den Quartalsbericht für den Vorstand zusammen — höchstens zwei Seiten, im Stil von „früher“. 漢字も少し。',
};

const guardrail = (slug: string, id: string, parameters: Record<string, unknown>) =>
  compileGuardrail({
    id: slug,
    slug,
    name: slug,
    target: 'llm',
    actions: { deny: true },
    checks: [{ id, is_enabled: true, parameters }],
  });

const options: RunOptions = {
  clock: systemClock,
  onAsync: () => undefined,
  outside: () => {
    throw new Error('nothing is called');
  },
};

it.each(Object.entries(PROMPTS))(
  'two guardrails that find nothing in a prompt of 1 KB cost at most 30 µs beyond parsing: %s',
  async (_, sentence) => {
    const list = [
      guardrail('pii', 'gateway.pii', { categories: PII_CATEGORIES }),
      guardrail('secrets', 'gateway.secrets', {}),
    ];
    const content = sentence.repeat(20).slice(0, 1_000);
    // As it comes from a socket: text that was parsed.
    const body: unknown = JSON.parse(JSON.stringify({ model: 'm', messages: [{ role: 'user', content }] }));
    const once = () =>
      runGuardrails(list, subjectOf({ phase: 'input', texts: requestTexts(OPERATIONS.chat, body, 'all') }), options);
    const first = await once();
    expect([first.results.map(({ skipped, verdict }) => !skipped && verdict), first.denied]).toEqual([
      [true, true],
      false,
    ]);
    expect(once()).not.toBeInstanceOf(Promise);
    expect(leastCost(once, { least: 30 })).toBeLessThan(30);
  },
);
