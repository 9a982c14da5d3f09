import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { awsUrl, encodeStrictly } from '../../src/kernel/aws-url.ts';
import { escapeXml, parseXml } from '../../src/kernel/xml.ts';
import { eachAtOnce } from '../../src/providers/aws/at-once.ts';
import { fileId, parseFileId } from '../../src/providers/aws/s3-uri.ts';
import { type AwsScope, sha256Hex, signed } from '../../src/providers/aws/sign.ts';
import { signatureFault } from '../support/sigv4.ts';

const KEYS = { accessKeyId: 'AKID', secretAccessKey: 'secret/+=' };
const SESSION = { ...KEYS, sessionToken: 'token/+==' };
const NOW = Date.parse('2026-11-21T12:00:00.999Z');
const text = fc.string({ unit: 'binary', minLength: 1, maxLength: 20 }).filter((part) => !/^\.{1,2}$/.test(part));
const well = fc.string({
  unit: fc.constantFrom(..."abcXYZ019 -_.!~*'()/:+%&=?#@,;ü日".split('')),
  minLength: 1,
  maxLength: 20,
});

async function fault(
  scope: AwsScope,
  path: string,
  query: Record<string, string>,
  keys: typeof KEYS,
  body: Buffer | null,
  headers: readonly string[] = [],
): Promise<string | null> {
  const url = awsUrl('https://host.example:8443', path, query);
  const payload = scope.service === 's3' ? ['x-amz-content-sha256', sha256Hex(body ?? '')] : [];
  const request = await signed({ method: 'POST', url, headers: [...payload, ...headers], body }, keys, scope, NOW);
  const sent: Record<string, string> = { host: url.host };
  for (let i = 0; i < request.headers.length; i += 2) sent[request.headers[i] ?? ''] = request.headers[i + 1] ?? '';
  return signatureFault(
    { method: 'POST', path: url.pathname + url.search, headers: sent, body: body ?? Buffer.alloc(0) },
    { service: scope.service, region: scope.region, keys: [keys], now: () => NOW },
  );
}

describe('Signature V4 holds before a second implementation', () => {
  const queries = fc.dictionary(well, well, { maxKeys: 4 });
  const bodies = fc.option(fc.uint8Array({ maxLength: 64 }).map((bytes) => Buffer.from(bytes)));

  it('for ARNs as one segment, encoded once on the wire and once more in what is signed', async () => {
    const arn = 'arn:aws:bedrock:eu-central-1:123456789012:model-customization-job/amazon.nova-lite-v1:0:300k/abc';
    const path = `/model-customization-jobs/${encodeStrictly(arn)}`;
    expect(path).toContain('%3A');
    expect(path).toContain('%2F');
    expect(await fault({ service: 'bedrock', region: 'eu-central-1' }, path, {}, SESSION, null)).toBeNull();
  });

  it('for any path segment, query and body of Bedrock', async () => {
    await fc.assert(
      fc.asyncProperty(well, queries, bodies, async (name, query, body) => {
        if (/^\.{1,2}$/.test(name)) return;
        const scope: AwsScope = { service: 'bedrock', region: 'us-east-1' };
        expect(await fault(scope, `/jobs/${encodeStrictly(name)}/stop`, query, KEYS, body)).toBeNull();
      }),
      { numRuns: 200 },
    );
  });

  it('for any key, query and body of S3', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(well, { minLength: 1, maxLength: 4 }), queries, bodies, async (parts, query, body) => {
        const key = parts.flatMap((part) => part.split('/'));
        if (key.some((part) => /^\.{1,2}$/.test(part))) return;
        const scope: AwsScope = { service: 's3', region: 'us-east-1' };
        const headers = ['content-type', 'application/xml', 'x-amz-meta-a', 'two  spaces'];
        expect(
          await fault(scope, `/bucket/${key.map(encodeStrictly).join('/')}`, query, SESSION, body, headers),
        ).toBeNull();
      }),
      { numRuns: 200 },
    );
  });

  it('and fails for every change on the way', async () => {
    const url = awsUrl('https://bedrock.example', '/jobs', { maxResults: '5' });
    const scope: AwsScope = { service: 'bedrock', region: 'eu-west-1' };
    const request = await signed(
      { method: 'POST', url, headers: ['content-type', 'application/json'], body: Buffer.from('{}') },
      KEYS,
      scope,
      NOW,
    );
    const headers: Record<string, string> = { host: url.host };
    for (let i = 0; i < request.headers.length; i += 2)
      headers[request.headers[i] ?? ''] = request.headers[i + 1] ?? '';
    const sent = { method: 'POST', path: url.pathname + url.search, headers, body: Buffer.from('{}') };
    const expected = { service: 'bedrock', region: 'eu-west-1', keys: [KEYS], now: () => NOW };
    expect(signatureFault(sent, expected)).toBeNull();
    for (const changed of [
      { ...sent, method: 'GET' },
      { ...sent, path: '/jobs?maxResults=6' },
      { ...sent, path: '/other?maxResults=5' },
      { ...sent, body: Buffer.from('{"a":1}') },
      { ...sent, headers: { ...headers, host: 'evil.example' } },
      { ...sent, headers: { ...headers, 'content-type': 'text/plain' } },
      { ...sent, headers: { ...headers, 'x-amz-added': 'later' } },
      { ...sent, headers: { ...headers, 'x-amz-security-token': 'stolen' } },
    ]) {
      expect(signatureFault(changed, expected)).not.toBeNull();
    }
    expect(signatureFault(sent, { ...expected, region: 'eu-west-2' })).not.toBeNull();
    expect(signatureFault(sent, { ...expected, keys: [{ ...KEYS, secretAccessKey: 'other' }] })).not.toBeNull();
    expect(signatureFault(sent, { ...expected, now: () => NOW + 6 * 60_000 })).not.toBeNull();
  });
});

describe('ids of objects', () => {
  it('come back as the bucket and key they were made of', () => {
    fc.assert(
      fc.property(
        fc.array(
          text.map((part) => part.replaceAll('/', '_')),
          { minLength: 1, maxLength: 5 },
        ),
        (parts) => {
          const key = parts.join('/');
          if (!key.isWellFormed() || parts.some((part) => /^\.{1,2}$/.test(part))) return;
          expect(parseFileId(fileId({ bucket: 'my-bucket', key }))).toEqual({ bucket: 'my-bucket', key });
        },
      ),
    );
  });

  it('any other text is none, and never an error', () => {
    fc.assert(
      fc.property(fc.string(), (id) => {
        if (!id.startsWith('s3')) expect(parseFileId(id)).toBeNull();
      }),
    );
  });
});

describe('XML answers', () => {
  it('give back the text they were made of', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (value) => {
        const root = parseXml(`<?xml version="1.0"?>\n<a xmlns="x"><!-- c --><b>${escapeXml(value)}</b><c/></a>\n`);
        expect(root.children.map(({ name, text }) => [name, text])).toEqual([
          ['b', value],
          ['c', ''],
        ]);
      }),
    );
  });

  it('any text is read or refused as an answer of the provider, and entities are never expanded', () => {
    const pieces = fc.array(
      fc.constantFrom(
        '<a>',
        '</a>',
        '<b/>',
        '&lt;',
        '&x;',
        '<!DOCTYPE a [',
        ']>',
        '<?',
        'text',
        '<',
        '>',
        '"',
        '&#x41;',
        '&#99999999;',
      ),
    );
    fc.assert(
      fc.property(pieces, (parts) => {
        try {
          parseXml(parts.join(''));
        } catch (error) {
          expect(error).toMatchObject({ kind: 'upstream_invalid' });
        }
      }),
      { numRuns: 1000 },
    );
    expect(() => parseXml('<!DOCTYPE a [<!ENTITY b "bbbb">]><a>&b;</a>')).toThrow();
    expect(() => parseXml(`${'<a>'.repeat(100)}${'</a>'.repeat(100)}`)).toThrow();
  });
});

describe('many calls at once', () => {
  it('keep their order and their bound', async () => {
    let running = 0;
    let most = 0;
    const out = await eachAtOnce(
      Array.from({ length: 20 }, (_, i) => i),
      4,
      async (i) => {
        most = Math.max(most, ++running);
        await new Promise((resolve) => setImmediate(resolve));
        running--;
        return i * 2;
      },
    );
    expect(out).toEqual(Array.from({ length: 20 }, (_, i) => i * 2));
    expect(most).toBe(4);
  });

  it('the first failure starts no more', async () => {
    let started = 0;
    const failing = eachAtOnce(
      Array.from({ length: 20 }, (_, i) => i),
      2,
      async (i) => {
        started++;
        if (i === 1) throw new Error('one');
        await new Promise((resolve) => setImmediate(resolve));
      },
    );
    await expect(failing).rejects.toThrow('one');
    expect(started).toBeLessThan(5);
  });
});
