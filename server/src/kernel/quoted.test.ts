import { expect, it } from 'vitest';
import { SluiceError } from './errors.ts';
import { looksLikeName, quotedName, shownPath, withoutSecrets } from './quoted.ts';

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

it.each([
  ['Model "sk-proj-0a1b2c3d4e5f6g7h8i9j" is not enabled.', 'Model "(not shown)" is not enabled.'],
  ['slc_wks_0A1b2C3d4E5f_6G7h is no key', '(not shown) is no key'],
  ['config.Bearer?0a1b2c3d4e5f is not known', 'config.(not shown) is not known'],
  ['/v1/models/Bearer%200a1b2c3d4e5f', '/v1/models/(not shown)'],
  ["'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiJ9.c2lnbmVk'", "'(not shown)'"],
  ['the header api_key: "h3llo-w0rld" is wrong', 'the header api_key: "(not shown)" is wrong'],
  ['api_key:8f14e45f-ceea-467f-a0e6-5dd8198fc286 is wrong', 'api_key:(not shown) is wrong'],
  ['https://name:pass@host.example/v1 cannot be reached', 'https://(not shown)@host.example/v1 cannot be reached'],
  ['no file 0123456789abcdef0123456789abcdef', 'no file (not shown)'],
  ['-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0 and so on', '(not shown)'],
])('of the message %j is shown: %j', (message, shown) => {
  expect(withoutSecrets(message)).toBe(shown);
  expect(new SluiceError('validation', message, { param: message }).message).toBe(shown);
});

it.each([
  'Send a key as x-gateway-api-key: slc_…, or a bearer token as Authorization: Bearer <key>.',
  'This route takes Basic authentication.',
  'No response resp_0bb41a2b3c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f exists.',
  'No key 01a2040d-9fe3-74c4-ab7c-5dd8198fc286 exists; token: required.',
  'The model pplx-7b-online-extended-context is not enabled, and hf_inference_endpoint_of_team_2 neither.',
])('%j is shown as it is', (message) => {
  expect(withoutSecrets(message)).toBe(message);
});
