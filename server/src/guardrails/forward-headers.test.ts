import { describe, expect, it } from 'vitest';
import { lookAlikes, spellings } from '../../test/packs/headers.ts';
import { subjectOf } from '../../test/support/guardrails.ts';
import {
  CREDENTIAL_HEADERS,
  FRAMING_HEADERS,
  METADATA_HEADERS,
  ROUTING_HEADERS,
  SIGN_IN_HEADERS,
  validHeaderName,
  validHeaderValue,
} from '../kernel/header-names.ts';
import { forwarded, forwardHeaderProblem, forwardHeaders } from './forward-headers.ts';

const DENIED = [
  ...CREDENTIAL_HEADERS,
  ...SIGN_IN_HEADERS,
  ...METADATA_HEADERS,
  ...ROUTING_HEADERS,
  ...FRAMING_HEADERS,
  'via',
  'x-forwarded-for',
  'x-forwarded-proto',
  'x-forwarded-host',
  'x-forwarded-prefix',
  'x-envoy-internal',
  'x-envoy-external-address',
  'x-original-url',
  'x-original-forwarded-for',
  'x-ms-token-aad-access-token',
  'proxy-authentication-info',
  'x-goog-iam-authorization-token',
  'x-ms-access-token-x',
  'x-gateway-api-key',
  'x-gateway-internal-user',
  'x-gateway-config',
  'x-gateway-forward-headers',
];

const ALLOWED = [
  'x-tenant',
  'x-request-id',
  'traceparent',
  'x-gateway-trace-id',
  'x-gateway-span-id',
  'user-agent',
  'accept',
  'x-ms-client-request-id',
  'secrets',
  'x-api-keys',
];

describe('names of headers that are forwarded to a check', () => {
  it('no name of the list is taken in any spelling, nor an invalid one', () => {
    let tried = 0;
    for (const name of [...DENIED, 'content-type']) {
      for (const spelling of [...spellings(name), ...lookAlikes(name)]) {
        expect(forwardHeaderProblem(spelling), JSON.stringify(spelling)).not.toBeNull();
        tried++;
      }
    }
    expect(DENIED.length).toBeGreaterThanOrEqual(70);
    expect(tried).toBeGreaterThan(1000);
    for (const name of ALLOWED) expect(forwardHeaderProblem(name), name).toBeNull();
  });

  it('are 16 at most, of 64 characters at most', () => {
    const names = Array.from({ length: 16 }, (_, i) => `x-${i}`.padEnd(64, 'a'));
    expect(forwardHeaders.safeParse(names).success).toBe(true);
    expect(forwardHeaders.safeParse([...names, 'x-more']).error?.issues[0]?.message).toContain('at most 16');
    expect(forwardHeaders.safeParse(['a'.repeat(65)]).error?.issues[0]?.path).toEqual([0]);
  });

  it('a header that the request keeps to its connection is not sent on', () => {
    const headers = { connection: 'close, X-Hop', 'x-hop': '1', 'x-team': 'a' };
    expect(forwarded(['x-hop', 'x-team'], subjectOf({ headers }))).toEqual({ 'x-team': 'a' });
  });

  it('a value that is no header value is not sent on', () => {
    const headers = { 'x-long': 'a'.repeat(8_193), 'x-odd': 'caf\u00e9', 'x-team': 'a b' };
    expect(forwarded(['x-long', 'x-odd', 'x-team'], subjectOf({ headers }))).toEqual({ 'x-team': 'a b' });
  });
});

describe('names and values', () => {
  it('accepts printable ASCII with inner spaces and tabs up to 8 KB', () => {
    for (const value of ['', 'a', 'a b\tc', '~!@#$%^&*()', 'x'.repeat(8192)])
      expect(validHeaderValue(value)).toBe(true);
    for (const value of [' a', 'a ', '\ta', 'a\r\nb', 'a\nb', 'a\0', 'a\x7f', 'é', '\u2028', 'x'.repeat(8193)]) {
      expect(validHeaderValue(value), JSON.stringify(value)).toBe(false);
    }
  });

  it('accepts names of letters, digits and inner hyphens up to 64', () => {
    for (const name of ['a', 'X-Tenant-1', 'a'.repeat(64)]) expect(validHeaderName(name)).toBe(true);
    for (const name of ['', '-a', 'a-', 'a_b', 'a b', 'a:', 'a\n', 'a'.repeat(65), 'İ'])
      expect(validHeaderName(name), name).toBe(false);
  });
});
