/**
 * What is secret of a log destination: its address, whose path lets callers in, the values of its headers, and its keys. They are
 * sealed together, and shown as masks.
 */
import { Secret } from '../../kernel/secret.ts';
import type { TenantContext } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { SealPlace, Vault } from '../../store/vault.ts';
import type { Target } from '../../telemetry/log-destination.ts';
import { type CheckHost, maskOf, REFUSED_MASK } from '../body-fields.ts';
import { refuse } from '../common.ts';
import type { TargetBody } from './schema.ts';

export type Destination = Row<'log_destinations'>;
type Kind = Destination['kind'];

/** By name; those of headers are in `headers`. */
interface Secrets {
  readonly url?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly access_key_id?: string;
  readonly secret_access_key?: string;
  readonly session_token?: string;
}

type Given = Readonly<Record<string, unknown>>;

const MASK = /\*{7}/;

const placeOf = (id: string): SealPlace => ({ table: 'log_destinations', column: 'secrets', row: id });

async function openSecrets(vault: Pick<Vault, 'open'>, tenant: TenantContext, row: Destination): Promise<Secrets> {
  return JSON.parse((await vault.open(tenant, placeOf(row.id), row.secrets)).reveal()) as Secrets;
}

const shownUrl = (sealed: string, url: string): string => `${new URL(url).origin}/${maskOf(sealed, 'url')}`;

/** The settings as they are answered. */
export async function presentTarget(
  vault: Pick<Vault, 'open'>,
  tenant: TenantContext,
  row: Destination,
): Promise<Record<string, unknown>> {
  const { url, headers, ...keys } = await openSecrets(vault, tenant, row);
  const masked = (name: string) => maskOf(row.secrets, name);
  return {
    ...(url === undefined ? {} : { url: shownUrl(row.secrets, url) }),
    ...(headers === undefined
      ? {}
      : { headers: Object.fromEntries(Object.keys(headers).map((name) => [name, masked(`headers.${name}`)])) }),
    ...row.settings,
    ...Object.fromEntries(Object.keys(keys).map((name) => [name, masked(name)])),
  };
}

/**
 * Settings and secrets of a body as they are stored; what is absent or a mask stays as it was. Throws 400 for other masks, for an
 * address that no call may go to, and where kept secrets would be sent to another address than before.
 */
export async function storedTarget(
  {
    vault,
    tenant,
    checkHost,
  }: { readonly vault: Vault; readonly tenant: TenantContext; readonly checkHost: CheckHost },
  id: string,
  kind: Kind,
  given: NonNullable<TargetBody[keyof TargetBody]>,
  former: Destination | null,
): Promise<Pick<Destination, 'settings' | 'secrets'>> {
  const before: Secrets = former === null ? {} : await openSecrets(vault, tenant, former);
  const {
    url,
    headers,
    access_key_id: keyId,
    secret_access_key: key,
    session_token: token,
    ...settings
  } = given as Given;
  const seal = async (secrets: Secrets) => ({
    settings,
    secrets: await vault.seal(tenant, placeOf(id), new Secret(JSON.stringify(secrets))),
  });
  if (kind === 's3') {
    const endpoint = settings.endpoint;
    if (typeof endpoint === 'string') checkUrl(endpoint, 's3.endpoint', checkHost);
    const keptKey = key === undefined ? before.secret_access_key : key;
    const keptId = keyId ?? before.access_key_id;
    if (typeof keptId !== 'string') throw refuse('s3.access_key_id', 'is required');
    if (typeof keptKey !== 'string') throw refuse('s3.secret_access_key', 'is required');
    if (settings.format === 'parquet' && settings.compression !== undefined) {
      throw refuse('s3.compression', 'is for the format jsonl: leave it out, Parquet is compressed by itself');
    }
    const moved = former !== null && (former.settings.endpoint ?? null) !== (endpoint ?? null);
    if (key === undefined && moved) throw refuse('s3.secret_access_key', MOVED);
    // A token belongs to its key.
    const keptToken = key === undefined ? (token ?? before.session_token) : token;
    return seal({
      access_key_id: keptId,
      secret_access_key: keptKey,
      ...(typeof keptToken === 'string' ? { session_token: keptToken } : {}),
    });
  }
  const address = keptUrl(url, before.url, former, `${kind}.url`, checkHost);
  const values = keptHeaders(headers as Secrets['headers'], before.headers, former, kind);
  const keeps = values.kept && Object.keys(values.headers).length > 0;
  if (keeps && address !== before.url) throw refuse(`${kind}.headers`, MOVED);
  return seal({ url: address, headers: values.headers });
}

const MOVED = 'must be sent again: the address is another one than before';

function checkUrl(url: string, param: string, checkHost: CheckHost): void {
  const problem = checkHost(url);
  if (problem !== null) throw refuse(param, problem);
}

function keptUrl(
  url: unknown,
  before: string | undefined,
  former: Destination | null,
  param: string,
  checkHost: CheckHost,
): string {
  if (url === undefined) {
    if (before === undefined) throw refuse(param, 'is required');
    return before;
  }
  const text = String(url);
  if (former !== null && before !== undefined && text === shownUrl(former.secrets, before)) return before;
  if (MASK.test(text)) throw refuse(param, REFUSED_MASK);
  checkUrl(text, param, checkHost);
  return text;
}

function keptHeaders(
  headers: Secrets['headers'],
  before: Secrets['headers'] = {},
  former: Destination | null,
  kind: Kind,
): { readonly headers: Readonly<Record<string, string>>; readonly kept: boolean } {
  if (headers === undefined) return { headers: before, kept: true };
  let kept = false;
  const out: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    const old = Object.hasOwn(before, name) ? before[name] : undefined;
    if (former !== null && old !== undefined && value === maskOf(former.secrets, `headers.${name}`)) {
      out[name] = old;
      kept = true;
    } else if (MASK.test(value)) throw refuse(`${kind}.headers.${name}`, REFUSED_MASK);
    else out[name] = value;
  }
  return { headers: out, kept };
}

/** Where it sends, with its secrets. Throws SluiceError('unavailable') when they do not open. */
export async function openTarget(vault: Pick<Vault, 'open'>, tenant: TenantContext, row: Destination): Promise<Target> {
  const secrets = await openSecrets(vault, tenant, row);
  const settings = row.settings as Record<string, string & boolean & number & Record<string, string>>;
  const { url = '', headers = {} } = secrets;
  const lower = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  switch (row.kind) {
    case 'otlp':
      return {
        kind: 'otlp',
        url,
        headers: lower,
        protocol: (settings.protocol as 'http/json' | undefined) ?? 'http/protobuf',
        conventions: (settings.conventions as 'latest' | undefined) ?? 'v1.41',
        resource: settings.resource ?? {},
      };
    case 'webhook':
      return { kind: 'webhook', url, headers: lower };
    case 's3': {
      const endpoint = (settings.endpoint as string | undefined) ?? null;
      const prefix = ((settings.prefix as string | undefined) ?? '').replace(/\/+$/, '');
      return {
        kind: 's3',
        endpoint: endpoint?.replace(/\/+$/, '') ?? null,
        pathStyle: (settings.path_style as boolean | undefined) ?? endpoint !== null,
        bucket: settings.bucket ?? '',
        region: settings.region ?? '',
        prefix: prefix === '' ? '' : `${prefix}/`,
        accessKeyId: secrets.access_key_id ?? '',
        secretAccessKey: secrets.secret_access_key ?? '',
        sessionToken: secrets.session_token ?? null,
        format: (settings.format as 'parquet' | undefined) ?? 'jsonl',
        compression: (settings.compression as 'zstd' | undefined) ?? 'gzip',
        partition: (settings.partition as 'day' | undefined) ?? 'hour',
        intervalSeconds: settings.interval_seconds ?? 60,
      };
    }
  }
}
