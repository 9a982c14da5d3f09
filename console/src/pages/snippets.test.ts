import fc from 'fast-check';
import { expect, test } from 'vitest';
import { shellWord, snippets } from './snippets.ts';

const input = { baseUrl: 'http://127.0.0.1:8787/v1', model: '@sandbox/echo', prompt: 'Hello' };
const code = (id: string, prompt = input.prompt) =>
  snippets({ ...input, prompt }).find((snippet) => snippet.id === id)?.code ?? '';

/** What a POSIX shell makes of single-quoted parts and escaped quotes. */
function shellRead(word: string): string {
  return word.replace(/'([^']*)'|\\(.)/gs, (_match, quoted: string | undefined, escaped) => quoted ?? escaped);
}

test('no snippet holds a key: each reads SLUICE_API_KEY', () => {
  for (const snippet of snippets(input)) {
    expect(snippet.code).toContain('SLUICE_API_KEY');
    expect(snippet.code).not.toContain('slc_');
  }
});

test('the curl body is the request, whatever the prompt holds', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme' }), (prompt) => {
      const body = code('curl', prompt).split('-d ')[1] ?? '';
      const word = code('curl', prompt).slice(code('curl', prompt).indexOf("-d '") + 3);
      expect(body).not.toBe('');
      expect(JSON.parse(shellRead(word))).toEqual({
        model: '@sandbox/echo',
        stream: true,
        messages: [{ role: 'user', content: prompt }],
      });
    }),
  );
});

test('a shell word cannot end its own quotes', () => {
  expect(shellWord(`it's $(id) \`id\` "x"`)).toBe(`'it'\\''s $(id) \`id\` "x"'`);
});

test('the OpenAI snippets use the base URL with /v1, the Anthropic one without', () => {
  expect(code('python')).toContain('base_url="http://127.0.0.1:8787/v1"');
  expect(code('typescript')).toContain('baseURL: "http://127.0.0.1:8787/v1"');
  expect(code('anthropic')).toContain('baseURL: "http://127.0.0.1:8787"');
});
