import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { linesOf } from './lines.ts';

async function* chunks(bytes: Buffer, sizes: readonly number[]): AsyncGenerator<Buffer> {
  let at = 0;
  for (const size of sizes) {
    yield bytes.subarray(at, at + size);
    at += size;
  }
  yield bytes.subarray(at);
}

async function read(source: AsyncIterable<Buffer>, limit = 1000): Promise<string[]> {
  const out: string[] = [];
  for await (const line of linesOf(source, limit)) out.push(line.toString('utf8'));
  return out;
}

describe('linesOf', () => {
  it('gives the same lines wherever the chunks are cut, also inside a character', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.string({ unit: 'grapheme' }).map((text) => text.replaceAll('\n', 'é'))),
        fc.array(fc.nat(9)),
        async (lines, sizes) => {
          const text = lines.map((line) => `${line}\n`).join('');
          expect(await read(chunks(Buffer.from(text), sizes))).toEqual(lines);
        },
      ),
      { numRuns: 200 },
    );
  });

  it('gives a last line without line feed, and keeps empty lines between others', async () => {
    expect(await read(chunks(Buffer.from('a\n\nb'), [1, 1]))).toEqual(['a', '', 'b']);
    expect(await read(chunks(Buffer.from(''), []))).toEqual([]);
  });

  it('refuses a line above the limit before it is whole', async () => {
    await expect(read(chunks(Buffer.from('x'.repeat(11)), [5]), 10)).rejects.toMatchObject({
      kind: 'upstream_invalid',
    });
  });
});
