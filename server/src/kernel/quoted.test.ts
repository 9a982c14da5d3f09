import { expect, it } from 'vitest';
import { looksLikeName, quotedName, shownPath } from './quoted.ts';

it.each([
  'openai-prod',
  '@openai-test-5cec47',
  'pc-fallback-9f3a1c',
  '01a2040d-9fe3-74c4-ab7c-5dd8198fc286',
  'bedrock_eu_west_1',
  'some-rather-long-name-of-a-team-with-2-numbers-41',
])('the name %j is repeated', (name) => {
  expect(quotedName(name)).toBe(JSON.stringify(name));
});

it.each([
  'sk-proj-0a1b2c3d4e5f6g7h8i9j',
  'sk-ant-api03-short-words-only-here',
  'slc_wks_abc',
  'gsk_Zx81kLmN0pQrStUvWxYz12345',
  '0123456789abcdef0123456789abcdef',
  'AKIAABCDEFGHIJKLMNOP',
  'AIzaSyA-0123456789_abcdefghij',
  'eyJhbGciOiJIUzI1NiJ9',
  'hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh',
  'Bearer abcdefghij',
  'two words',
  '{"api_key":"x"',
  '',
])('%j could be a secret, and is not', (text) => {
  expect(looksLikeName(text)).toBe(false);
  if (text !== '') expect(quotedName(text)).not.toContain(text);
});

it('a path keeps its names and loses what is none', () => {
  expect(shownPath('targets[0].retry.attempts')).toBe('targets[0].retry.attempts');
  expect(shownPath('targets[0].sk-proj-0a1b2c3d4e5f6g7h8i9j')).toBe('targets[0].(not shown)');
});
