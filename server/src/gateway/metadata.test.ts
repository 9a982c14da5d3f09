import { expect, it } from 'vitest';
import { callerWith, workspaceWith } from '../../test/support/caller.ts';
import { testExchange } from '../../test/support/exchange.ts';
import { headerJson } from '../kernel/text.ts';
import { defaultMetadata, MAX_DEFAULT_KEYS } from '../resources/body-fields.ts';
import { copiedHeaders, metadataOf, metadataUnder } from './metadata.ts';

interface Given {
  readonly headers?: Record<string, string>;
  readonly key?: Record<string, string>;
  readonly workspace?: Record<string, string>;
  readonly user?: string;
  /** The setting `HEADERS_TO_METADATA`. */
  readonly copied?: readonly string[];
}

function metadata({ headers = {}, key, workspace, user, copied = [] }: Given) {
  const { request } = testExchange({ headers });
  request.principal = callerWith({ defaults: key === undefined ? {} : { metadata: key } });
  return metadataOf(request, workspaceWith({ metadata: workspace ?? null }), copiedHeaders(request, copied), user);
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

/** As Node.js reads bytes of UTF-8 in a header. */
const sent = (text: string) => Buffer.from(text).toString('latin1');

it('texts of any language arrive as they were sent, as UTF-8 or escaped; what is no UTF-8 is Latin-1', () => {
  const text = '{"team":"Müller 検索 😀"}';
  expect(metadata({ headers: { 'x-gateway-metadata': sent(text) } })).toEqual({ team: 'Müller 検索 😀' });
  expect(metadata({ headers: { 'x-gateway-metadata': headerJson(JSON.parse(text)) } })).toEqual(JSON.parse(text));
  expect(metadata({ headers: { 'x-gateway-metadata': '{"team":"M\u00fcller"}' } })).toEqual({ team: 'Müller' });
  expect(metadata({ headers: header({ a: sent('é'.repeat(128)) }) })).toEqual({ a: 'é'.repeat(128) });
});

it('headers that the server copies are metadata over the caller’s own, and under that of its key and workspace', () => {
  const headers = {
    ...header({ 'x-team': 'told', 'x-site': 'told' }),
    'x-team': sent('Müller'),
    'x-area': 'a',
    'x-other': 'o',
  };
  const copied = ['x-team', 'x-area', 'x-absent'];
  expect(metadata({ headers, copied })).toEqual({ 'x-team': 'Müller', 'x-area': 'a', 'x-site': 'told' });
  expect(metadata({ headers, copied, key: { 'x-team': 'key' }, workspace: { 'x-area': 'w' } })).toEqual({
    'x-team': 'key',
    'x-area': 'w',
    'x-site': 'told',
  });
  expect(metadata({ headers: { 'x-team': 'a' }, copied })).toEqual({ 'x-team': 'a' });
  expect(metadata({ copied })).toBeNull();
});

it('a copied header that is too long is cut, so that limits by metadata still count it', () => {
  expect(metadata({ headers: { 'x-team': '😀'.repeat(200) }, copied: ['x-team'] })).toEqual({
    'x-team': '😀'.repeat(128),
  });
});

it('the defaults of a key and its workspace leave room for each other', () => {
  const most = (prefix: string) => defaultMetadata.parse(some(MAX_DEFAULT_KEYS, prefix));
  expect(Object.keys(metadata({ key: most('k'), workspace: most('w') }) ?? {})).toHaveLength(2 * MAX_DEFAULT_KEYS);
});
