import { expect, it } from 'vitest';
import { callerWith, workspaceWith } from '../../test/support/caller.ts';
import { testExchange } from '../../test/support/exchange.ts';
import { metadataOf, metadataUnder } from './metadata.ts';

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
  ['a long key', JSON.stringify({ ['k'.repeat(129)]: 'a' }), 'a key that is longer than 128 characters'],
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

const some = (count: number, prefix: string) =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`${prefix}${i}`, 'a']));

it('the keys of a request are at most 64 together, wherever they come from', () => {
  const header64 = header(some(64, 'h'));
  expect(Object.keys(metadata({ headers: header64 }) ?? {})).toHaveLength(64);
  // The same key counts once.
  expect(Object.keys(metadata({ headers: header64, key: { h1: 'b' }, workspace: { h2: 'c' } }) ?? {})).toHaveLength(64);
  const together = 'have 65 keys together; at most 64 are allowed';
  expect(() => metadata({ headers: header64, key: { k: 'a' } })).toThrow(together);
  expect(() => metadata({ headers: header64, workspace: { w: 'a' } })).toThrow(together);
  expect(() => metadata({ key: some(40, 'k'), workspace: some(25, 'w') })).toThrow(together);
  expect(() => metadataUnder({ c: 'a' }, some(64, 'h'))).toThrow(together);
  expect(metadataUnder({ h1: 'config', c: 'config' }, { h1: 'header' })).toEqual({ h1: 'header', c: 'config' });
});

it('baggage and the user of the body take the room that is left, and refuse nothing', () => {
  const bag = Array.from({ length: 100 }, (_, i) => `b${i}=x`).join(',');
  const full = metadata({ headers: { ...header(some(60, 'h')), baggage: bag }, user: 'alice' }) ?? {};
  expect(Object.keys(full)).toHaveLength(64);
  expect(full).toMatchObject({ h59: 'a', b0: 'x', b3: 'x' });
  expect(metadata({ headers: header(some(64, 'h')), user: 'alice' })).not.toHaveProperty('_user');
  expect(metadata({ headers: { baggage: `${'k'.repeat(129)}=x,a=${encodeURIComponent('😀'.repeat(128))}` } })).toEqual({
    a: '😀'.repeat(128),
  });
});
