/** Every setting: its default, what is allowed, and how its text is read. `config.ts` says where the text comes from. */
import { resolve } from 'node:path';
import { scopesOf } from './auth/scopes.ts';
import { SAMPLERS, type Sampler } from './exporter/sampler.ts';
import { parseTrustedProxies } from './http/client-address.ts';
import { parseTrustedHosts } from './http/trusted-hosts.ts';
import { isCredentialHeader, OWN_PREFIX, SIGN_IN_HEADERS, validHeaderName } from './kernel/header-names.ts';
import { Secret } from './kernel/secret.ts';
import { parseMasterKeys } from './store/keyring.ts';

export type Role = 'gateway' | 'admin' | 'jobs';

/** A label that metrics have only where it is asked for. */
export type MetricsLabel = 'workspace';

/** What a limit on cost does with a model of unknown price; rates in dollars per million tokens. */
export type Unpriced = 'serve' | 'deny' | { readonly input: number; readonly output: number };

/** An S3 bucket, or another service that speaks its protocol. */
export interface BlobsConfig {
  readonly bucket: string;
  /** Without slashes at its ends; may be empty. */
  readonly prefix: string;
  readonly region: string;
  /** Null: Amazon's own. */
  readonly endpoint: string | null;
  readonly pathStyle: boolean;
  /** From the standard AWS variables; null leaves it to the identity of the machine. */
  readonly credentials: {
    readonly accessKeyId: string;
    readonly secretAccessKey: string;
    readonly sessionToken: string | null;
  } | null;
}

/** A ClickHouse for the records of requests. */
export interface LogsConfig {
  /** Whether by TLS. */
  readonly secure: boolean;
  /** `host:port`, an IPv6 address in brackets. */
  readonly host: string;
  readonly user: string;
  readonly password: Secret;
  readonly database: string;
}

export interface SmtpConfig {
  readonly host: string;
  readonly port: number;
  /** TLS from the first byte. */
  readonly secure: boolean;
  readonly login: { readonly user: string; readonly password: Secret } | null;
  readonly from: MailAddress;
}

/** The Sluice that this gateway is registered with as a deployment. */
export interface ControlPlane {
  /** Without `/v1` and without a slash at its end. */
  readonly url: string;
  /** The `client_auth` of the deployment. */
  readonly clientAuth: Secret;
}

/** A collector of OpenTelemetry's data. */
export interface OtlpConfig {
  /** Address of the calls with spans; null: none are sent. */
  readonly traces: string | null;
  /** The same of metrics. */
  readonly metrics: string | null;
  /** Milliseconds from one call with metrics to the next. */
  readonly metricsEveryMs: number;
  /** A JSON object of texts. */
  readonly headers: Secret;
  readonly protocol: 'http/protobuf' | 'http/json';
  /** Attributes of the resource, `service.name` among them. */
  readonly resource: Readonly<Record<string, string>>;
  readonly sampler: Sampler;
  /** 0 to 1: for samplers that have one. */
  readonly ratio: number;
  /** The newest names of the conventions of generative AI. */
  readonly latestConventions: boolean;
}

/** A variable of the environment that an organisation may read as a secret. */
export interface AllowedVariable {
  /** Id; `*`: all. */
  readonly organisation: string;
  readonly name: string;
  /** All whose names begin so. */
  readonly prefix: boolean;
}

export interface MailAddress {
  /** May be empty. */
  readonly name: string;
  readonly address: string;
}

export interface Variable<T> {
  readonly fallback: string | null;
  /** What is allowed, for the error line. */
  readonly allowed: string;
  /** Undefined means the text is not allowed. An Error says more: its message names the entry that is wrong, and why. */
  parse(text: string): T | undefined;
}

const variable = <T>(v: Variable<T>): Variable<T> => v;
const isSignIn = (name: string) => SIGN_IN_HEADERS.some((known) => known === name);
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

const list = (text: string): string[] =>
  text
    .split(',')
    .map((entry) => entry.trim())
    .filter(Boolean);
const whole = (min: number, max: number) => (text: string) => {
  const value = Number(text);
  return /^\d{1,16}$/.test(text) && value >= min && value <= max ? value : undefined;
};
const url = (protocols: readonly string[]) => (text: string) =>
  URL.canParse(text) && protocols.includes(new URL(text).protocol) ? text.replace(/\/+$/, '') : undefined;
const oneOf =
  <T extends string>(...values: readonly T[]) =>
  (text: string) =>
    values.find((value) => value === text);

/** Bucket, prefix and how to reach them; undefined for anything that would be ignored. */
export function blobsUrl(
  text: string,
): (Omit<BlobsConfig, 'credentials' | 'region'> & { region: string | null }) | undefined {
  const parsed = URL.parse(text);
  if (parsed?.protocol !== 's3:' || parsed.username !== '' || parsed.password !== '' || parsed.hash !== '') return;
  const { hostname: bucket, port, searchParams } = parsed;
  const prefix = parsed.pathname.replace(/^\/+|\/+$/g, '');
  if (port !== '' || !/^[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]$/.test(bucket)) return;
  if (!/^(?:[A-Za-z0-9._-]+(?:\/[A-Za-z0-9._-]+)*)?$/.test(prefix) || prefix.length > 300) return;
  const names = [...searchParams.keys()];
  if (new Set(names).size < names.length) return;
  if (names.some((name) => !['region', 'endpoint', 'path_style'].includes(name))) return;
  const region = searchParams.get('region');
  const endpoint = searchParams.get('endpoint');
  const pathStyle = searchParams.get('path_style') ?? 'false';
  if (region !== null && !/^[a-z0-9-]{1,40}$/.test(region)) return;
  if (endpoint !== null && !isOrigin(endpoint)) return;
  if (pathStyle !== 'true' && pathStyle !== 'false') return;
  return { bucket, prefix, region, endpoint, pathStyle: pathStyle === 'true' };
}

function isOrigin(text: string): boolean {
  const parsed = URL.parse(text);
  if (parsed === null || !['http:', 'https:'].includes(parsed.protocol)) return false;
  return parsed.origin === text.replace(/\/$/, '');
}

/** `name=value,…` with percent-encoded values, as OpenTelemetry's variables have them; undefined where a part is none. */
function keyValues(text: string, name: RegExp): Readonly<Record<string, string>> | undefined {
  const out: Record<string, string> = {};
  for (const part of list(text)) {
    const [, key = '', value = ''] = /^([^=]+)=(.*)$/s.exec(part) ?? [];
    try {
      const decoded = decodeURIComponent(value.trim());
      if (!name.test(key.trim()) || /[\r\n\0]/.test(decoded)) return;
      out[key.trim()] = decoded;
    } catch {
      return;
    }
  }
  return out;
}

/** Without credentials, query and fragment: those of a collector are headers. */
function collectorUrl(text: string): string | undefined {
  const parsed = URL.parse(text);
  if (parsed === null || !['http:', 'https:'].includes(parsed.protocol)) return;
  return parsed.username + parsed.password + parsed.hash + parsed.search === '' ? parsed.href : undefined;
}

/** Undefined for anything that would be ignored. */
function smtpUrl(text: string): Omit<SmtpConfig, 'from'> | undefined {
  const parsed = URL.parse(text);
  if (parsed === null || !['smtp:', 'smtps:'].includes(parsed.protocol) || parsed.hostname === '') return;
  if (!['', '/'].includes(parsed.pathname) || parsed.search !== '' || parsed.hash !== '') return;
  if ((parsed.username === '') !== (parsed.password === '')) return;
  const secure = parsed.protocol === 'smtps:';
  const port = parsed.port === '' ? (secure ? 465 : 587) : Number(parsed.port);
  const host = parsed.hostname.replace(/^\[|\]$/g, '');
  try {
    const user = decodeURIComponent(parsed.username);
    const password = new Secret(decodeURIComponent(parsed.password));
    return { host, port, secure, login: user === '' ? null : { user, password } };
  } catch {
    return;
  }
}

/** Undefined for anything that would be ignored. */
function logsUrl(text: string): LogsConfig | undefined {
  const parsed = URL.parse(text);
  if (parsed === null || !['clickhouse:', 'clickhouses:'].includes(parsed.protocol) || parsed.hostname === '') return;
  if (parsed.search !== '' || parsed.hash !== '') return;
  const secure = parsed.protocol === 'clickhouses:';
  const path = /^\/?([A-Za-z_][A-Za-z0-9_]{0,62})?$/.exec(parsed.pathname);
  if (path === null) return;
  try {
    return {
      secure,
      host: `${parsed.hostname}:${parsed.port === '' ? (secure ? 8443 : 8123) : parsed.port}`,
      user: decodeURIComponent(parsed.username) || 'default',
      password: new Secret(decodeURIComponent(parsed.password)),
      database: path[1] ?? 'default',
    };
  } catch {
    return;
  }
}

/** `alerts@example.com` or `Sluice <alerts@example.com>`. */
function mailAddress(text: string): MailAddress | undefined {
  const match = /^(?:([^<>"\p{Cc}]{0,100}?) ?<([^<>\s]{3,254})>|([^<>\s]{3,254}))$/u.exec(text.trim());
  const address = match?.[2] ?? match?.[3] ?? '';
  return /^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+$/.test(address) ? { name: match?.[1] ?? '', address } : undefined;
}

export const VARIABLES = {
  SLUICE_HOST: variable({
    fallback: '127.0.0.1',
    allowed: 'a host name or address to listen on',
    parse: (text) => (/^[A-Za-z0-9.:-]{1,253}$/.test(text) ? text : undefined),
  }),
  SLUICE_PORT: variable({ fallback: '8787', allowed: 'a whole number from 0 to 65535', parse: whole(0, 65535) }),
  SLUICE_PUBLIC_URL: variable({
    fallback: null,
    allowed: 'an http or https URL without path',
    parse: (text) => {
      const value = url(['http:', 'https:'])(text);
      return value !== undefined && new URL(value).pathname === '/' ? new URL(value).origin : undefined;
    },
  }),
  SLUICE_DATA_DIR: variable({ fallback: './data', allowed: 'a directory', parse: (text) => resolve(text) }),
  SLUICE_DATABASE_URL: variable({
    fallback: null,
    allowed: 'a postgres:// URL',
    parse: url(['postgres:', 'postgresql:']),
  }),
  SLUICE_REDIS_URL: variable({
    fallback: null,
    allowed: 'a redis:// or rediss:// URL',
    parse: url(['redis:', 'rediss:']),
  }),
  SLUICE_BLOBS_URL: variable({
    fallback: null,
    allowed:
      's3://bucket/prefix?region=…&endpoint=https://…&path_style=true, without credentials: those are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY',
    parse: blobsUrl,
  }),
  SLUICE_LOGS_URL: variable({
    fallback: null,
    allowed:
      'clickhouses://user:password@host:port/database (or clickhouse:// without TLS), name and password percent-encoded',
    parse: logsUrl,
  }),
  SLUICE_SMTP_URL: variable({
    fallback: null,
    allowed: 'smtp://user:password@host:port or smtps://…, name and password percent-encoded, both or neither',
    parse: smtpUrl,
  }),
  SLUICE_MAIL_FROM: variable({
    fallback: null,
    allowed: 'an address such as alerts@example.com or Sluice <alerts@example.com>',
    parse: mailAddress,
  }),
  SLUICE_CONTROL_PLANE_URL: variable({
    fallback: null,
    allowed: 'an http or https address without path, such as https://sluice.example',
    parse: (text) => (isOrigin(text) ? text.replace(/\/$/, '') : undefined),
  }),
  SLUICE_CLIENT_AUTH: variable({
    fallback: null,
    allowed: 'the client_auth of a deployment: 16 to 200 letters, digits, _ and -',
    parse: (text) => (/^[\w-]{16,200}$/.test(text) ? new Secret(text) : undefined),
  }),
  SLUICE_ROLES: variable({
    fallback: 'gateway,admin,jobs',
    allowed: 'a comma-separated list of gateway, admin, jobs',
    parse: (text) => {
      const roles = list(text).map(oneOf<Role>('gateway', 'admin', 'jobs'));
      return roles.length === 0 || roles.includes(undefined)
        ? undefined
        : new Set(roles.filter((role) => role !== undefined));
    },
  }),
  SLUICE_WORKERS: variable({ fallback: '1', allowed: 'a whole number from 1 to 64', parse: whole(1, 64) }),
  SLUICE_MASTER_KEY: variable({
    fallback: null,
    allowed: 'one or more keys of at least 32 bytes in base64 or hexadecimal, separated by commas',
    parse: (text) => {
      parseMasterKeys('SLUICE_MASTER_KEY', text);
      return text;
    },
  }),
  SLUICE_MASTER_KEY_FILE: variable({ fallback: null, allowed: 'a file', parse: (text) => resolve(text) }),
  SLUICE_TRUSTED_HOSTS: variable({
    fallback: '',
    allowed: 'a comma-separated list of hosts, host:port or CIDRs',
    parse: parseTrustedHosts,
  }),
  SLUICE_TRUSTED_PROXIES: variable({
    fallback: '',
    allowed: 'a comma-separated list of addresses and CIDRs',
    parse: (text) => {
      const proxies = list(text);
      parseTrustedProxies(proxies);
      return proxies;
    },
  }),
  SLUICE_HEADER_ALIASES: variable({
    fallback: '',
    allowed: 'a comma-separated list of header prefixes such as x-portkey-',
    parse: (text) => {
      const aliases = list(text).map((entry) => entry.toLowerCase());
      return aliases.every((entry) => /^[a-z0-9][a-z0-9-]{0,62}-$/.test(entry) && entry !== 'x-gateway-')
        ? aliases
        : undefined;
    },
  }),
  SLUICE_LOG_LEVEL: variable({
    fallback: 'info',
    allowed: 'debug, info, warn or error',
    parse: oneOf('debug', 'info', 'warn', 'error'),
  }),
  SLUICE_LOG_FORMAT: variable({
    fallback: process.stdout.isTTY ? 'pretty' : 'json',
    allowed: 'pretty or json',
    parse: oneOf('pretty', 'json'),
  }),
  SLUICE_ACCESS_LOG: variable({
    fallback: 'errors',
    allowed: 'none, errors or all',
    parse: oneOf('none', 'errors', 'all'),
  }),
  SLUICE_METRICS_PORT: variable({ fallback: null, allowed: 'a whole number from 0 to 65535', parse: whole(0, 65535) }),
  SLUICE_METRICS_LABELS: variable({
    fallback: '',
    allowed: 'workspace, or nothing',
    parse: (text) => {
      const labels = list(text).map(oneOf<MetricsLabel>('workspace'));
      return labels.includes(undefined) ? undefined : new Set(labels.filter((label) => label !== undefined));
    },
  }),
  OTEL_EXPORTER_OTLP_ENDPOINT: variable({
    fallback: null,
    allowed: 'an http or https URL without credentials, such as http://localhost:4318',
    parse: collectorUrl,
  }),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: variable({
    fallback: null,
    allowed: 'an http or https URL without credentials, such as http://localhost:4318/v1/traces',
    parse: collectorUrl,
  }),
  OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: variable({
    fallback: null,
    allowed: 'an http or https URL without credentials, such as http://localhost:4318/v1/metrics',
    parse: collectorUrl,
  }),
  OTEL_SDK_DISABLED: variable({ fallback: 'false', allowed: 'true or false', parse: oneOf('true', 'false') }),
  OTEL_TRACES_EXPORTER: variable({ fallback: 'otlp', allowed: 'otlp or none', parse: oneOf('otlp', 'none') }),
  OTEL_METRICS_EXPORTER: variable({ fallback: 'otlp', allowed: 'otlp or none', parse: oneOf('otlp', 'none') }),
  OTEL_METRIC_EXPORT_INTERVAL: variable({
    fallback: '60000',
    allowed: 'a whole number of milliseconds from 1000 to 3600000',
    parse: whole(1_000, 3_600_000),
  }),
  OTEL_EXPORTER_OTLP_HEADERS: variable({
    fallback: '',
    allowed: 'a comma-separated list of name=value with percent-encoded values',
    parse: (text) => {
      const headers = keyValues(text, /^[A-Za-z0-9-]{1,64}$/);
      return headers === undefined ? undefined : new Secret(JSON.stringify(headers));
    },
  }),
  OTEL_EXPORTER_OTLP_PROTOCOL: variable({
    fallback: 'http/protobuf',
    allowed: 'http/protobuf or http/json (not grpc: collectors take HTTP on port 4318)',
    parse: oneOf('http/protobuf', 'http/json'),
  }),
  OTEL_SERVICE_NAME: variable({
    fallback: 'sluice',
    allowed: 'a name of at most 255 characters',
    parse: (text) => (text.length <= 255 ? text : undefined),
  }),
  OTEL_RESOURCE_ATTRIBUTES: variable({
    fallback: '',
    allowed: 'a comma-separated list of name=value with percent-encoded values',
    parse: (text) => keyValues(text, /^[^\s,=]{1,255}$/),
  }),
  OTEL_TRACES_SAMPLER: variable({
    fallback: 'parentbased_always_on',
    allowed: SAMPLERS.join(', '),
    parse: oneOf(...SAMPLERS),
  }),
  OTEL_TRACES_SAMPLER_ARG: variable({
    fallback: '1',
    allowed: 'a number from 0 to 1',
    parse: (text) => (/^(?:0|1|0?\.\d{1,15}|[01]\.0+)$/.test(text) ? Number(text) : undefined),
  }),
  OTEL_SEMCONV_STABILITY_OPT_IN: variable({
    fallback: '',
    allowed: 'a comma-separated list; gen_ai_latest_experimental is the entry that Sluice knows',
    parse: (text) => new Set(list(text)),
  }),
  SLUICE_TELEMETRY_SPOOL: variable({
    fallback: String(4 * 1024 ** 3),
    allowed: 'a whole number of bytes from 33554432 to 9007199254740991',
    parse: whole(32 * 1024 ** 2, Number.MAX_SAFE_INTEGER),
  }),
  SLUICE_DRAIN_SECONDS: variable({ fallback: '120', allowed: 'a whole number from 0 to 3600', parse: whole(0, 3600) }),
  SLUICE_MAX_BODY_BYTES: variable({
    fallback: String(32 * 1024 * 1024),
    allowed: 'a whole number of bytes from 1024 to 1073741824',
    parse: whole(1024, 1024 ** 3),
  }),
  SLUICE_MAX_UPLOAD_BYTES: variable({
    fallback: String(512 * 1024 * 1024),
    allowed: 'a whole number of bytes from 1024 to 9999999999',
    parse: whole(1024, 9_999_999_999),
  }),
  SLUICE_FILES_QUOTA: variable({
    fallback: String(10 * 1024 ** 3),
    allowed: 'a whole number of bytes from 0 (no quota) to 9007199254740991',
    parse: whole(0, Number.MAX_SAFE_INTEGER),
  }),
  SLUICE_EXPORT_MAX_ROWS: variable({
    fallback: '10000000',
    allowed: 'a whole number of requests from 1 to 1000000000',
    parse: whole(1, 1_000_000_000),
  }),
  SLUICE_BATCH_CONCURRENCY: variable({
    fallback: '50',
    allowed: 'a whole number from 1 to 1000',
    parse: whole(1, 1000),
  }),
  SLUICE_DISK_RESERVE: variable({
    fallback: String(512 * 1024 ** 2),
    allowed: 'a whole number of bytes from 0 (no reserve) to 9007199254740991',
    parse: whole(0, Number.MAX_SAFE_INTEGER),
  }),
  SLUICE_LOG_DAYS: variable({
    fallback: '0',
    allowed: 'a whole number of days from 1 to 36500, or 0 (for ever)',
    parse: whole(0, 36_500),
  }),
  SLUICE_AUDIT_DAYS: variable({
    fallback: '0',
    allowed: 'a whole number of days from 1 to 36500, or 0 (for ever)',
    parse: whole(0, 36_500),
  }),
  SLUICE_LOGS_CACHE_BYTES: variable({
    fallback: String(20 * 1024 ** 3),
    allowed: 'a whole number of bytes from 67108864 to 9007199254740991',
    parse: whole(64 * 1024 ** 2, Number.MAX_SAFE_INTEGER),
  }),
  SLUICE_LOG_BODIES: variable({ fallback: 'allowed', allowed: 'allowed or never', parse: oneOf('allowed', 'never') }),
  SLUICE_LOG_BODY_BYTES: variable({
    fallback: String(256 * 1024),
    allowed: 'a whole number of bytes from 1024 to 4194304',
    parse: whole(1024, 4 * 1024 ** 2),
  }),
  SLUICE_BODIES_DAYS: variable({
    fallback: '14',
    allowed: 'a whole number of days from 1 to 36500',
    parse: whole(1, 36_500),
  }),
  ORGANISATION_HEADERS_TO_MASK: variable({
    fallback: '',
    allowed: 'a comma-separated list of header names',
    parse: (text) => {
      const names = list(text).map((entry) => entry.toLowerCase());
      return names.every(validHeaderName) ? names : undefined;
    },
  }),
  SLUICE_ADMIN_REQUESTS_PER_MINUTE: variable({
    fallback: '300',
    allowed: 'a whole number from 1 to 1000000',
    parse: whole(1, 1_000_000),
  }),
  SLUICE_UNPRICED: variable({
    fallback: 'serve',
    allowed: 'serve, deny or <input>:<output> in dollars per million tokens, such as 2.5:10',
    parse: (text): Unpriced | undefined => {
      if (text === 'serve' || text === 'deny') return text;
      const [, input, output] = /^(\d{1,6}(?:\.\d{1,6})?):(\d{1,6}(?:\.\d{1,6})?)$/.exec(text) ?? [];
      return input === undefined || output === undefined ? undefined : { input: Number(input), output: Number(output) };
    },
  }),
  SLUICE_UNRECORDED: variable({
    fallback: 'refuse',
    allowed: 'refuse or serve',
    parse: oneOf('refuse', 'serve'),
  }),
  SLUICE_CLOUD_IDENTITY: variable({
    fallback: 'false',
    allowed: 'true or false',
    parse: (text) => (text === 'true' ? true : text === 'false' ? false : undefined),
  }),
  SLUICE_SECRETS_IDENTITY: variable({
    fallback: '',
    allowed: 'a comma-separated list of ids of organisations, or *',
    parse: (text): readonly string[] | undefined => {
      const ids = list(text).map((id) => id.toLowerCase());
      return ids.every((id) => id === '*' || UUID.test(id)) ? ids : undefined;
    },
  }),
  SLUICE_SECRETS_ENV: variable({
    fallback: '',
    allowed:
      'a comma-separated list of <organisation id>/<VARIABLE>, with * at the end of a name, or for all organisations',
    parse: (text): readonly AllowedVariable[] | undefined => {
      const entries = list(text).map((entry) => {
        const [, organisation, name, open] = /^([^/]+)\/([A-Za-z_][A-Za-z0-9_]{0,254})(\*)?$/.exec(entry) ?? [];
        if (organisation === undefined || name === undefined) return null;
        if (organisation !== '*' && !UUID.test(organisation)) return null;
        return { organisation: organisation.toLowerCase(), name, prefix: open !== undefined };
      });
      return entries.every((entry) => entry !== null) ? entries : undefined;
    },
  }),
  SLUICE_SECRETS_DIR: variable({
    fallback: null,
    allowed: 'a directory with one directory for each organisation, named by its id',
    parse: (text) => text,
  }),
  SLUICE_SECRETS_CLUSTER_TOKEN: variable({
    fallback: '/var/run/secrets/kubernetes.io/serviceaccount/token',
    allowed: 'a file with the token of the service account of this server',
    parse: (text) => text,
  }),
  HEADERS_TO_METADATA: variable({
    fallback: '',
    allowed: 'a comma-separated list of at most 16 header names such as x-team',
    parse: (text) => {
      const names = list(text).map((entry) => entry.toLowerCase());
      if (names.length > 16 || !names.every((name) => /^[a-z0-9!#$%&'*+.^_`|~-]{1,128}$/.test(name))) return undefined;
      // Metadata is shown in records and sent to webhooks: no credential may be in it.
      const secret = (name: string) => isCredentialHeader(name) || isSignIn(name) || name.startsWith(OWN_PREFIX);
      return [...new Set(names)].filter((name) => !secret(name));
    },
  }),
  JWT_ENABLED: variable({
    fallback: 'ON',
    allowed: 'ON or OFF',
    parse: (text) => ({ ON: true, TRUE: true, OFF: false, FALSE: false })[text.toUpperCase()],
  }),
  JWT_LOCAL_AUTH_DEFAULT_SCOPES: variable({
    fallback: '',
    allowed: 'a comma-separated list of scopes that workspace-service keys may have, such as completions.write',
    parse: (text): readonly string[] | undefined => {
      const scopes = list(text.replaceAll(' ', ','));
      return scopes.every((scope) => scopesOf('token').has(scope)) ? scopes : undefined;
    },
  }),
  SCIM_MEMBERSHIP_USER_MODE: variable({
    fallback: 'OFF',
    allowed: 'ON or OFF',
    parse: (text) => ({ ON: true, TRUE: true, OFF: false, FALSE: false })[text.toUpperCase()],
  }),
  BLOCK_INLINE_CONFIG: variable({
    fallback: 'false',
    allowed: 'true or false',
    parse: (text) => (text === 'true' ? true : text === 'false' ? false : undefined),
  }),
} as const;

/** The name of a setting, as its variable has it. */
export type Name = keyof typeof VARIABLES;

/** Values that must not appear in an error line. */
export const SECRET_NAMES = new Set<Name>([
  'SLUICE_MASTER_KEY',
  'SLUICE_DATABASE_URL',
  'SLUICE_REDIS_URL',
  'SLUICE_BLOBS_URL',
  'SLUICE_LOGS_URL',
  'SLUICE_SMTP_URL',
  'SLUICE_CLIENT_AUTH',
  'OTEL_EXPORTER_OTLP_HEADERS',
]);
