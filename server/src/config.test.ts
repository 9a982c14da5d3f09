import { describe, expect, it } from 'vitest';
import { ConfigError, loadConfig } from './config.ts';

const load = (url: string, env: Record<string, string> = {}) =>
  loadConfig([], { SLUICE_BLOBS_URL: url, ...env }, '/nowhere').blobs;

describe('SLUICE_BLOBS_URL', () => {
  it('names bucket, prefix, region and endpoint; credentials come from the AWS variables', () => {
    expect(
      load('s3://files/sluice/eu/?region=eu-central-1&endpoint=http://minio:9000&path_style=true', {
        AWS_ACCESS_KEY_ID: 'id',
        AWS_SECRET_ACCESS_KEY: 'secret',
      }),
    ).toEqual({
      bucket: 'files',
      prefix: 'sluice/eu',
      region: 'eu-central-1',
      endpoint: 'http://minio:9000',
      pathStyle: true,
      credentials: { accessKeyId: 'id', secretAccessKey: 'secret', sessionToken: null },
    });
  });

  it('takes the region of the machine and leaves credentials to its role when nothing else is said', () => {
    expect(load('s3://files', { AWS_REGION: 'eu-north-1' })).toEqual({
      bucket: 'files',
      prefix: '',
      region: 'eu-north-1',
      endpoint: null,
      pathStyle: false,
      credentials: null,
    });
  });

  it.each([
    'https://files',
    's3://',
    's3://Files!',
    's3://id:secret@files',
    's3://files/a//b',
    's3://files?regoin=x',
    's3://files?region=a&region=b',
    's3://files?endpoint=minio:9000',
    's3://files?endpoint=http://minio:9000/path',
    's3://files?path_style=yes',
    's3://files#x',
  ])('stops the start with %s, and shows none of it', (url) => {
    const failing = () => load(url);
    expect(failing).toThrow(ConfigError);
    expect(failing).toThrow(/^SLUICE_BLOBS_URL is \(hidden\); allowed is s3:/);
  });

  it('stops the start with half of a credential', () => {
    expect(() => load('s3://files', { AWS_ACCESS_KEY_ID: 'id' })).toThrow(
      'AWS_SECRET_ACCESS_KEY is not set; SLUICE_BLOBS_URL needs it beside AWS_ACCESS_KEY_ID',
    );
  });

  it('is off by default', () => {
    expect(loadConfig([], {}, '/nowhere').blobs).toBeNull();
  });
});
