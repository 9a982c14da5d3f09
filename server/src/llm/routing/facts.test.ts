import { describe, expect, it } from 'vitest';
import { testExchange } from '../../../test/support/exchange.ts';
import { factsOf } from './facts.ts';

/** Facts of a request with this body and these headers. */
function facts(text: string, headers: Record<string, string> = {}, metadata: Record<string, string> | null = null) {
  const body = Buffer.from(text);
  const params = Object.keys(JSON.parse(text) as object);
  const x = testExchange({ url: '/v1/messages?beta=true&x=/v1/other', headers, body, scan: ['model'] });
  x.request.metadata = metadata;
  x.request.credentialHeader = 'x-own-key';
  return factsOf(x, [...params, 'toString']);
}

describe('what conditions see of a request', () => {
  it('the members of its body that are no lists or objects, as JSON has them', () => {
    const { param } = facts('{"t":"a\\u0062","n":-1.5e1,"b":false,"z":null,"l":["a"],"o":{"a":1}}');
    expect([param('t'), param('n'), param('b'), param('z')]).toEqual(['ab', -15, false, null]);
    expect([param('l'), param('o'), param('toString')]).toEqual([undefined, undefined, undefined]);
  });

  it('no header that holds a credential, whichever this caller sends it in', () => {
    const { header } = facts('{}', { 'x-own-key': 'k', authorization: 'k', cookie: 'k', 'x-plan': 'pro' });
    expect(['x-own-key', 'authorization', 'cookie'].map((name) => header(name))).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    expect(header('x-plan')).toBe('pro');
  });

  it('its path without the query, and of metadata what it sent', () => {
    const { pathname, metadata } = facts('{}', {}, { tier: 'gold' });
    expect(pathname).toBe('/v1/messages');
    expect([metadata('tier'), metadata('constructor'), metadata('x')]).toEqual(['gold', undefined, undefined]);
  });
});
