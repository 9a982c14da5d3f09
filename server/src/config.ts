/**
 * Configuration: flags over environment over `sluice.config.json`, checked once, frozen. The only reader of
 * `process.env`. Wrong values stop the start, with one line for each: the setting, its value and what is allowed.
 */
import { promises as files, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve, sep } from 'node:path';
import { addressBytes, isLoopback } from './http/addresses.ts';
import { compileTrustedHosts } from './http/trusted-hosts.ts';
import { SluiceError } from './kernel/errors.ts';
import { nearest } from './kernel/nearest.ts';
import { Secret } from './kernel/secret.ts';
import {
  type AllowedVariable,
  type BlobsConfig,
  type blobsUrl,
  type ControlPlane,
  type LogsConfig,
  type MailAddress,
  type MetricsLabel,
  type Name,
  type OtlpConfig,
  type Role,
  SECRET_NAMES,
  type SmtpConfig,
  type Unpriced,
  VARIABLES,
  type Variable,
} from './settings.ts';

/** Thrown for wrong values; its message has a line for each. */
export class ConfigError extends Error {}

/** Takes note of a wrong value: all are named at once. */
type Note = (problem: string) => void;

/** What the operator allows organisations to read by secret references. */
export interface SecretsConfig {
  /** Ids of organisations that may borrow the identity of this server; `*`: all. */
  readonly identity: readonly string[];
  readonly variables: readonly AllowedVariable[];
  /** Holds a directory for each organisation; null: no files. */
  readonly dir: string | null;
  /** File of the token that a cluster gives this server. */
  readonly clusterToken: string;
}

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
  /** Where the records of requests are kept; null: in files. */
  readonly logs: LogsConfig | null;
  readonly smtp: SmtpConfig | null;
  /** The Sluice that this gateway answers pings of; null: it is registered nowhere. */
  readonly controlPlane: ControlPlane | null;
  readonly roles: ReadonlySet<Role>;
  readonly workers: number;
  readonly masterKey: string | null;
  readonly masterKeyFile: string;
  readonly trustedHosts: readonly string[];
  readonly trustedProxies: readonly string[];
  readonly headerAliases: readonly string[];
  /** Headers of requests that are copied into their metadata; lower case, no credentials. */
  readonly headersToMetadata: readonly string[];
  readonly logLevel: 'debug' | 'info' | 'warn' | 'error';
  readonly logFormat: 'pretty' | 'json';
  readonly accessLog: 'none' | 'errors' | 'all';
  /** Port of an own listener for metrics, on loopback; null: there is none. */
  readonly metricsPort: number | null;
  readonly metricsLabels: ReadonlySet<MetricsLabel>;
  /** Where telemetry goes by OTLP; null: nowhere. */
  readonly otlp: OtlpConfig | null;
  /** Bytes of records that may wait for a collector. */
  readonly telemetrySpool: number;
  readonly drainSeconds: number;
  /** Largest inference body in bytes. */
  readonly maxBodyBytes: number;
  /** Largest file of an upload in bytes. */
  readonly maxUploadBytes: number;
  /** Bytes that the files of one organisation may have together; 0: any. */
  readonly filesQuota: number;
  /** Requests of an export of logs with `all`. */
  readonly exportMaxRows: number;
  /** Requests of one batch that Sluice runs at the same time. */
  readonly batchConcurrency: number;
  /** Days that request logs are kept; 0: for ever. */
  readonly logDays: number;
  /** Bytes of the disk of a node that log files of all nodes may take. */
  readonly logsCacheBytes: number;
  /** `never`: no body of any request is kept, whatever organisations, workspaces and keys say. */
  readonly logBodies: 'allowed' | 'never';
  /** Longest kept part of one body, bytes. */
  readonly logBodyBytes: number;
  /** Days that bodies of requests are kept, at most as long as the logs. */
  readonly bodiesDays: number;
  /** Headers whose values are never kept, in lower case. */
  readonly maskedHeaders: readonly string[];
  /** Days that rows of audit logs are kept; 0: for ever. */
  readonly auditDays: number;
  /** Free bytes of the data directory's disk below which no upload is stored. */
  readonly diskReserve: number;
  /** Whether stored accounts of cloud providers may use the identity the server itself runs under. */
  readonly cloudIdentity: boolean;
  /** What secret references may read of this server itself. */
  readonly secrets: SecretsConfig;
  /** Tokens that organisations sign. */
  readonly jwt: {
    readonly enabled: boolean;
    /** Of tokens that name no scope, of organisations that name an issuer and an audience and no scopes themselves. */
    readonly defaultScopes: readonly string[];
  };
  /** Directories say in users which groups they are in, and what groups say of their members is ignored. */
  readonly membersByUser: boolean;
  /** Saved-only mode for every organisation. */
  readonly blockInlineConfig: boolean;
  /** Where the limit has no rule itself. */
  readonly unpriced: Unpriced;
  /** What becomes of requests while their records cannot be written, as on a full disk. */
  readonly unrecorded: 'refuse' | 'serve';
  /** Administration requests per minute and key. */
  readonly adminRequestsPerMinute: number;
}

/** The bucket of SLUICE_BLOBS_URL with what the standard AWS variables say. */
function readBlobs(
  url: NonNullable<ReturnType<typeof blobsUrl>> | null,
  env: NodeJS.ProcessEnv,
  wrong: Note,
): BlobsConfig | null {
  if (url === null) return null;
  const accessKeyId = env.AWS_ACCESS_KEY_ID || null;
  const secretAccessKey = env.AWS_SECRET_ACCESS_KEY || null;
  if ((accessKeyId === null) !== (secretAccessKey === null)) {
    const [missing, other] = ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY'];
    wrong(
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

/** `from` is undefined where its own value is wrong, which has been noted. */
function withSender(
  smtp: Omit<SmtpConfig, 'from'> | null,
  from: MailAddress | null | undefined,
  wrong: Note,
): SmtpConfig | null {
  if (smtp === null || from === undefined) return null;
  if (from !== null) return { ...smtp, from };
  wrong('SLUICE_MAIL_FROM is not set; SLUICE_SMTP_URL needs it: the address mails are sent from');
  return null;
}

const COLLECTORS = [
  'OTEL_EXPORTER_OTLP_ENDPOINT',
  'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
  'OTEL_EXPORTER_OTLP_METRICS_ENDPOINT',
] as const;

function wantsTelemetry(texts: (name: Name) => Given): boolean {
  return texts('OTEL_SDK_DISABLED').text !== 'true' && COLLECTORS.some((name) => texts(name).text !== null);
}

/** Without TLS the password and the records can be read on the way: this machine, and hosts that the operator trusts. */
function plainWhereTrusted(logs: LogsConfig | null, trustedHosts: readonly string[], wrong: Note): LogsConfig | null {
  if (logs === null || logs.secure) return logs;
  const colon = logs.host.lastIndexOf(':');
  const host = logs.host.slice(0, colon).replace(/^\[|\]$/g, '');
  const bytes = addressBytes(host);
  if (host === 'localhost' || (bytes !== null && isLoopback(bytes))) return logs;
  if (compileTrustedHosts(trustedHosts).host(host, Number(logs.host.slice(colon + 1)))) return logs;
  wrong(
    `SLUICE_LOGS_URL sends its password to ${host} without TLS; write clickhouses://, or add ${host} to SLUICE_TRUSTED_HOSTS`,
  );
  return null;
}

/** The collector of the `OTEL_…` settings; null where no address is set. */
function otlpOf(get: <N extends Name>(name: N) => Parsed<N> | null): OtlpConfig | null {
  const base = get('OTEL_EXPORTER_OTLP_ENDPOINT');
  const below = (path: string) => (base === null ? null : `${base.replace(/\/+$/, '')}${path}`);
  const wanted = (exporter: 'otlp' | 'none' | null, url: string | null) => (exporter === 'none' ? null : url);
  const traces = wanted(get('OTEL_TRACES_EXPORTER'), get('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT') ?? below('/v1/traces'));
  const metrics = wanted(
    get('OTEL_METRICS_EXPORTER'),
    get('OTEL_EXPORTER_OTLP_METRICS_ENDPOINT') ?? below('/v1/metrics'),
  );
  if (traces === null && metrics === null) return null;
  return {
    traces,
    metrics,
    metricsEveryMs: get('OTEL_METRIC_EXPORT_INTERVAL') ?? 60_000,
    headers: get('OTEL_EXPORTER_OTLP_HEADERS') ?? new Secret('{}'),
    protocol: get('OTEL_EXPORTER_OTLP_PROTOCOL') ?? 'http/protobuf',
    resource: { ...get('OTEL_RESOURCE_ATTRIBUTES'), 'service.name': get('OTEL_SERVICE_NAME') ?? 'sluice' },
    sampler: get('OTEL_TRACES_SAMPLER') ?? 'parentbased_always_on',
    ratio: get('OTEL_TRACES_SAMPLER_ARG') ?? 1,
    latestConventions: get('OTEL_SEMCONV_STABILITY_OPT_IN')?.has('gen_ai_latest_experimental') === true,
  };
}

/** Both or neither; undefined where one has a wrong value, which has been noted. */
function withClientAuth(
  url: string | null | undefined,
  clientAuth: Secret | null | undefined,
  wrong: Note,
): ControlPlane | null {
  if (url === undefined || clientAuth === undefined) return null;
  if (url !== null && clientAuth !== null) return { url, clientAuth };
  if (url !== null)
    wrong('SLUICE_CLIENT_AUTH is not set; SLUICE_CONTROL_PLANE_URL needs it: the client_auth of the deployment');
  if (clientAuth !== null)
    wrong('SLUICE_CONTROL_PLANE_URL is not set; SLUICE_CLIENT_AUTH needs it: the Sluice that made the client_auth');
  return null;
}

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

/** The setting that a name with a mistake was meant to be. The prefix that all have makes no name near another. */
function nearestSetting(wrong: string): Name | null {
  const bare = (name: string) => name.replaceAll('-', '_').replace(/^SLUICE_/i, '');
  const names = new Map((Object.keys(VARIABLES) as Name[]).map((name) => [bare(name), name]));
  return names.get(nearest(bare(wrong), names.keys()) ?? '') ?? null;
}

function readFlags(args: readonly string[], wrong: Note): Map<Name, string> {
  const out = new Map<Name, string>();
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] ?? '';
    const match = /^--([A-Za-z][A-Za-z_-]*)(?:=(.*))?$/s.exec(arg);
    const name = match && nameOfFlag(match[1] ?? '');
    if (!match || !name) {
      const meant = nearestSetting(match?.[1] ?? arg);
      wrong(
        `${arg}: unknown option; ${meant === null ? '' : `did you mean --${flagOf(meant)}? `}npm run sluice -- check lists all settings`,
      );
      // The next word is its value.
      if (match && match[2] === undefined && args[i + 1]?.startsWith('-') === false) i++;
      continue;
    }
    const value = match[2] ?? args[++i];
    if (value === undefined) wrong(`--${match[1]}: a value must follow; allowed is ${VARIABLES[name].allowed}`);
    else out.set(name, value);
  }
  return out;
}

function readFile(path: string, wrong: Note): Map<Name, string> {
  const out = new Map<Name, string>();
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
      wrong(`${path} cannot be read: ${(error as Error).message}`);
    return out;
  }
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    wrong(`${path} is not valid JSON; write an object such as {"SLUICE_PORT": 8787}`);
    return out;
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) {
    wrong(`${path} must hold a JSON object such as {"SLUICE_PORT": 8787}`);
    return out;
  }
  for (const [key, value] of Object.entries(parsed)) {
    const name = nameOfFlag(key);
    if (!name) {
      const meant = nearestSetting(key);
      wrong(
        `${path}: ${key} is not a setting; ${meant === null ? '' : `did you mean ${meant}? `}npm run sluice -- check lists all settings`,
      );
    } else if (['string', 'number', 'boolean'].includes(typeof value) || Array.isArray(value))
      out.set(name, Array.isArray(value) ? value.join(',') : String(value));
    else wrong(`${path}: ${key} must be a text, number, boolean or list of texts`);
  }
  return out;
}

interface Given {
  /** Null: neither set nor a default. */
  readonly text: string | null;
  readonly from: 'flag' | 'environment' | 'sluice.config.json' | 'default';
}

/** Where each setting comes from, before it is parsed. */
function readTexts(args: readonly string[], env: NodeJS.ProcessEnv, cwd: string, wrong: Note): (name: Name) => Given {
  const flags = readFlags(args, wrong);
  const file = readFile(resolve(cwd, 'sluice.config.json'), wrong);
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

type Parsed<N extends Name> = NonNullable<ReturnType<(typeof VARIABLES)[N]['parse']>>;

/** A setting's value; undefined where the text is not allowed, which is noted. */
function parseText<N extends Name>(name: N, { text, from }: Given, wrong: Note): Parsed<N> | null | undefined {
  if (text === null) return null;
  const definition = VARIABLES[name] as Variable<unknown>;
  let value: unknown;
  try {
    value = definition.parse(text);
  } catch (error) {
    const { message } = error as Error;
    wrong(message.startsWith(name) ? message : `${name}: ${message}`);
    return undefined;
  }
  if (value !== undefined) return value as Parsed<N>;
  const shown = SECRET_NAMES.has(name) ? '(hidden)' : JSON.stringify(text.slice(0, 100));
  // Kubernetes sets SLUICE_PORT in every container beside a Service that is named sluice.
  const link = from === 'environment' && name === 'SLUICE_PORT' && text.startsWith('tcp://');
  const advice = link ? '. Kubernetes has set it: say enableServiceLinks: false in the pod' : '';
  wrong(`${name} is ${shown}; allowed is ${definition.allowed}${advice}`);
  return undefined;
}

/** Where commands keep what belongs to their user, on a machine that need not run a server. */
export const userConfigFolder = (env: NodeJS.ProcessEnv = process.env): string =>
  join(env.XDG_CONFIG_HOME || join(homedir(), '.config'), 'sluice');

/** Reads and checks the whole configuration. Throws ConfigError with a line for each wrong value. */
export function loadConfig(args: readonly string[], env: NodeJS.ProcessEnv = process.env, cwd = process.cwd()): Config {
  const problems: string[] = [];
  const wrong: Note = (problem) => void problems.push(problem);
  const texts = readTexts(args, env, cwd, wrong);
  const telemetry = wantsTelemetry(texts);
  // Others read those variables, too: without a collector for us, a value that only they know stops nothing.
  const read = (name: Name) => (name.startsWith('OTEL_') && !telemetry ? null : parseText(name, texts(name), wrong));
  const parsed = new Map((Object.keys(VARIABLES) as Name[]).map((name) => [name, read(name)]));
  const get = <N extends Name>(name: N) => (parsed.get(name) ?? null) as Parsed<N> | null;
  const blobs = readBlobs(get('SLUICE_BLOBS_URL'), env, wrong);
  const smtp = withSender(
    get('SLUICE_SMTP_URL'),
    parsed.get('SLUICE_MAIL_FROM') as MailAddress | null | undefined,
    wrong,
  );
  const logs = plainWhereTrusted(get('SLUICE_LOGS_URL'), get('SLUICE_TRUSTED_HOSTS') ?? [], wrong);
  const controlPlane = withClientAuth(
    parsed.get('SLUICE_CONTROL_PLANE_URL') as string | null | undefined,
    parsed.get('SLUICE_CLIENT_AUTH') as Secret | null | undefined,
    wrong,
  );
  if (problems.length > 0) throw new ConfigError(problems.join('\n'));
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
    blobs,
    logs,
    smtp,
    controlPlane,
    roles: must(get('SLUICE_ROLES')),
    workers: must(get('SLUICE_WORKERS')),
    masterKey: get('SLUICE_MASTER_KEY'),
    masterKeyFile: get('SLUICE_MASTER_KEY_FILE') ?? resolve(dataDir, 'master.key'),
    trustedHosts: must(get('SLUICE_TRUSTED_HOSTS')),
    trustedProxies: must(get('SLUICE_TRUSTED_PROXIES')),
    headerAliases: must(get('SLUICE_HEADER_ALIASES')),
    headersToMetadata: must(get('HEADERS_TO_METADATA')),
    logLevel: must(get('SLUICE_LOG_LEVEL')),
    logFormat: must(get('SLUICE_LOG_FORMAT')),
    accessLog: must(get('SLUICE_ACCESS_LOG')),
    metricsPort: get('SLUICE_METRICS_PORT'),
    metricsLabels: must(get('SLUICE_METRICS_LABELS')),
    otlp: otlpOf(get),
    telemetrySpool: must(get('SLUICE_TELEMETRY_SPOOL')),
    drainSeconds: must(get('SLUICE_DRAIN_SECONDS')),
    maxBodyBytes: must(get('SLUICE_MAX_BODY_BYTES')),
    maxUploadBytes: must(get('SLUICE_MAX_UPLOAD_BYTES')),
    filesQuota: must(get('SLUICE_FILES_QUOTA')),
    exportMaxRows: must(get('SLUICE_EXPORT_MAX_ROWS')),
    batchConcurrency: must(get('SLUICE_BATCH_CONCURRENCY')),
    diskReserve: must(get('SLUICE_DISK_RESERVE')),
    logDays: must(get('SLUICE_LOG_DAYS')),
    logsCacheBytes: must(get('SLUICE_LOGS_CACHE_BYTES')),
    logBodies: must(get('SLUICE_LOG_BODIES')),
    logBodyBytes: must(get('SLUICE_LOG_BODY_BYTES')),
    bodiesDays: must(get('SLUICE_BODIES_DAYS')),
    maskedHeaders: must(get('ORGANISATION_HEADERS_TO_MASK')),
    auditDays: must(get('SLUICE_AUDIT_DAYS')),
    cloudIdentity: must(get('SLUICE_CLOUD_IDENTITY')),
    secrets: {
      identity: must(get('SLUICE_SECRETS_IDENTITY')),
      variables: must(get('SLUICE_SECRETS_ENV')),
      dir: get('SLUICE_SECRETS_DIR'),
      clusterToken: must(get('SLUICE_SECRETS_CLUSTER_TOKEN')),
    },
    jwt: { enabled: must(get('JWT_ENABLED')), defaultScopes: must(get('JWT_LOCAL_AUTH_DEFAULT_SCOPES')) },
    membersByUser: must(get('SCIM_MEMBERSHIP_USER_MODE')),
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
  const texts = readTexts(args, env, cwd, () => undefined);
  return (Object.keys(VARIABLES) as Name[]).map((name) => {
    const { text, from } = texts(name);
    // A default is the same everywhere, and says of a secret that it is not set.
    return { name, shown: text === null || from === 'default' ? text : shownText(name, text), from };
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
/** Set by Sluice for its own processes and tests, and by the commands of the guides. */
const OWN_VARIABLES =
  /^SLUICE_(?:URL|URL_B|API_KEY|ADMIN_KEY|WORKSPACE|WORKER_INDEX|BUILT_MAIN|TESTS|LONG_TESTS|WRITE_[A-Z_]+|FUZZ_SEED)$/;

/** A line for each variable that looks like a setting and is none. Others may have set it, so it stops nothing. */
export function unknownVariables(env: NodeJS.ProcessEnv = process.env): string[] {
  return Object.keys(env)
    .filter((name) => name.startsWith('SLUICE_') && !Object.hasOwn(VARIABLES, name))
    .filter((name) => !SERVICE_LINK.test(name) && !OWN_VARIABLES.test(name))
    .map((name) => {
      const meant = nearestSetting(name);
      return `the variable ${name} is not a setting and is ignored${meant === null ? '' : `; did you mean ${meant}?`}`;
    });
}

/** Where the operator keeps further authorities of certificates: processes beside this one trust them too. */
export function certificateVariables(env: NodeJS.ProcessEnv = process.env): Record<string, string> {
  const file = env.NODE_EXTRA_CA_CERTS;
  return file === undefined ? {} : { NODE_EXTRA_CA_CERTS: file };
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

/** Names of settings of Sluice itself, the master key among them: no secret reference reads one, whatever is allowed. */
const OWN_VARIABLE = /^(?:SLUICE|OTEL)_/;

/** A variable that the operator lets an organisation read; null for any other, and where it is not set. */
export function secretVariable({ variables }: SecretsConfig, organisationId: string, name: string): string | null {
  const isOwn = OWN_VARIABLE.test(name) && !name.startsWith('SLUICE_SECRET_');
  const allowed = variables.some(
    (one) =>
      (one.organisation === '*' || one.organisation === organisationId) &&
      (one.prefix ? name.startsWith(one.name) : name === one.name),
  );
  return allowed && !isOwn ? (process.env[name] ?? null) : null;
}

const MAX_SECRET_FILE = 64 * 1024;

/**
 * A file below the directory of an organisation; null where there is none. Links may lead to other places of that directory, as
 * those of mounted secrets do, and nowhere else. Throws `out_of_service` for a file that is too long.
 */
export async function readSecretFile(
  { dir }: SecretsConfig,
  organisationId: string,
  path: string,
): Promise<string | null> {
  if (dir === null) return null;
  try {
    const own = await files.realpath(resolve(dir, organisationId));
    const real = await files.realpath(resolve(own, path));
    if (!real.startsWith(own + sep)) return null;
    const { size } = await files.stat(real);
    if (size > MAX_SECRET_FILE) {
      throw new SluiceError('out_of_service', `A file with a secret must have at most ${MAX_SECRET_FILE} bytes.`);
    }
    return await files.readFile(real, 'utf8');
  } catch (error) {
    if (error instanceof SluiceError) throw error;
    return null;
  }
}

/** The token of the service account that a cluster gives this server, and renews in place. */
export async function readClusterToken({ clusterToken }: SecretsConfig): Promise<string> {
  try {
    return (await files.readFile(clusterToken, 'utf8')).slice(0, MAX_TOKEN_FILE).trim();
  } catch {
    throw new SluiceError(
      'out_of_service',
      'This server has no token of a service account: run it in a cluster, or name its file in SLUICE_SECRETS_CLUSTER_TOKEN.',
    );
  }
}
