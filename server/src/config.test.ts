import { describe, expect, it } from 'vitest';
import { linksGoNowhere } from './cli/links.ts';
import { ConfigError, effectiveSettings, loadConfig, unknownVariables } from './config.ts';

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

describe('SLUICE_LOGS_URL', () => {
  const logs = (url: string, env: Record<string, string> = {}) =>
    loadConfig([], { SLUICE_LOGS_URL: url, ...env }, '/nowhere').logs;

  it('names server, encryption, database and login', () => {
    const found = logs('clickhouses://writer:p%40ss@ch.example/requests');
    expect(found).toMatchObject({ secure: true, host: 'ch.example:8443', user: 'writer', database: 'requests' });
    expect(found?.password.reveal()).toBe('p@ss');
    expect(logs('clickhouse://127.0.0.1')).toMatchObject({ secure: false, host: '127.0.0.1:8123', user: 'default' });
    expect(logs('clickhouse://[::1]:9/')).toMatchObject({ host: '[::1]:9', database: 'default' });
  });

  it('without TLS is for this machine and for hosts that the operator trusts', () => {
    expect(() => logs('clickhouse://u:hunter2@ch.internal:8123/db')).toThrow(
      /^SLUICE_LOGS_URL sends its password to ch\.internal without TLS; write clickhouses:\/\/, or add ch\.internal to SLUICE_TRUSTED_HOSTS$/,
    );
    expect(logs('clickhouse://u:p@ch.internal/db', { SLUICE_TRUSTED_HOSTS: 'ch.internal' })?.secure).toBe(false);
    expect(logs('clickhouse://u:p@localhost/db')?.host).toBe('localhost:8123');
  });

  it.each([
    'https://u:hunter2@ch.example',
    'clickhouses://u:hunter2@ch.example/one/two',
    'clickhouses://u:hunter2@ch.example/db?x=1',
    "clickhouses://u:hunter2@ch.example/d'b",
    'clickhouses://u:hunter2%@ch.example/db',
  ])('stops the start with %s, and shows none of it', (url) => {
    const failing = () => logs(url);
    expect(failing).toThrow(/^SLUICE_LOGS_URL is \(hidden\); allowed is clickhouses:/);
    expect(failing).not.toThrow(/hunter2/);
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

describe('names', () => {
  it.each([
    [['--prot', '0'], '--prot: unknown option; did you mean --port?'],
    [['--sluice-databse-url=x'], '--sluice-databse-url=x: unknown option; did you mean --database-url?'],
    [['--log_levle', 'debug'], '--log_levle: unknown option; did you mean --log-level?'],
    [['--zzzzzzzzzz', '1'], '--zzzzzzzzzz: unknown option;'],
    [['--wrong', '1'], '--wrong: unknown option;'],
    [['--foo', '1'], '--foo: unknown option;'],
    [['--hots', '1'], '--hots: unknown option; did you mean --host?'],
  ])('%j: the nearest option is named, not all of them', (args, begins) => {
    const message = `${begins} npm run sluice -- check lists all settings`;
    expect(() => loadConfig(args, {}, '/nowhere')).toThrow(new ConfigError(message));
  });

  it('a variable that looks like a setting and is none is told in one line with the nearest one', () => {
    expect(unknownVariables({ SLUICE_PROT: '1', SLUICE_FOO: '1', SLUICE_PORT: '0', SLUICE_ZZZZZZZZZZZZ: 'x' })).toEqual(
      [
        'the variable SLUICE_PROT is not a setting and is ignored; did you mean SLUICE_PORT?',
        'the variable SLUICE_FOO is not a setting and is ignored',
        'the variable SLUICE_ZZZZZZZZZZZZ is not a setting and is ignored',
      ],
    );
  });

  it('what Kubernetes sets for a Service named sluice is no such variable, and its SLUICE_PORT is explained', () => {
    const links = {
      SLUICE_SERVICE_HOST: '10.0.0.1',
      SLUICE_SERVICE_PORT: '8787',
      SLUICE_SERVICE_PORT_HTTP: '8787',
      SLUICE_PORT_8787_TCP: 'tcp://10.0.0.1:8787',
      SLUICE_PORT_8787_TCP_ADDR: '10.0.0.1',
    };
    expect(unknownVariables(links)).toEqual([]);
    expect(() => loadConfig([], { SLUICE_PORT: 'tcp://10.0.0.1:8787' }, '/nowhere')).toThrow(
      'Kubernetes has set it: say enableServiceLinks: false in the pod',
    );
  });
});

describe('what is wrong', () => {
  const problems = (args: readonly string[], env: Record<string, string>) => {
    try {
      loadConfig(args, env, '/nowhere');
    } catch (error) {
      expect(error).toBeInstanceOf(ConfigError);
      return (error as Error).message.split('\n');
    }
    return [];
  };

  it('is named in whole, with a line for each', () => {
    const env = {
      SLUICE_LOG_LEVEL: 'loud',
      SLUICE_SMTP_URL: 'smtp://mail',
      SLUICE_WORKERS: '0',
      SLUICE_MASTER_KEY: 'x',
    };
    expect(problems(['--wrong', '1', '--port', 'x', '--drain-seconds'], env)).toEqual([
      '--wrong: unknown option; npm run sluice -- check lists all settings',
      '--drain-seconds: a value must follow; allowed is a whole number from 0 to 3600',
      'SLUICE_PORT is "x"; allowed is a whole number from 0 to 65535',
      'SLUICE_WORKERS is "0"; allowed is a whole number from 1 to 64',
      'SLUICE_MASTER_KEY holds a key that is too short; each key must be at least 32 random bytes in base64 or hexadecimal (make one with: openssl rand -base64 32)',
      'SLUICE_LOG_LEVEL is "loud"; allowed is debug, info, warn or error',
      'SLUICE_MAIL_FROM is not set; SLUICE_SMTP_URL needs it: the address mails are sent from',
    ]);
  });

  it('is known before the start, also in lists and keys', () => {
    expect(problems([], { SLUICE_TRUSTED_HOSTS: 'localhost,*' })).toEqual([
      'SLUICE_TRUSTED_HOSTS: Trusted host "*" is not a host, host:port or address range',
    ]);
    expect(problems([], { SLUICE_TRUSTED_PROXIES: '10.0.0.0/8, proxy' })).toEqual([
      'SLUICE_TRUSTED_PROXIES: Trusted proxy "proxy" is not an address or a range such as 10.0.0.0/8',
    ]);
    const keys = problems([], { SLUICE_MASTER_KEY: `${'ab'.repeat(32)}` });
    expect(keys).toEqual([
      expect.stringMatching(/^SLUICE_MASTER_KEY holds a key that is not random; each key must be/),
    ]);
    expect(problems([], { SLUICE_MAIL_FROM: 'nobody', SLUICE_SMTP_URL: 'smtp://mail' })).toHaveLength(1);
  });
});

describe('the settings in force', () => {
  it('are all there, with where each comes from, and show no secret', () => {
    const env = {
      SLUICE_DATABASE_URL: 'postgres://app:s3cret@db:5432/sluice?sslmode=require',
      SLUICE_REDIS_URL: 'redis://:hunter2@cache:6379',
      SLUICE_LOGS_URL: 'clickhouses://writer:l0gs@ch:8443/sluice',
      SLUICE_SMTP_URL: 'smtp://mailer:pa55@mail:587',
      SLUICE_MAIL_FROM: 'a@b.example',
      SLUICE_MASTER_KEY: 'uT6Kd9cXo0bSg3V1mYw7Rj2nZq8LhPeA5fEiNtHxJ4M=',
    };
    const settings = effectiveSettings(['--port', '0'], env, '/nowhere');
    const of = (name: string) => settings.find((one) => one.name === name);
    expect(of('SLUICE_PORT')).toEqual({ name: 'SLUICE_PORT', shown: '0', from: 'flag' });
    expect(of('SLUICE_HOST')).toEqual({ name: 'SLUICE_HOST', shown: '127.0.0.1', from: 'default' });
    expect(of('SLUICE_BLOBS_URL')).toEqual({ name: 'SLUICE_BLOBS_URL', shown: null, from: 'default' });
    expect(of('SLUICE_DATABASE_URL')?.shown).toBe('postgres://app:***@db:5432/sluice?…');
    expect(of('SLUICE_REDIS_URL')?.shown).toBe('redis://:***@cache:6379');
    expect(of('SLUICE_LOGS_URL')?.shown).toBe('clickhouses://writer:***@ch:8443/sluice');
    expect(of('SLUICE_SMTP_URL')?.shown).toBe('smtp://mailer:***@mail:587');
    expect(of('SLUICE_MASTER_KEY')?.shown).toBe('(hidden)');
    expect(JSON.stringify(settings)).not.toMatch(/s3cret|hunter2|l0gs|pa55|uT6K/);
  });

  it('a secret that is not set is not called hidden', () => {
    const hidden = effectiveSettings([], {}, '/nowhere').filter(({ shown }) => shown === '(hidden)');
    expect(hidden).toEqual([]);
  });
});

it.each([
  ['127.0.0.1', null, false],
  ['127.8.0.1', null, false],
  ['localhost', null, false],
  ['::1', null, false],
  ['0.0.0.0', null, true],
  ['::', null, true],
  ['10.0.0.5', null, true],
  ['127.evil.example', null, true],
  ['0.0.0.0', 'https://sluice.example.com', false],
])('listening on %s with the public address %s warns about its links: %s', (host, publicUrl, warns) => {
  expect(linksGoNowhere({ host, publicUrl })).toBe(warns);
});

describe('HEADERS_TO_METADATA', () => {
  const names = (text: string) => loadConfig([], { HEADERS_TO_METADATA: text }, '/nowhere').headersToMetadata;

  it('names headers in any letter case, each once; none by default', () => {
    expect(names('X-Team, x-site,X-TEAM')).toEqual(['x-team', 'x-site']);
    expect(loadConfig([], {}, '/nowhere').headersToMetadata).toEqual([]);
  });

  it('leaves out headers that carry credentials', () => {
    expect(names('authorization,x-team,Cookie,x-api-key,x-gateway-api-key,x-gateway-aws-secret-access-key')).toEqual([
      'x-team',
    ]);
  });

  it.each(['a b', 'x:y', 'x'.repeat(129), Array.from({ length: 17 }, (_, i) => `x-${i}`).join(',')])(
    'stops the start with %s',
    (text) => expect(() => names(text)).toThrow('allowed is a comma-separated list of at most 16 header names'),
  );
});

describe('OTEL_EXPORTER_OTLP_ENDPOINT', () => {
  const otlp = (env: Record<string, string>) => loadConfig([], env, '/nowhere').otlp;

  it('names the collector, to which the path is added; the address of traces is used as it is', () => {
    expect(otlp({})).toBeNull();
    const base = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318/' };
    expect(otlp(base)).toMatchObject({
      traces: 'http://collector:4318/v1/traces',
      protocol: 'http/protobuf',
      resource: { 'service.name': 'sluice' },
      sampler: 'parentbased_always_on',
      ratio: 1,
      latestConventions: false,
    });
    const own = { ...base, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://traces.example/otel' };
    expect(otlp({ ...own, OTEL_SEMCONV_STABILITY_OPT_IN: 'http,gen_ai_latest_experimental' })).toMatchObject({
      traces: 'https://traces.example/otel',
      latestConventions: true,
    });
  });

  it('takes headers and attributes as OpenTelemetry writes them, and shows no header', () => {
    const env = {
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318',
      OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Basic%20YQ==, x-org = a%2Cb ',
      OTEL_RESOURCE_ATTRIBUTES: 'team=search,service.name=ignored',
      OTEL_SERVICE_NAME: 'mine',
    };
    expect(otlp(env)?.headers.reveal()).toBe('{"authorization":"Basic YQ==","x-org":"a,b"}');
    expect(otlp(env)?.resource).toEqual({ team: 'search', 'service.name': 'mine' });
    expect(JSON.stringify([otlp(env), effectiveSettings([], env, '/nowhere')])).not.toContain('YQ==');
  });

  it.each([
    ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc'],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'collector:4317'],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'http://user:pass@collector:4318'],
    ['OTEL_TRACES_SAMPLER', 'sometimes'],
    ['OTEL_TRACES_SAMPLER_ARG', '1.5'],
    ['OTEL_EXPORTER_OTLP_HEADERS', 'no value'],
    ['OTEL_EXPORTER_OTLP_HEADERS', 'x=%0d%0aset-cookie'],
  ])('%s=%s stops the start', (name, value) => {
    expect(() => otlp({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318', [name]: value })).toThrow(
      new RegExp(`^${name} is`),
    );
  });

  it('is what makes the other variables count: those that other programs share stop nothing without it', () => {
    const shared = {
      OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
      OTEL_TRACES_SAMPLER: 'xray',
      OTEL_TRACES_EXPORTER: 'console',
    };
    expect(otlp(shared)).toBeNull();
    const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4317' };
    expect(() => otlp({ ...shared, ...endpoint })).toThrow('not grpc');
    expect(otlp({ ...shared, ...endpoint, OTEL_SDK_DISABLED: 'true' })).toBeNull();
  });
});
