import { describe, expect, it } from 'vitest';
import { completedUpload, entriesOf, nextUploads, s3ErrorIn, s3Url } from './s3.ts';
import { parseXml, textOfChild } from './xml.ts';

const AWS = 'https://s3.eu-west-1.amazonaws.com';

describe('the address of an object', () => {
  it.each([
    [{ endpoint: AWS, bucket: 'logs', pathStyle: false }, 'a/b.txt', 'https://logs.s3.eu-west-1.amazonaws.com/a/b.txt'],
    [{ endpoint: AWS, bucket: 'logs', pathStyle: true }, 'a/b.txt', `${AWS}/logs/a/b.txt`],
    // The certificate of AWS covers one name before its own.
    [{ endpoint: AWS, bucket: 'my.logs', pathStyle: false }, 'a', `${AWS}/my.logs/a`],
    [{ endpoint: 'http://s3.local:9000', bucket: 'my.logs', pathStyle: false }, 'a', 'http://my.logs.s3.local:9000/a'],
    [{ endpoint: AWS, bucket: 'logs', pathStyle: false }, '', 'https://logs.s3.eu-west-1.amazonaws.com/'],
    [{ endpoint: AWS, bucket: 'logs', pathStyle: true }, '', `${AWS}/logs/`],
    // As it is signed: everything but unreserved characters.
    [{ endpoint: AWS, bucket: 'logs', pathStyle: true }, "a b/(c)'é", `${AWS}/logs/a%20b/%28c%29%27%C3%A9`],
  ])('%j, %j', (place, key, address) => {
    expect(s3Url(place, key).href).toBe(address);
  });

  it('has its query in the encoding that is signed, and none of what is null', () => {
    const place = { endpoint: AWS, bucket: 'logs', pathStyle: true };
    expect(s3Url(place, '', { uploads: '', prefix: 'a b/', 'key-marker': null }).search).toBe(
      '?uploads=&prefix=a%20b%2F',
    );
  });
});

describe('what S3 answers', () => {
  it('is an error by itself or within, and says its name', () => {
    const error = '<Error><Code>NoSuchKey</Code><Message>Gone.</Message></Error>';
    for (const text of [error, `<ErrorResponse>${error}</ErrorResponse>`])
      expect(s3ErrorIn(parseXml(text))).toEqual({ code: 'NoSuchKey', message: 'Gone.' });
    expect(s3ErrorIn(parseXml('<Error/>'))).toEqual({ code: '', message: null });
    expect(s3ErrorIn(parseXml('<ListBucketResult/>'))).toBeNull();
  });

  it('goes on where it is cut and says where', () => {
    const page = (more: string) => parseXml(`<R><Upload><Key>a</Key></Upload>${more}<Upload><Key>b</Key></Upload></R>`);
    const markers = '<NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>u</NextUploadIdMarker>';
    expect(entriesOf(page(markers), 'Upload').map((one) => textOfChild(one, 'Key'))).toEqual(['a', 'b']);
    expect(nextUploads(page(`<IsTruncated>true</IsTruncated>${markers}`))).toEqual({
      'key-marker': 'k',
      'upload-id-marker': 'u',
    });
    expect(nextUploads(page(`<IsTruncated>false</IsTruncated>${markers}`))).toBeNull();
    // Without a marker the same page would come for ever.
    expect(nextUploads(page('<IsTruncated>true</IsTruncated>'))).toBeNull();
  });
});

it('the parts of an upload are named by their numbers and tags, in order', () => {
  const root = parseXml(completedUpload(['"1"', 'a<b']).toString());
  expect(root.name).toBe('CompleteMultipartUpload');
  const parts = entriesOf(root, 'Part').map((one) => [textOfChild(one, 'PartNumber'), textOfChild(one, 'ETag')]);
  expect(parts).toEqual([
    ['1', '"1"'],
    ['2', 'a<b'],
  ]);
});
