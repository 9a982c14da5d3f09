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

describe('SLUICE_SMTP_URL', () => {
  const from = { SLUICE_MAIL_FROM: 'Sluice <alerts@example.com>' };
  const smtp = (url: string, env: Record<string, string> = from) =>
    loadConfig([], { SLUICE_SMTP_URL: url, ...env }, '/nowhere').smtp;

  it('names server, port, encryption and login; the sender stands beside it', () => {
    expect(smtp('smtp://mail.example.com')).toEqual({
      host: 'mail.example.com',
      port: 587,
      secure: false,
      login: null,
      from: { name: 'Sluice', address: 'alerts@example.com' },
    });
    expect(smtp('smtps://user%40x:p%2Fw%3A@mail.example.com/', { SLUICE_MAIL_FROM: 'a@b.example' })).toMatchObject({
      port: 465,
      secure: true,
      login: { user: 'user@x' },
      from: { name: '', address: 'a@b.example' },
    });
    expect(smtp('smtps://user:p%2Fw%3A@mail.example.com')?.login?.password.reveal()).toBe('p/w:');
    expect(smtp('smtp://[::1]:2525')).toMatchObject({ host: '::1', port: 2525 });
    expect(loadConfig([], {}, '/nowhere').smtp).toBeNull();
  });

  it('its password is not printed', () => {
    expect(JSON.stringify(smtp('smtp://user:geheim@mail.example.com'))).not.toContain('geheim');
    expect(() => smtp('smtp://user:geheim@mail.example.com/path')).toThrow(
      /^SLUICE_SMTP_URL is \(hidden\); allowed is/,
    );
  });

  it.each([
    'mail.example.com',
    'http://mail.example.com',
    'smtp://',
    'smtp://user@mail.example.com',
    'smtp://:pass@mail.example.com',
    'smtp://mail.example.com/path',
    'smtp://mail.example.com?tls=no',
    'smtp://mail.example.com#x',
    'smtp://us%zz:pass@mail.example.com',
    'smtp://mail.example.com:99999',
  ])('%s stops the start', (url) => {
    expect(() => smtp(url)).toThrow(/^SLUICE_SMTP_URL is/);
  });

  it.each([
    'nobody',
    'a@b.example, c@d.example',
    'x <a@b.example> y',
    'a@b.example\r\nBcc: c@d.example',
    '"x" <a@b.example>',
  ])('a sender such as %j stops the start, and so does none', (text) => {
    expect(() => smtp('smtp://mail.example.com', { SLUICE_MAIL_FROM: text })).toThrow(/^SLUICE_MAIL_FROM is/);
    expect(() => smtp('smtp://mail.example.com', {})).toThrow(/^SLUICE_MAIL_FROM is not set/);
  });
});
