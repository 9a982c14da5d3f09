import { describe, expect, it } from 'vitest';
import { maskedBody } from './redact.ts';

const masked = (body: Parameters<typeof maskedBody>[0]) => JSON.parse(maskedBody(body) ?? 'null');

describe('E-01 bodies in the audit log', () => {
  it('show no value under a secret-sounding name, in snake and in camel case, at any depth', () => {
    const names = [
      'key',
      'api_key',
      'apiKey',
      'client_secret',
      'clientSecret',
      'awsSecretAccessKey',
      'password',
      'accessToken',
    ];
    for (const name of names) {
      expect(masked({ [name]: 'canary', a: [{ [name]: ['canary', { deep: 'canary' }] }] })).toEqual({
        [name]: '***',
        a: [{ [name]: ['***', { deep: '***' }] }],
      });
    }
    expect(masked({ custom_headers: { 'x-anything': 'canary' } })).toEqual({ custom_headers: { 'x-anything': '***' } });
  });

  it('show the rest, and mask a gateway key wherever it stands', () => {
    expect(masked({ name: 'Ada', max_tokens: 5, note: 'see slc_wks_abc', list: [1, null, true] })).toEqual({
      name: 'Ada',
      max_tokens: 5,
      note: '***',
      list: [1, null, true],
    });
    expect(maskedBody(null)).toBeNull();
  });

  it('are bounded: a huge body is recorded by its size', () => {
    expect(masked({ text: 'x'.repeat(100_000) })).toEqual({ omitted: '100011 characters' });
  });
});
