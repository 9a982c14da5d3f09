/** The four objects of an exchange, as the source says them: who holds what, and who takes the whole. */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const LLM = fileURLToPath(new URL('../', import.meta.url));
const files = readdirSync(LLM, { recursive: true, encoding: 'utf8' })
  .filter((path) => path.endsWith('.ts') && !path.endsWith('.test.ts'))
  .map((path) => ({ path, text: readFileSync(`${LLM}${path}`, 'utf8') }));
const textOf = (path: string) => files.find((file) => file.path === path)?.text ?? '';
/** Without comments, which may name anything. */
const code = (text: string) => text.replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, '');

it('what limits count of a request is in its limits, and the way through its targets knows nothing of it', () => {
  expect(textOf('state/route-execution.ts')).not.toMatch(/from '[./]*limits\//);
  expect(textOf('state/route-execution.ts')).not.toBe('');
});

/** Of all files in `llm/`; less is better, more is not. */
const MOST_THAT_TAKE_ALL = 15;

it('functions take the parts of an exchange that they use', () => {
  const whole = files.filter(({ path, text }) => path !== 'exchange.ts' && /\bExchange\b/.test(code(text)));
  expect(whole.map(({ path }) => path).length).toBeLessThanOrEqual(MOST_THAT_TAKE_ALL);
});
