import { expect, it } from 'vitest';
import { inProcessRequest } from '../http/in-process.ts';
import { gatewayCredential } from './credential.ts';

type Headers = Record<string, string>;

const KEY = 'slc_wks_mine';

/** The credential of a request with these headers, and what else they say. */
function read(headers: Headers) {
  const into = { credentialHeader: 'x-gateway-api-key', callerToken: null };
  const token = gatewayCredential(inProcessRequest('POST', '/v1/chat/completions', headers), into);
  return { token, ...into };
}

it.each([
  [{ 'x-gateway-api-key': KEY }, 'x-gateway-api-key'],
  [{ authorization: `Bearer ${KEY}` }, 'authorization'],
  [{ authorization: `bearer ${KEY}` }, 'authorization'],
  [{ 'x-api-key': KEY }, 'x-api-key'],
])('the gateway key may come as %o', (headers, credentialHeader) => {
  expect(read(headers)).toEqual({ token: KEY, credentialHeader, callerToken: null });
});

it.each<Headers>([
  { 'x-gateway-api-key': KEY, authorization: 'Bearer sk-own' },
  { authorization: `Bearer ${KEY}`, 'x-api-key': 'sk-own' },
  { authorization: 'Bearer sk-own', 'x-api-key': KEY },
])('the token of a provider beside the gateway key is the caller’s own: %o', (headers) => {
  expect(read(headers)).toMatchObject({ token: KEY, callerToken: 'sk-own' });
});

it.each<Headers>([
  { 'x-gateway-api-key': KEY, authorization: 'Bearer slc_wks_other' },
  { authorization: `Bearer ${KEY}`, 'x-api-key': 'slc_wks_other' },
])('a second gateway key is never taken for the token of a provider: %o', (headers) => {
  expect(read(headers)).toMatchObject({ token: KEY, callerToken: null });
});

it.each<Headers>([{}, { 'x-api-key': 'sk-own' }, { authorization: 'Basic abc' }, { authorization: 'Bearer ' }])(
  'no gateway key is found in %o',
  (headers) => {
    expect(read(headers).token).toBeNull();
  },
);

it.each(['x-gateway-api-key', 'Authorization', 'X-Api-Key'])(
  'two headers %s are refused, whatever they say',
  (name) => {
    const request = inProcessRequest('POST', '/v1/chat/completions', { 'x-gateway-api-key': KEY });
    request.rawHeaders = [name, KEY, name.toLowerCase(), KEY];
    const into = { credentialHeader: '', callerToken: null };
    expect(() => gatewayCredential(request, into)).toThrow(`The header ${name.toLowerCase()} was sent more than once`);
  },
);
