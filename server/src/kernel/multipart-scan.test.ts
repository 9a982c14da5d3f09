import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SluiceError } from './errors.ts';
import { multipartBoundary, replaceFormField, scanMultipart } from './multipart-scan.ts';

const TYPE = 'multipart/form-data; boundary=XX';

function part(head: string, value: string | Buffer): Buffer {
  return Buffer.concat([Buffer.from(`--XX\r\n${head}\r\n\r\n`), Buffer.from(value), Buffer.from('\r\n')]);
}

function field(name: string, value: string): Buffer {
  return part(`Content-Disposition: form-data; name="${name}"`, value);
}

const END = Buffer.from('--XX--\r\n');

function scan(...parts: Buffer[]) {
  return scanMultipart(Buffer.concat([...parts, END]), TYPE, ['model', 'stream']);
}

describe('scanMultipart', () => {
  it('finds values and their byte ranges between file parts of any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), fc.string({ unit: 'grapheme', maxLength: 30 }), (bytes, text) => {
        fc.pre(!text.includes('--XX') && !Buffer.from(bytes).includes('\r\n--XX'));
        const file = part(
          'Content-Disposition: form-data; name="file"; filename="a.bin"\r\nContent-Type: audio/mpeg',
          Buffer.from(bytes),
        );
        const body = Buffer.concat([file, field('model', text), field('language', 'en'), END]);
        const found = scanMultipart(body, TYPE, ['model', 'stream']);
        const model = found.get('model');
        expect(model?.value).toBe(text);
        expect(body.toString('utf8', model?.start, model?.end)).toBe(text);
        expect(found.has('stream')).toBe(false);
      }),
    );
  });

  it('accepts the same part written by other clients: token names, quoted boundary, no last line end', () => {
    const body = Buffer.from('--a b\r\ncontent-disposition: form-data; name=model\r\n\r\nwhisper-1\r\n--a b--');
    expect(
      scanMultipart(body, 'Multipart/Form-Data; charset=utf-8; boundary="a b"', ['model']).get('model')?.value,
    ).toBe('whisper-1');
    expect(scan(field('model', '')).get('model')).toMatchObject({ value: '' });
  });

  it.each<[string, Buffer[]]>([
    ['a wanted field twice', [field('model', 'a'), field('model', 'b')]],
    ['a wanted field as a file', [part('Content-Disposition: form-data; name="model"; filename="x"', 'a')]],
    ['two names in one part', [part('Content-Disposition: form-data; name="x"; name="model"', 'a')]],
    ['an extended name', [part('Content-Disposition: form-data; name="x"; name*=utf-8\'\'model', 'a')]],
    [
      'two dispositions',
      [part('Content-Disposition: form-data; name="x"\r\nContent-Disposition: form-data; name="model"', 'a')],
    ],
    ['no disposition', [part('Content-Type: text/plain', 'a')]],
    ['no name', [part('Content-Disposition: form-data', 'a')]],
    ['another disposition', [part('Content-Disposition: attachment; name="model"', 'a')]],
    [
      'a transfer encoding',
      [part('Content-Disposition: form-data; name="model"\r\nContent-Transfer-Encoding: base64', 'YQ==')],
    ],
    ['a folded header', [part('Content-Disposition: form-data;\r\n name="model"', 'a')]],
    ['a header line that ends in LF only', [part('X: y\nContent-Disposition: form-data; name="model"', 'a')]],
    ['an unclosed quote', [part('Content-Disposition: form-data; name="model', 'a')]],
    ['a preamble', [Buffer.from('hello\r\n'), field('model', 'a')]],
    ['a wanted value that is not UTF-8', [part('Content-Disposition: form-data; name="model"', Buffer.from([0xff]))]],
    ['a wanted value over 64 KB', [field('model', 'a'.repeat(65_537))]],
    [
      'a boundary followed by spaces',
      [Buffer.from('--XX  \r\nContent-Disposition: form-data; name="model"\r\n\r\na\r\n')],
    ],
    ['headers without end', [Buffer.from(`--XX\r\nX: ${'a'.repeat(20_000)}\r\n\r\n\r\n`)]],
    ['more than a thousand parts', Array.from({ length: 1001 }, () => field('x', '1'))],
    ['data after the last boundary', [field('model', 'a'), END, field('model', 'b')]],
  ])('refuses %s', (_title, parts) => {
    expect(() => scan(...parts)).toThrow(SluiceError);
  });

  it('refuses a body cut anywhere', () => {
    const body = Buffer.concat([field('model', 'whisper-1'), field('x', 'y'), Buffer.from('--XX--')]);
    expect(scanMultipart(body, TYPE, ['model']).size).toBe(1);
    for (let n = 0; n < body.length; n++) {
      expect(() => scanMultipart(body.subarray(0, n), TYPE, ['model']), `cut at ${n}`).toThrow(SluiceError);
    }
  });

  it('never fails other than with a refusal, whatever the bytes', () => {
    const pieces = fc.constantFrom(
      '--XX',
      '\r\n',
      '--',
      'Content-Disposition: form-data; name="model"',
      ';',
      '"',
      'a',
      '\r\n\r\n',
      '\n',
      '\0',
      'name=',
    );
    fc.assert(
      fc.property(fc.array(pieces, { maxLength: 20 }), (parts) => {
        try {
          scanMultipart(Buffer.from(parts.join('')), TYPE, ['model']);
        } catch (error) {
          expect(error).toBeInstanceOf(SluiceError);
        }
      }),
      { numRuns: 5000 },
    );
  });

  it.each([
    'multipart/form-data',
    'application/json; boundary=x',
    'multipart/form-data; boundary=a; boundary=b',
    'multipart/form-data; boundary=',
    'multipart/form-data; boundary="é"',
    `multipart/form-data; boundary=${'x'.repeat(71)}`,
    'multipart/form-data; boundary="a',
  ])('refuses the content type %j', (type) => {
    expect(() => multipartBoundary(type)).toThrow(SluiceError);
  });
});

describe('replaceFormField', () => {
  it('sets a field in place, or adds it when it is missing, and leaves every other byte alone', () => {
    const body = Buffer.concat([field('model', '@openai/whisper-1'), field('x', 'y'), END]);
    const replaced = Buffer.concat(replaceFormField(body, TYPE, 'model', 'whisper-1'));
    expect(replaced).toEqual(Buffer.concat([field('model', 'whisper-1'), field('x', 'y'), END]));
    const without = Buffer.concat([field('x', 'y'), END]);
    const added = Buffer.concat(replaceFormField(without, TYPE, 'model', 'm'));
    expect(scanMultipart(added, TYPE, ['model', 'x']).get('model')?.value).toBe('m');
    expect(scanMultipart(added, TYPE, ['model', 'x']).get('x')?.value).toBe('y');
    expect(replaceFormField(body, TYPE, 'model', '')).toEqual([body]);
    expect(replaceFormField(replaced, TYPE, 'model', 'whisper-1')[0]).toBe(replaced);
  });

  it('refuses a value that would write a part of its own', () => {
    const body = Buffer.concat([field('x', 'y'), END]);
    expect(() => replaceFormField(body, TYPE, 'model', 'a\r\n--XX')).toThrow(SluiceError);
  });
});
