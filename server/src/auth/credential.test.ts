import { describe, expect, it } from 'vitest';
import { readCredential } from './credential.ts';

describe('the credential of a request', () => {
  it('is x-gateway-api-key in any spelling of its case', () => {
    expect(readCredential(['Host', 'a', 'X-Gateway-API-Key', 'k'])).toBe('k');
  });

  it('is the bearer token where that header is absent, and only then', () => {
    expect(readCredential(['Authorization', 'Bearer t'])).toBe('t');
    expect(readCredential(['authorization', 'bearer   t '])).toBe('t');
    expect(readCredential(['Authorization', 'Bearer provider', 'x-gateway-api-key', 'k'])).toBe('k');
    expect(readCredential(['Authorization', 'Basic dTpw'])).toBeNull();
    expect(readCredential(['Authorization', 'Bearer'])).toBeNull();
    expect(readCredential(['Host', 'a'])).toBeNull();
  });

  it('is the client_auth of a deployment, bare or as the password of Basic, and no other password', () => {
    const basic = (pair: string) => `Basic ${Buffer.from(pair).toString('base64')}`;
    expect(readCredential(['Authorization', 'slc_dep_a'])).toBe('slc_dep_a');
    expect(readCredential(['Authorization', basic('frankfurt:slc_dep_a')])).toBe('slc_dep_a');
    expect(readCredential(['Authorization', basic('u:slc_org_a')])).toBeNull();
    expect(readCredential(['Authorization', 'slc_org_a'])).toBeNull();
    expect(readCredential(['Authorization', 'slc_dep_a', 'x-gateway-api-key', 'k'])).toBe('k');
  });

  it('two copies of a credential header are refused, also when they agree', () => {
    expect(() => readCredential(['x-gateway-api-key', 'k', 'X-GATEWAY-API-KEY', 'k'])).toThrow(/exactly one/);
    expect(() => readCredential(['Authorization', 'Bearer a', 'authorization', 'Bearer a'])).toThrow(/exactly one/);
  });

  it('an alias is read like the header, and may not differ from it', () => {
    expect(readCredential(['x-portkey-api-key', 'k'], ['x-portkey-'])).toBe('k');
    expect(readCredential(['x-portkey-api-key', 'k'])).toBeNull();
    expect(readCredential(['x-portkey-api-key', 'k', 'x-gateway-api-key', 'k'], ['x-portkey-'])).toBe('k');
    expect(() => readCredential(['x-portkey-api-key', 'a', 'x-gateway-api-key', 'b'], ['x-portkey-'])).toThrow();
  });
});
