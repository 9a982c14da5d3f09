/**
 * Configuration: flags over environment over `sluice.config.json`, checked once, frozen. The only reader of
 * `process.env`. A wrong value stops the start with one line that names the variable, the value and what is allowed.
 */
import { promises as files, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { SluiceError } from './kernel/errors.ts';
import { nearest } from './kernel/nearest.ts';
import { Secret } from './kernel/secret.ts';

/** Thrown for a wrong value; its message is the one line to print. */
export class ConfigError extends Error {}

export type Role = 'gateway' | 'admin' | 'jobs';

export interface Config {
  readonly host: string;
  readonly port: number;
  /** Without trailing slash; null until the port is known. */
  readonly publicUrl: string | null;
  readonly dataDir: string;
  readonly databaseUrl: string | null;
  readonly redisUrl: string | null;
  /** Object store for files; null keeps them in `dataDir`. */
  readonly blobs: BlobsConfig | null;
  /** Mail server; null: no mail is sent. */
  readonly smtp: SmtpConfig | null;
  readonly roles: ReadonlySet<Role>;
  readonly workers: number;
  readonly masterKey: string | null;
  readonly masterKeyFile: string;
  readonly trustedHosts: readonly string[];
  readonly trustedProxies: readonly string[];
  readonly headerAliases: readonly string[];
  readonly logLevel: 'debug' | 'info' | 'warn' | 'error';
  readonly logFormat: 'pretty' | 'json';
  readonly accessLog: 'none' | 'errors' | 'all';
  readonly drainSeconds: number;
  /** Largest inference body in bytes. */
  readonly maxBodyBytes: number;
  /** Largest file of an upload in bytes. */
  readonly maxUploadBytes: number;
  /** Bytes that the files of one organisation may have together; 0: any. */
  readonly filesQuota: number;
  /** Requests of one batch that Sluice runs at the same time. */
  readonly batchConcurrency: number;
  /** Days that request logs are kept; 0: for ever. */
  readonly logDays: number;
  /** Days that rows of audit logs are kept; 0: for ever. */
  readonly auditDays: number;
  /** Free bytes of the data directory's disk below which no upload is stored. */
  readonly diskReserve: number;
  /** Whether stored accounts of cloud providers may use the identity the server itself runs under. */
  readonly cloudIdentity: boolean;
  /** Saved-only mode for every organisation. */
  readonly blockInlineConfig: boolean;
  /** What a limit on cost does with a model of unknown price, where the limit has no rule of its own; rates in dollars per million tokens. */
  readonly unpriced: 'serve' | 'deny' | { readonly input: number; readonly output: number };
  /** What becomes of requests while their records cannot be written, as on a full disk. */
  readonly unrecorded: 'refuse' | 'serve';
  /** Administration requests per minute and key. */
  readonly adminRequestsPerMinute: number;
}

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

export interface SmtpConfig {
  readonly host: string;
  readonly port: number;
  /** TLS from the first byte. */
  readonly secure: boolean;
  readonly login: { readonly user: string; readonly password: Secret } | null;
  readonly from: MailAddress;
}

interface MailAddress {
  /** May be empty. */
  readonly name: string;
  readonly address: string;
}

interface Variable<T> {
  readonly fallback: string | null;
  /** What is allowed, for the error line. */
  readonly allowed: string;
  /** Undefined means the text is not allowed. */
  parse(text: string): T | undefined;
}

const variable = <T>(v: Variable<T>): Variable<T> => v;
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
function blobsUrl(text: string): (Omit<BlobsConfig, 'credentials' | 'region'> & { region: string | null }) | undefined {
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

/** The bucket of SLUICE_BLOBS_URL with what the standard AWS variables say. */
function readBlobs(url: NonNullable<ReturnType<typeof blobsUrl>> | null, env: NodeJS.ProcessEnv): BlobsConfig | null {
  if (url === null) return null;
  const accessKeyId = env.AWS_ACCESS_KEY_ID || null;
  const secretAccessKey = env.AWS_SECRET_ACCESS_KEY || null;
  if ((accessKeyId === null) !== (secretAccessKey === null)) {
    const [missing, other] = ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY'];
    throw new ConfigError(
      `${accessKeyId === null ? missing : other} is not set; SLUICE_BLOBS_URL needs it beside ${accessKeyId === null ? other : missing}`,
    );
  }
  return {
    ...url,
    region: url.region ?? (env.AWS_REGION || env.AWS_DEFAULT_REGION || 'us-east-1'),
    credentials:
      accessKeyId === null || secretAccessKey === null
        ? null
        : { accessKeyId, secretAccessKey, sessionToken: env.AWS_SESSION_TOKEN || null },
  };
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

/** `alerts@example.com` or `Sluice <alerts@example.com>`. */
function mailAddress(text: string): MailAddress | undefined {
  const match = /^(?:([^<>"\p{Cc}]{0,100}?) ?<([^<>\s]{3,254})>|([^<>\s]{3,254}))$/u.exec(text.trim());
  const address = match?.[2] ?? match?.[3] ?? '';
  return /^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+$/.test(address) ? { name: match?.[1] ?? '', address } : undefined;
}

const VARIABLES = {
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
    parse: (text) => (text.trim() === '' ? undefined : text),
  }),
  SLUICE_MASTER_KEY_FILE: variable({ fallback: null, allowed: 'a file', parse: (text) => resolve(text) }),
  SLUICE_TRUSTED_HOSTS: variable({
    fallback: '',
    allowed: 'a comma-separated list of hosts, host:port or CIDRs',
    parse: list,
  }),
  SLUICE_TRUSTED_PROXIES: variable({ fallback: '', allowed: 'a comma-separated list of CIDRs', parse: list }),
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
  SLUICE_ADMIN_REQUESTS_PER_MINUTE: variable({
    fallback: '300',
    allowed: 'a whole number from 1 to 1000000',
    parse: whole(1, 1_000_000),
  }),
  SLUICE_UNPRICED: variable({
    fallback: 'serve',
    allowed: 'serve, deny or <input>:<output> in dollars per million tokens, such as 2.5:10',
    parse: (text): Config['unpriced'] | undefined => {
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
  BLOCK_INLINE_CONFIG: variable({
    fallback: 'false',
    allowed: 'true or false',
    parse: (text) => (text === 'true' ? true : text === 'false' ? false : undefined),
  }),
} as const;

function withSender(smtp: Omit<SmtpConfig, 'from'> | null, from: MailAddress | null): SmtpConfig | null {
  if (smtp === null) return null;
  if (from === null)
    throw new ConfigError('SLUICE_MAIL_FROM is not set; SLUICE_SMTP_URL needs it: the address mails are sent from');
  return { ...smtp, from };
}

type Name = keyof typeof VARIABLES;

/** `--port 1`, `--port=1`, `--sluice-port=1` and `--SLUICE_PORT=1` all name SLUICE_PORT. */
function nameOfFlag(flag: string): Name | undefined {
  const upper = flag.replaceAll('-', '_').toUpperCase();
  return [upper, `SLUICE_${upper}`].find((name): name is Name => Object.hasOwn(VARIABLES, name));
}

/** `SLUICE_DATA_DIR` is `--data-dir`. */
function flagOf(name: string): string {
  return name
    .toLowerCase()
    .replace(/^sluice_/, '')
    .replaceAll('_', '-');
}

function readFlags(args: readonly string[]): Map<Name, string> {
  const out = new Map<Name, string>();
  for (let i = 0; i < args.length; i++) {
    const match = /^--([A-Za-z][A-Za-z_-]*)(?:=(.*))?$/s.exec(args[i] ?? '');
    const name = match && nameOfFlag(match[1] ?? '');
    if (!match || !name) {
      const written = match?.[1] ?? args[i] ?? '';
      const upper = written.replaceAll('-', '_').toUpperCase();
      const meant = nearest(upper.startsWith('SLUICE_') ? upper : `SLUICE_${upper}`, Object.keys(VARIABLES));
      throw new ConfigError(
        `${args[i]}: unknown option${meant === null ? '' : `; did you mean --${flagOf(meant)}?`}${meant === null ? ';' : ''} npm run sluice -- check lists all settings`,
      );
    }
    const value = match[2] ?? args[++i];
    if (value === undefined)
      throw new ConfigError(`--${match[1]}: a value must follow; allowed is ${VARIABLES[name].allowed}`);
    out.set(name, value);
  }
  return out;
}

function readFile(path: string): Map<Name, string> {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return new Map();
    throw new ConfigError(`${path} cannot be read: ${(error as Error).message}`);
  }
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    throw new ConfigError(`${path} is not valid JSON; write an object such as {"SLUICE_PORT": 8787}`);
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) {
    throw new ConfigError(`${path} must hold a JSON object such as {"SLUICE_PORT": 8787}`);
  }
  const out = new Map<Name, string>();
  for (const [key, value] of Object.entries(parsed)) {
    const name = nameOfFlag(key);
    if (!name) {
      const meant = nearest(key, Object.keys(VARIABLES));
      throw new ConfigError(
        `${path}: ${key} is not a setting; ${meant === null ? '' : `did you mean ${meant}? `}npm run sluice -- check lists all settings`,
      );
    }
    if (!['string', 'number', 'boolean'].includes(typeof value) && !Array.isArray(value)) {
      throw new ConfigError(`${path}: ${key} must be a text, number, boolean or list of texts`);
    }
    out.set(name, Array.isArray(value) ? value.join(',') : String(value));
  }
  return out;
}

/** Values that must not appear in an error line. */
const SECRET_NAMES = new Set<Name>([
  'SLUICE_MASTER_KEY',
  'SLUICE_DATABASE_URL',
  'SLUICE_REDIS_URL',
  'SLUICE_BLOBS_URL',
  'SLUICE_SMTP_URL',
]);

interface Given {
  /** Null: neither set nor a default. */
  readonly text: string | null;
  readonly from: 'flag' | 'environment' | 'sluice.config.json' | 'default';
}

/** Where each setting comes from, before it is parsed. */
function readTexts(args: readonly string[], env: NodeJS.ProcessEnv, cwd: string): (name: Name) => Given {
  const flags = readFlags(args);
  const file = readFile(resolve(cwd, 'sluice.config.json'));
  return (name) => {
    const flag = flags.get(name);
    if (flag !== undefined) return { text: flag, from: 'flag' };
    const variable = env[name];
    if (variable !== undefined && variable !== '') return { text: variable, from: 'environment' };
    const text = file.get(name);
    return text === undefined
      ? { text: VARIABLES[name].fallback, from: 'default' }
      : { text, from: 'sluice.config.json' };
  };
}

/** Reads and checks the whole configuration. Throws ConfigError. */
export function loadConfig(args: readonly string[], env: NodeJS.ProcessEnv = process.env, cwd = process.cwd()): Config {
  const texts = readTexts(args, env, cwd);
  const get = <N extends Name>(name: N): NonNullable<ReturnType<(typeof VARIABLES)[N]['parse']>> | null => {
    const definition = VARIABLES[name] as Variable<unknown>;
    const { text, from } = texts(name);
    if (text === null) return null;
    const value = definition.parse(text);
    if (value === undefined) {
      const shown = SECRET_NAMES.has(name) ? '(hidden)' : JSON.stringify(text.slice(0, 100));
      // Kubernetes sets SLUICE_PORT in every container beside a Service that is named sluice.
      const link = from === 'environment' && name === 'SLUICE_PORT' && text.startsWith('tcp://');
      const advice = link ? '. Kubernetes has set it: say enableServiceLinks: false in the pod' : '';
      throw new ConfigError(`${name} is ${shown}; allowed is ${definition.allowed}${advice}`);
    }
    return value as NonNullable<ReturnType<(typeof VARIABLES)[N]['parse']>>;
  };
  const must = <T>(value: T | null): T => {
    if (value === null) throw new ConfigError('a setting without default is missing');
    return value;
  };
  const dataDir = must(get('SLUICE_DATA_DIR'));
  return Object.freeze({
    host: must(get('SLUICE_HOST')),
    port: must(get('SLUICE_PORT')),
    publicUrl: get('SLUICE_PUBLIC_URL'),
    dataDir,
    databaseUrl: get('SLUICE_DATABASE_URL'),
    redisUrl: get('SLUICE_REDIS_URL'),
    blobs: readBlobs(get('SLUICE_BLOBS_URL'), env),
    smtp: withSender(get('SLUICE_SMTP_URL'), get('SLUICE_MAIL_FROM')),
    roles: must(get('SLUICE_ROLES')),
    workers: must(get('SLUICE_WORKERS')),
    masterKey: get('SLUICE_MASTER_KEY'),
    masterKeyFile: get('SLUICE_MASTER_KEY_FILE') ?? resolve(dataDir, 'master.key'),
    trustedHosts: must(get('SLUICE_TRUSTED_HOSTS')),
    trustedProxies: must(get('SLUICE_TRUSTED_PROXIES')),
    headerAliases: must(get('SLUICE_HEADER_ALIASES')),
    logLevel: must(get('SLUICE_LOG_LEVEL')),
    logFormat: must(get('SLUICE_LOG_FORMAT')),
    accessLog: must(get('SLUICE_ACCESS_LOG')),
    drainSeconds: must(get('SLUICE_DRAIN_SECONDS')),
    maxBodyBytes: must(get('SLUICE_MAX_BODY_BYTES')),
    maxUploadBytes: must(get('SLUICE_MAX_UPLOAD_BYTES')),
    filesQuota: must(get('SLUICE_FILES_QUOTA')),
    batchConcurrency: must(get('SLUICE_BATCH_CONCURRENCY')),
    diskReserve: must(get('SLUICE_DISK_RESERVE')),
    logDays: must(get('SLUICE_LOG_DAYS')),
    auditDays: must(get('SLUICE_AUDIT_DAYS')),
    cloudIdentity: must(get('SLUICE_CLOUD_IDENTITY')),
    blockInlineConfig: must(get('BLOCK_INLINE_CONFIG')),
    unpriced: must(get('SLUICE_UNPRICED')),
    unrecorded: must(get('SLUICE_UNRECORDED')),
    adminRequestsPerMinute: must(get('SLUICE_ADMIN_REQUESTS_PER_MINUTE')),
  });
}

/** One setting as it is in force, for people: secrets are hidden. */
export interface EffectiveSetting {
  readonly name: string;
  /** Null: not set, and without a default. */
  readonly shown: string | null;
  readonly from: Given['from'];
}

/** All settings as `loadConfig` reads them. Throws ConfigError as it does. */
export function effectiveSettings(
  args: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
  cwd = process.cwd(),
): EffectiveSetting[] {
  loadConfig(args, env, cwd);
  const texts = readTexts(args, env, cwd);
  return (Object.keys(VARIABLES) as Name[]).map((name) => {
    const { text, from } = texts(name);
    return { name, shown: text === null ? null : shownText(name, text), from };
  });
}

/** Of an address all but its password; of another secret nothing. */
function shownText(name: Name, text: string): string {
  if (!SECRET_NAMES.has(name)) return text;
  const parsed = URL.parse(text);
  if (name === 'SLUICE_MASTER_KEY' || parsed === null) return '(hidden)';
  const user =
    parsed.username + parsed.password === '' ? '' : `${parsed.username}${parsed.password === '' ? '' : ':***'}@`;
  return `${parsed.protocol}//${user}${parsed.host}${parsed.pathname}${parsed.search === '' ? '' : '?…'}`;
}

/** What Kubernetes sets in every container beside a Service that is named sluice. */
const SERVICE_LINK = /^SLUICE_(?:SERVICE_(?:HOST|PORT)|PORT_\d+_(?:TCP|UDP|SCTP))/;
/** Set by Sluice for its own processes and tests. */
const OWN_VARIABLES = /^SLUICE_(?:WORKER_INDEX|TESTS|LONG_TESTS|WRITE_[A-Z_]+|FUZZ_SEED)$/;

/** A line for each variable that looks like a setting and is none. Others may have set it, so it stops nothing. */
export function unknownVariables(env: NodeJS.ProcessEnv = process.env): string[] {
  return Object.keys(env)
    .filter((name) => name.startsWith('SLUICE_') && !Object.hasOwn(VARIABLES, name))
    .filter((name) => !SERVICE_LINK.test(name) && !OWN_VARIABLES.test(name))
    .map((name) => {
      const meant = nearest(name, Object.keys(VARIABLES));
      return `the variable ${name} is not a setting and is ignored${meant === null ? '' : `; did you mean ${meant}?`}`;
    });
}

/** Number of this process among those that share the port, set by the primary process; 1 when it is alone. */
export function workerIndex(env: NodeJS.ProcessEnv = process.env): number {
  return Number(env.SLUICE_WORKER_INDEX ?? 1);
}

/** Variables by which cloud platforms name an identity; nothing else of the environment may be asked for. */
const CLOUD_VARIABLE = /^(?:AWS|AZURE|GOOGLE|IDENTITY|MSI|ECS_CONTAINER)_[A-Z0-9_]{1,80}$/;

/** Value of a variable by which the platform names the identity the server runs under. */
export function cloudVariable(name: string): string | undefined {
  return CLOUD_VARIABLE.test(name) ? process.env[name] : undefined;
}

/** Whether such a variable names this file: others are no tokens of the platform's. */
function isCloudFile(path: string): boolean {
  return Object.entries(process.env).some(([name, value]) => CLOUD_VARIABLE.test(name) && value === path);
}

const MAX_TOKEN_FILE = 64 * 1024;

/** A token file of the platform: short, and renewed in place. */
export async function readCloudFile(path: string): Promise<string> {
  if (!isCloudFile(path)) throw new SluiceError('forbidden', 'No variable of the cloud platform names this file.');
  const text = await files.readFile(path, 'utf8');
  if (text.length > MAX_TOKEN_FILE) throw new SluiceError('internal', 'A token file of the platform is too long.');
  return text;
}
