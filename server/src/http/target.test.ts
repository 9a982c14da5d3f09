import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { checkTarget } from './target.ts';

/** The rule as docs state it. */
const GRAMMAR = /^\/[A-Za-z0-9._~!$&'()*+,=:@%/-]*(\?[!"$-~]*)?$/;

function reference(target: string): boolean {
  if (!GRAMMAR.test(target) || target.length > 8192) return false;
  const [path = ''] = target.split('?');
  if (path.includes('//')) return false;
  for (const segment of path.slice(1).split('/')) {
    const encoded = [...segment.matchAll(/%([0-9a-f]{2})/gi)].map(([, hex = '']) => Number.parseInt(hex, 16));
    if (encoded.some((code) => /[\w-]/.test(String.fromCharCode(code)))) return false;
    let text: string;
    try {
      text = decodeURIComponent(segment);
    } catch {
      return false;
    }
    if (text.includes('\\') || /\p{Cc}/u.test(text)) return false;
    if (text.split('/').some((part) => part === '.' || part === '..')) return false;
  }
  return true;
}

describe('checkTarget', () => {
  it('accepts exactly the targets of the rule', () => {
    const piece = fc.oneof(
      fc.constantFrom(
        '/',
        '.',
        '..',
        '%2e',
        '%2E',
        '%2f',
        '%5c',
        '%00',
        '%',
        '%7f',
        '%c3%a9',
        '%ff',
        '?',
        '#',
        ';',
        '\\',
        ' ',
        'é',
        'a',
        '@',
        '"',
        '~',
        '\x7f',
        '%25',
        '%3f',
        '%30',
        '%41',
        '%7A',
        '%2d',
        '%5f',
      ),
      fc.string({ unit: 'binary-ascii', maxLength: 3 }),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 10 }), (parts) => {
        for (const target of [parts.join(''), `/${parts.join('')}`, `/v1/${parts.join('')}`]) {
          expect(checkTarget(target) === null, target).toBe(reference(target));
        }
      }),
      { numRuns: 20_000 },
    );
  });

  it.each([
    '/',
    '/v1/chat/completions',
    '/v1/models/gpt-4o-mini?x=1&y=/../%zz',
    '/v1/files/s3%3A%2F%2Fbucket%2Fkey',
    '/v1/models/arn:aws:bedrock:us-east-1::foundation-model%2Fa',
    '/v1/.well-known/agent.json',
    '/v1/a..b/...',
    '/v1/a%252e%252e',
    '/console/@assets/x~1.js',
  ])('accepts %s', (target) => {
    expect(checkTarget(target)).toBeNull();
  });

  it('refuses a target of more than 8 KB as too long, and others as malformed', () => {
    expect(checkTarget(`/${'a'.repeat(8191)}`)).toBeNull();
    expect(checkTarget(`/${'a'.repeat(8192)}`)?.kind).toBe('uri_too_long');
    expect(checkTarget('http://a/x')?.kind).toBe('malformed_call');
    expect(checkTarget('')?.kind).toBe('malformed_call');
  });
});
