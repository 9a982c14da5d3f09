import { expect, it } from 'vitest';
import { callerWith, workspaceWith } from '../../test/support/caller.ts';
import { testExchange } from '../../test/support/exchange.ts';
import { metadataOf } from './metadata.ts';

interface Given {
  readonly headers?: Record<string, string>;
  readonly key?: Record<string, string>;
  readonly workspace?: Record<string, string>;
  readonly user?: string;
}

function metadata({ headers = {}, key, workspace, user }: Given) {
  const { request } = testExchange({ headers });
  request.principal = callerWith({ defaults: key === undefined ? {} : { metadata: key } });
  return metadataOf(request, workspaceWith({ metadata: workspace ?? null }), user);
}

const header = (value: unknown) => ({ 'x-gateway-metadata': JSON.stringify(value) });

it('the workspace decides before the key, the key before the header, the header before baggage', () => {
  const headers = { ...header({ a: 'header', b: 'header', c: 'header' }), baggage: 'a=bag,b=bag,c=bag,d=bag' };
  const given = { headers, key: { a: 'key', b: 'key' }, workspace: { a: 'workspace' } };
  expect(metadata(given)).toEqual({ a: 'workspace', b: 'key', c: 'header', d: 'bag' });
});

it('the user of the body counts where nothing else names one', () => {
  expect(metadata({ user: 'alice' })).toEqual({ _user: 'alice' });
  expect(metadata({ user: 'alice', headers: header({ _user: 'bob' }) })).toEqual({ _user: 'bob' });
  expect(metadata({ user: 'x'.repeat(129) })).toEqual({});
});

it('a request that says nothing has none', () => {
  expect(metadata({})).toBeNull();
});

it.each([
  ['no JSON', '{', 'must be a JSON object of texts'],
  ['a list', '[]', 'must be a JSON object of texts'],
  ['a number as value', '{"a":1}', 'the value of "a" must be a text'],
  ['a long value', JSON.stringify({ a: 'é'.repeat(129) }), 'the value of "a" is longer than 128 characters'],
  ['a key of the language', '{"__proto__":"a"}', 'holds a key that is not allowed'],
  ['too many keys', JSON.stringify(Object.fromEntries(Array.from({ length: 65 }, (_, i) => [i, 'a']))), 'at most 64'],
])('metadata of %s is refused, and the error says why', (_title, text, message) => {
  expect(() => metadata({ headers: { 'x-gateway-metadata': text } })).toThrow(message);
});

it('128 characters are allowed, also of those that take two units', () => {
  expect(metadata({ headers: header({ a: '😀'.repeat(128) }) })).toEqual({ a: '😀'.repeat(128) });
});

it('malformed baggage is left out and refuses nothing', () => {
  expect(metadata({ headers: { baggage: 'a=%zz, b = two%20words ;p=1,=c,__proto__=x,d' } })).toEqual({
    b: 'two words',
  });
});
