import { createHash, randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { Base64Omitter, omittedIn } from './omit-base64.ts';

/** What stays of a text that comes in pieces of these lengths, again and again. */
function omitted(text: string, ...lengths: number[]): { readonly text: string; readonly count: number } {
  const out: Buffer[] = [];
  const omitter = new Base64Omitter((bytes) => out.push(Buffer.from(bytes)));
  const bytes = Buffer.from(text);
  for (let at = 0, i = 0; at < bytes.length; i++) {
    const length = lengths[i % lengths.length] ?? bytes.length;
    omitter.push(bytes.subarray(at, at + length));
    at += length;
  }
  omitter.end();
  return { text: Buffer.concat(out).toString(), count: omitter.omitted };
}

const file = (bytes: number, first = '') => Buffer.concat([Buffer.from(first, 'latin1'), randomBytes(bytes)]);
const mark = (content: Buffer, type: string) =>
  `[omitted ${type} ${content.length} ${createHash('sha256').update(content).digest('hex')}]`;

describe('a long text in base64', () => {
  const png = file(9_000, '\x89PNG');
  const wav = file(20_000, 'RIFF0000WAVE');
  const text = JSON.stringify({
    a: `data:image/png;base64,${png.toString('base64')}`,
    b: 'what is in it? '.repeat(300),
    c: wav.toString('base64'),
    d: randomBytes(900).toString('base64'),
  });
  const expected = text
    .replace(png.toString('base64'), mark(png, 'image/png'))
    .replace(wav.toString('base64'), mark(wav, 'audio/wav'));

  it.each([[[1 << 20]], [[8_192]], [[4_096]], [[2_047]], [[100]], [[7, 4_000, 1, 9_000]], [[1]]])(
    'becomes its type, length and digest, whatever pieces it comes in: %j',
    (lengths) => {
      expect(omitted(text, ...lengths)).toEqual({ text: expected, count: 2 });
    },
  );

  it('is found at the very begin and end, and with escaped slashes', () => {
    expect(omitted(wav.toString('base64')).text).toBe(mark(wav, 'audio/wav'));
    const escaped = wav.toString('base64').replaceAll('/', '\\/');
    expect(omitted(`"${escaped}"`, 1_000).text).toBe(`"${mark(wav, 'audio/wav')}"`);
  });

  it('of 4096 characters goes, one of 4095 stays', () => {
    const [stays, goes] = ['A'.repeat(4_095), 'A'.repeat(4_096)];
    expect(omitted(`"${stays}"`)).toEqual({ text: `"${stays}"`, count: 0 });
    expect(omitted(`"${goes}"`).count).toBe(1);
  });
});

it('other texts stay as they are, in whatever pieces', () => {
  const words = Array.from({ length: 3_000 }, (_, i) => `word${i} ünïcödé "quoted" {}`).join(' ');
  for (const lengths of [[1 << 20], [4_096], [13], [2_048, 5]]) expect(omitted(words, ...lengths).text).toBe(words);
});

it('the place of one is told by its text, and no other text is taken for it', () => {
  const content = file(5_000);
  const known = { omitted: true, type: 'image/png', bytes: content.length, sha256: expect.any(String) };
  expect(omittedIn(`data:image/png;base64,${mark(content, 'image/png')}`)).toEqual(known);
  expect(omittedIn(mark(content, 'image/png'))).toEqual(known);
  for (const text of ['', 'omitted', '[omitted image/png 5 abc]', `see ${mark(content, 'image/png')}`]) {
    expect(omittedIn(text)).toBeNull();
  }
});
