import { networkInterfaces } from 'node:os';
import type { ConnectionOptions } from 'node:tls';
import type { Clock } from '../kernel/clock.ts';
import { type ErrorKind, SluiceError } from '../kernel/errors.ts';
import type { Log } from '../kernel/log.ts';
import type { Notes } from '../kernel/notes.ts';
import { addressBytes, isLoopback, isNeverTrusted, isPublic, sameAddress } from './addresses.ts';
import { type Connect, createConnect } from './connect.ts';
import { createDns, type DnsResolver } from './dns.ts';
import { isInternalName, isInternational, isRefusedName, nameFault, REFUSED_PORTS } from './names.ts';
import { compileTrustedHosts } from './trusted-hosts.ts';

export type { Connect } from './connect.ts';
export type { DnsRecord, DnsResolver } from './dns.ts';
export { parseTrustedHosts } from './trusted-hosts.ts';

/**
 * The one way out to hosts the gateway's own configuration does not name (security 5). `check` judges the
 * text of a URL at save time and per call; `connector` judges the address at connect time, which is the control that
 * holds whatever the name said.
 */
export interface EgressGuard {
  /** Steps 1 to 5: text, host, port, credential. Throws a `SluiceError` with a message for the caller. */
  check(url: string, policy: EgressPolicy): CheckedUrl;
  /** Step 6 for names, ahead of a connection: refuses when any address of the host may not be reached. */
  verify(checked: CheckedUrl, organisationId: string, policy?: Pick<EgressPolicy, 'param' | 'kind'>): Promise<void>;
  /** Steps 6 and 7 as a connect function for undici; one per organisation, whose DNS share it uses. */
  connector(organisationId: string): Connect;
}

export interface EgressPolicy {
  /** A credential of the store travels along: `https` only and, with `allowedOrigins`, only to those. */
  readonly storedCredential: boolean;
  /** For token endpoints, OIDC and JWKS. A trusted host may still use `http`. */
  readonly httpsOnly?: boolean;
  /**
   * Where the stored credential belongs, as `URL.origin` gives it. A trusted host is no exception: being trusted opens
   * an address, it does not make the host a place for the secrets of others. Null or absent: not bound here.
   */
  readonly allowedOrigins?: readonly string[] | null;
  /** Field the URL came from, for the error's `param`. */
  readonly param?: string | null;
  /** Kind of the error thrown; `malformed_call` when absent. */
  readonly kind?: ErrorKind;
}

export interface CheckedUrl {
  /** Parsed once from the checked text; do not parse the text again. */
  readonly url: URL;
  /** `https://host[:port]`, normalised. */
  readonly origin: string;
  /** Lower-case name, or address without brackets. */
  readonly hostname: string;
  readonly port: number;
  /** Path and query, starting with `/`. */
  readonly path: string;
  readonly trusted: boolean;
}

export interface ListenAddress {
  readonly address: string;
  readonly port: number;
}

export interface EgressGuardOptions {
  /** Entries as `parseTrustedHosts` returns them. */
  readonly trustedHosts: readonly string[];
  /** What this node listens on; asked at each connection because listeners start after the guard. */
  readonly ownListeners: () => readonly ListenAddress[];
  readonly resolver?: DnsResolver;
  readonly clock: Clock;
  readonly log: Log;
  /** Told of names that cannot be looked up. */
  readonly notes?: Notes;
  /** Additional certificate authorities, PEM. */
  readonly ca?: ConnectionOptions['ca'];
  /** Path of the hosts file, read for trusted names only. */
  readonly hostsFile?: string;
}

const FORM = /^(https?):\/\/([^/?]+)([/?].*)?$/i;
const MAX_LENGTH = 2_048;
const INTERFACES_MS = 5_000;

/** Splits `host`, `host:port`, `[v6]`, `[v6]:port`; null when it is none of them. */
function splitAuthority(text: string): { host: string; port: string | null } | null {
  if (text.startsWith('[')) {
    const match = /^(\[[^\]]*\])(?::(.*))?$/.exec(text);
    return match ? { host: match[1] ?? '', port: match[2] ?? null } : null;
  }
  const colon = text.indexOf(':');
  if (colon < 0) return { host: text, port: null };
  return { host: text.slice(0, colon), port: text.slice(colon + 1) };
}

/** `host:port` as an entry of the trusted hosts. */
const placeOf = (hostname: string, port: number): string =>
  `${hostname.includes(':') ? `[${hostname}]` : hostname}:${port}`;

const remedy = (hostname: string, port: number): string =>
  `to allow it, the operator adds ${placeOf(hostname, port)} to SLUICE_TRUSTED_HOSTS and restarts Sluice`;

/** Why a name may not be called, as a sentence, or null. */
function hostFault(hostname: string, port: number, trusted: boolean): string | null {
  const fault = nameFault(hostname);
  if (fault !== null) return `The host of the URL ${fault}`;
  if (isRefusedName(hostname)) return `The host ${hostname} is never reachable`;
  if (trusted) return null;
  if (isInternational(hostname)) {
    return `The host ${placeOf(hostname, port)} has internationalised (xn--) labels; ${remedy(hostname, port)}`;
  }
  return isInternalName(hostname) ? `The host ${placeOf(hostname, port)} is internal; ${remedy(hostname, port)}` : null;
}

export function createEgressGuard(options: EgressGuardOptions): EgressGuard {
  const { clock } = options;
  const trust = compileTrustedHosts(options.trustedHosts);
  const dns = createDns({
    clock,
    ...(options.notes ? { notes: options.notes } : {}),
    ...(options.resolver ? { resolver: options.resolver } : {}),
    ...(options.hostsFile ? { hostsFile: options.hostsFile } : {}),
  });

  let interfaces: (readonly number[])[] = [];
  let interfacesRead = Number.NEGATIVE_INFINITY;
  function isLocal(bytes: readonly number[]): boolean {
    if (isLoopback(bytes)) return true;
    if (clock.monotonic() - interfacesRead > INTERFACES_MS) {
      interfacesRead = clock.monotonic();
      interfaces = Object.values(networkInterfaces())
        .flatMap((list) => list ?? [])
        .map((item) => addressBytes(item.address.replace(/%.*/, '')) ?? []);
    }
    return interfaces.some((own) => sameAddress(own, bytes));
  }

  function isOwnListener(bytes: readonly number[], port: number): boolean {
    return options.ownListeners().some((listener) => {
      if (listener.port !== port) return false;
      const own = addressBytes(listener.address);
      // An unreadable or wildcard address (`::`, `0.0.0.0`, `localhost`) stands for every local one.
      if (own === null || own.every((byte) => byte === 0)) return isLocal(bytes);
      return sameAddress(own, bytes);
    });
  }

  /** Why an address may not be connected to, or null. Completes "The host …"; never names the address. */
  function addressFault(
    bytes: readonly number[] | null,
    hostname: string,
    port: number,
    trustedHost: boolean,
  ): string | null {
    if (bytes === null) return 'has no usable address';
    if (isNeverTrusted(bytes)) return 'is a metadata or reserved address, which is never reachable';
    if (isOwnListener(bytes, port)) return 'is this gateway itself';
    if (trustedHost || isPublic(bytes) || trust.address(bytes)) return null;
    return `is not a public address; ${remedy(hostname, port)}`;
  }

  function check(url: string, policy: EgressPolicy): CheckedUrl {
    const refuse = (message: string): never => {
      throw new SluiceError(policy.kind ?? 'malformed_call', message, { param: policy.param ?? null });
    };
    if (typeof url !== 'string' || url.length === 0)
      return refuse('The URL is empty; give http(s)://host[:port][/path]');
    if (url.length > MAX_LENGTH) return refuse(`The URL is longer than ${MAX_LENGTH} characters`);
    for (let i = 0; i < url.length; i++) {
      const c = url.charCodeAt(i);
      if (c < 0x21 || c > 0x7e) return refuse('The URL must consist of printable ASCII characters without spaces');
      if (c === 0x40) return refuse('The URL must not contain user information or an @ sign');
      if (c === 0x23) return refuse('The URL must not contain a # fragment');
      if (c === 0x5c) return refuse('The URL must not contain a backslash');
    }
    const form = FORM.exec(url);
    if (!form) return refuse('The URL must have the form http(s)://host[:port][/path]');
    const authority = splitAuthority(form[2] ?? '');
    if (!authority || authority.host === '') return refuse('The URL must name a host');
    const portText = authority.port;
    if (portText !== null && !/^[1-9][0-9]{0,4}$/.test(portText)) {
      return refuse('The port of the URL must be a number from 1 to 65535');
    }

    const parsed = URL.parse(url);
    const written = authority.host.toLowerCase();
    const bareIp = /^[0-9.]+$/.test(written) || written.startsWith('[');
    if (!parsed) {
      return refuse(
        bareIp ? 'The host of the URL is not a valid address' : 'The URL cannot be read; check its host and port',
      );
    }
    if (parsed.hostname !== written) {
      return refuse('The host of the URL is not in its plain form; write names and addresses in canonical spelling');
    }
    const https = parsed.protocol === 'https:';
    const port = parsed.port === '' ? (https ? 443 : 80) : Number(parsed.port);
    if (port < 1 || port > 65_535) return refuse('The port of the URL must be a number from 1 to 65535');

    const hostname = written.startsWith('[') ? written.slice(1, -1) : written;
    const bytes = addressBytes(hostname);
    const trusted = trust.host(hostname, port);
    if (bytes === null) {
      const fault = hostFault(hostname, port, trusted);
      if (fault) return refuse(fault);
    } else {
      const fault = addressFault(bytes, hostname, port, trusted);
      if (fault) return refuse(`The host ${placeOf(hostname, port)} ${fault}`);
    }
    if (REFUSED_PORTS.has(port)) return refuse(`Port ${port} is never reachable`);

    if (!https && !trusted) {
      if (policy.storedCredential) return refuse('A stored credential is sent over https only; use an https URL');
      if (policy.httpsOnly) return refuse('The URL must use https');
    }
    if (policy.storedCredential && policy.allowedOrigins && !policy.allowedOrigins.includes(parsed.origin)) {
      return refuse(
        `The stored credential is not meant for ${parsed.host}; save that host on the integration or model, or send your own provider key`,
      );
    }
    return {
      url: parsed,
      origin: parsed.origin,
      hostname,
      port,
      path: parsed.pathname + parsed.search,
      trusted,
    };
  }

  /** Addresses to try for a host, each checked now, cached or not. */
  async function addresses(
    hostname: string,
    port: number,
    organisationId: string,
    refuse: (message: string) => SluiceError,
  ): Promise<readonly string[]> {
    const trusted = trust.host(hostname, port);
    const literal = addressBytes(hostname);
    let list: readonly string[];
    if (literal !== null) {
      list = [hostname];
    } else {
      const fault = hostFault(hostname, port, trusted);
      if (fault) throw refuse(fault);
      const localhost = hostname === 'localhost' || hostname.endsWith('.localhost');
      list = localhost ? ['127.0.0.1', '::1'] : await dns.lookup(hostname, organisationId, trusted);
    }
    if (REFUSED_PORTS.has(port)) throw refuse(`Port ${port} is never reachable`);
    for (const address of list) {
      const fault = addressFault(addressBytes(address), hostname, port, trusted);
      if (fault) throw refuse(`The host ${placeOf(hostname, port)} ${fault}`);
    }
    return list;
  }

  return {
    check,
    async verify(checked, organisationId, policy = {}) {
      await addresses(
        checked.hostname,
        checked.port,
        organisationId,
        (message) => new SluiceError(policy.kind ?? 'malformed_call', message, { param: policy.param ?? null }),
      );
    },
    connector(organisationId) {
      return createConnect({
        clock,
        log: options.log,
        ca: options.ca,
        addresses: (hostname, port) =>
          addresses(hostname, port, organisationId, (message) => new SluiceError('malformed_call', message)),
        mayStay: (remote, hostname, port) => {
          const bytes = addressBytes(remote);
          return bytes !== null && addressFault(bytes, hostname, port, trust.host(hostname, port)) === null;
        },
      });
    },
  };
}
