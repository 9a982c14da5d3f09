import { createServer, type Server } from 'node:http';
import { type AddressInfo, Socket } from 'node:net';
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  embeddings,
  LAWFUL_HOSTS,
  lawfulNeighbours,
  obfuscations,
  specialIpv4,
  specialIpv6,
  trickUrls,
} from '../../test/packs/addresses.ts';
import { systemClock, TestClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { silentLog } from '../kernel/log.ts';
import {
  createEgressGuard,
  type DnsRecord,
  type DnsResolver,
  type EgressPolicy,
  parseTrustedHosts,
} from './egress-guard.ts';
import { INTERNAL_SUFFIXES, REFUSED_NAMES, REFUSED_PORTS, REFUSED_SUFFIXES } from './names.ts';

const OPEN: EgressPolicy = { storedCredential: false };
const bracket = (address: string) => (address.includes(':') ? `[${address}]` : address);

/** A resolver that knows what it is told and counts; names it does not know have no address. */
function fakeDns(answers: Record<string, readonly string[] | (() => readonly string[])>, ttl = 60) {
  const asked: string[] = [];
  const resolver: DnsResolver = {
    async resolve(name, family) {
      if (family === 4) asked.push(name);
      const known = answers[name] ?? [];
      const list = typeof known === 'function' ? (family === 4 ? known() : []) : known;
      return list
        .filter((address) => address.includes(':') === (family === 6))
        .map((address): DnsRecord => ({ address, ttl }));
    },
  };
  return { resolver, asked };
}

function guardOf(trusted = '', resolver?: DnsResolver, own: { address: string; port: number }[] = []) {
  return createEgressGuard({
    trustedHosts: parseTrustedHosts(trusted),
    ownListeners: () => own,
    clock: systemClock,
    log: silentLog,
    hostsFile: '/dev/null',
    ...(resolver ? { resolver } : {}),
  });
}

function refusal(run: () => unknown): SluiceError {
  try {
    run();
  } catch (error) {
    if (error instanceof SluiceError) return error;
    throw error;
  }
  throw new Error('was not refused');
}

/** Connects as undici would; resolves with the peer's address or the refusal. */
function connect(
  guard: ReturnType<typeof guardOf>,
  hostname: string,
  port: number,
  organisation = 'org',
): Promise<string | SluiceError> {
  return new Promise((resolve, reject) => {
    guard.connector(organisation)({ hostname, protocol: 'http:', port: String(port) }, (error, socket) => {
      if (error instanceof SluiceError) resolve(error);
      else if (error) reject(error);
      else {
        resolve(socket.remoteAddress ?? '');
        socket.destroy();
      }
    });
  });
}

const servers: Server[] = [];
async function listen(host = '127.0.0.1'): Promise<{ port: number; connections: () => number }> {
  let count = 0;
  const server = createServer((_request, response) => response.end('ok'));
  server.on('connection', () => count++);
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  return { port: (server.address() as AddressInfo).port, connections: () => count };
}

afterEach(async () => {
  vi.restoreAllMocks();
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

describe('check', () => {
  const guard = guardOf();

  it('refuses every special address in every spelling and embedding', () => {
    let tried = 0;
    for (const address of specialIpv4()) {
      for (const host of [address, ...embeddings(address).map(bracket), ...obfuscations(address)]) {
        for (const scheme of ['http', 'https']) {
          expect(() => guard.check(`${scheme}://${host}/v1`, OPEN), host).toThrow(SluiceError);
          tried++;
        }
      }
    }
    for (const address of specialIpv6()) {
      expect(() => guard.check(`http://[${address}]:8080/`, OPEN), address).toThrow(SluiceError);
      expect(() => guard.check(`http://[${address}%25eth0]/`, OPEN)).toThrow(SluiceError);
    }
    expect(tried).toBeGreaterThan(2000);
  });

  it('refuses obfuscated spellings of public addresses too, because two readers may differ', () => {
    for (const host of obfuscations('8.8.8.8'))
      expect(() => guard.check(`http://${host}/`, OPEN), host).toThrow(SluiceError);
    expect(() => guard.check('http://[2606:4700:4700:0:0:0:0:1111]/', OPEN)).toThrow(SluiceError);
  });

  it('refuses URLs built to confuse readers about the host, whatever the host', () => {
    for (const host of ['127.0.0.1', '169.254.169.254', 'localhost', 'example.com']) {
      for (const url of trickUrls(host)) expect(() => guard.check(url, OPEN), JSON.stringify(url)).toThrow(SluiceError);
    }
  });

  it('refuses metadata, cluster, rebinding and internal names with all subdomains, in any case', () => {
    for (const name of [...REFUSED_SUFFIXES, ...INTERNAL_SUFFIXES]) {
      for (const host of [name, `a.${name}`, `a.b.${name}`, name.toUpperCase()]) {
        expect(() => guard.check(`https://${host}/`, OPEN), host).toThrow(SluiceError);
      }
    }
    for (const host of [...REFUSED_NAMES, 'intranet', 'ollama', 'localhost', 'LOCALHOST', 'foo.localhost']) {
      expect(() => guard.check(`https://${host}/`, OPEN), host).toThrow(SluiceError);
    }
  });

  it('refuses malformed names: trailing dot, too many or long labels, empty labels, internationalised labels', () => {
    for (const host of [
      'example.com.',
      'a.b.c.d.e.f.g.h.i.j.com',
      `${'a'.repeat(64)}.com`,
      'a..com',
      '.com',
      '-a.com',
      'a-.com',
      'xn--e1afmkfd.com',
      'www.xn--80ak6aa92e.com',
      'ex*mple.com',
      "exa'mple.com",
      'example.com%2e',
      `${'a.'.repeat(4)}${'b'.repeat(60)}.${'c'.repeat(60)}.${'d'.repeat(60)}.${'e'.repeat(63)}.com`,
    ]) {
      expect(() => guard.check(`https://${host}/`, OPEN), host).toThrow(SluiceError);
    }
    expect(() => guard.check(`https://example.com/${'a'.repeat(2048)}`, OPEN)).toThrow('longer than 2048 characters');
    expect(() => guard.check('', OPEN)).toThrow(SluiceError);
  });

  it('refuses each port of the list, trusted or not, and no other', () => {
    const trusting = guardOf('10.0.0.1,localhost');
    for (let port = 1; port <= 65_535; port++) {
      const listed = REFUSED_PORTS.has(port);
      const open = (url: string) => {
        try {
          trusting.check(url, OPEN);
          return true;
        } catch {
          return false;
        }
      };
      if (port < 100 || listed || port % 97 === 0) {
        expect(open(`http://10.0.0.1:${port}/`)).toBe(!listed);
        expect(open(`http://localhost:${port}/`)).toBe(!listed);
        expect(open(`https://example.com:${port}/`)).toBe(!listed);
      }
    }
    for (const port of [22, 25, 445, 3306, 5432, 6379, 6443, 9200, 27_017]) expect(REFUSED_PORTS.has(port)).toBe(true);
  });

  it('raises no false alarm for provider hosts and addresses next to special ranges', () => {
    for (const host of LAWFUL_HOSTS) {
      const checked = guard.check(`https://${host}/v1`, { storedCredential: true });
      expect(checked).toMatchObject({
        origin: `https://${host}`,
        hostname: host,
        port: 443,
        path: '/v1',
        trusted: false,
      });
    }
    expect(lawfulNeighbours().length).toBeGreaterThanOrEqual(20);
    for (const address of lawfulNeighbours()) expect(guard.check(`http://${address}/`, OPEN).hostname).toBe(address);
    for (const address of [
      '2606:4700:4700::1111',
      '2a00:1450:4001:81b::200e',
      '2001:4860:4860::8888',
      '2001:200::1',
      '3ffe::1',
    ]) {
      expect(guard.check(`https://[${address}]:8443/x?y=1`, OPEN)).toMatchObject({
        hostname: address,
        port: 8443,
        path: '/x?y=1',
      });
    }
  });

  it('normalises the origin: case, default port, path', () => {
    expect(guard.check('HTTPS://API.Example.COM:443', OPEN)).toMatchObject({
      origin: 'https://api.example.com',
      path: '/',
      port: 443,
    });
    expect(guard.check('https://api.example.com:8443/base/', OPEN)).toMatchObject({
      origin: 'https://api.example.com:8443',
      path: '/base/',
    });
  });

  it('sends a stored credential over https and to the hosts it belongs to only', () => {
    const stored: EgressPolicy = {
      storedCredential: true,
      allowedOrigins: ['https://api.openai.com', 'https://x.openai.azure.com', 'https://gpu.example.com:8443'],
    };
    for (const url of ['https://api.openai.com/v1', 'https://x.openai.azure.com', 'https://gpu.example.com:8443/'])
      guard.check(url, stored);
    for (const url of [
      'http://api.openai.com/v1',
      'https://api.openai.com:8443/v1',
      'https://evil.com/',
      'https://api.openai.com.evil.com/',
      'https://evilopenai.azure.com/',
      'https://openai.azure.com/',
      'https://xapi.openai.com/',
      'https://gpu.example.com/',
    ]) {
      expect(() => guard.check(url, stored), url).toThrow(SluiceError);
      expect(() => guard.check(url.replace('http:', 'https:'), OPEN)).not.toThrow();
    }
    expect(() => guard.check('https://evil.com', { storedCredential: true, allowedOrigins: [] })).toThrow(SluiceError);
    expect(() => guard.check('http://example.com', { storedCredential: false, httpsOnly: true })).toThrow(
      'must use https',
    );
    const trusting = guardOf('localhost');
    trusting.check('http://localhost:11434/v1', { storedCredential: true, httpsOnly: true });
    trusting.check('http://localhost:11434/v1', { ...stored, allowedOrigins: ['http://localhost:11434'] });
    expect(() => trusting.check('http://localhost:11434/v1', stored)).toThrow('not meant for localhost:11434');
  });

  it('says which field is wrong and uses the kind the caller asks for', () => {
    const error = refusal(() => guard.check('http://10.0.0.1', { ...OPEN, param: 'custom_host', kind: 'validation' }));
    expect(error).toMatchObject({ kind: 'validation', param: 'custom_host' });
    expect(refusal(() => guard.check('http://10.0.0.1', OPEN))).toMatchObject({ kind: 'malformed_call', param: null });
  });
});

describe('trusted hosts', () => {
  it('opens exactly what an entry names', () => {
    const guard = guardOf(
      '127.0.0.1:11434, host.docker.internal,10.20.0.0/16,localhost,*.corp.example.com,[fd12::1]:8080,http://gpu.lan:9000/v1',
    );
    for (const url of [
      'http://127.0.0.1:11434/',
      'http://host.docker.internal:9999/',
      'http://10.20.255.255/',
      'http://localhost:3000/',
      'http://a.localhost/',
      'http://corp.example.com/',
      'http://a.b.corp.example.com/',
      'http://[fd12::1]:8080/',
      'http://gpu.lan:9000/',
    ]) {
      expect(guard.check(url, { storedCredential: true }).trusted, url).toBe(true);
    }
    for (const url of [
      'http://127.0.0.1/',
      'http://127.0.0.1:11435/',
      'http://127.0.0.2:11434/',
      'http://docker.internal/',
      'http://a.host.docker.internal/',
      'http://10.21.0.0/',
      'http://[::ffff:a14:1]/',
      'http://[fd12::1]/',
      'http://[fd12::2]:8080/',
      'http://gpu.lan/',
      'http://evilcorp.example.com.local/',
      'http://2130706433:11434/',
      'http://127.1:11434/',
    ]) {
      expect(() => guard.check(url, OPEN), url).toThrow(SluiceError);
    }
  });

  it('never opens metadata addresses and names, even when they are listed', () => {
    const list =
      '169.254.169.254,169.254.0.0/16,0.0.0.0,100.100.100.200,168.63.129.16,192.0.0.192,fd00:ec2::254,metadata.google.internal,*.cluster.local,nip.io,::';
    const guard = guardOf(`${list},100.64.0.0/10,192.0.0.0/24,fd00::/8`);
    for (const host of [
      '169.254.169.254',
      '169.254.1.1',
      '0.0.0.0',
      '100.100.100.200',
      '168.63.129.16',
      '192.0.0.192',
      '[fd00:ec2::254]',
      'metadata.google.internal',
      'x.cluster.local',
      '10.0.0.1.nip.io',
      '[::]',
    ]) {
      expect(() => guard.check(`http://${host}/`, OPEN), host).toThrow(SluiceError);
    }
    expect(guard.check('http://[fd00::1]/', OPEN).trusted).toBe(true);
  });

  it('never opens a metadata address embedded in a trusted IPv6 range', () => {
    const guard = guardOf('64:ff9b::/96,2002::/16,::ffff:0:0/96,::ffff:0:0:0/96');
    for (const address of embeddings('169.254.169.254')) {
      expect(() => guard.check(`http://[${address}]/`, OPEN), address).toThrow(SluiceError);
    }
  });

  it.each([
    '*',
    '0.0.0.0/0',
    '::/0',
    '10.0.0.0/33',
    '10.0.0.1/8',
    '10.0.0/8',
    'a b',
    'host:0',
    'host:99999',
    'host:abc',
    'http://',
    '127.1',
    '0x7f.1',
    '2130706433',
    '*.',
    '**.com',
    'a.*.com',
    'x..y',
    '[fd12::1',
    '[10.0.0.1]',
    'user@host',
    'host/8',
    'ex*mple.com',
  ])('stops the start for the malformed entry %j and names it in one line', (entry) => {
    let message = '';
    try {
      parseTrustedHosts(`localhost,${entry}`);
    } catch (error) {
      message = error instanceof Error ? error.message : '';
    }
    expect(message).toContain(JSON.stringify(entry));
    expect(message).not.toContain('\n');
  });

  it.each([
    ['xn--bcher-kva.example', 'http://xn--bcher-kva.example', ['xn--bcher-kva.example']],
    ['Bücher.Example:8080', 'http://xn--bcher-kva.example:8080', ['xn--bcher-kva.example:8080']],
    ['https://XN--BCHER-KVA.example/v1', 'http://xn--bcher-kva.example', ['xn--bcher-kva.example']],
    ['*.bücher.example', 'http://api.xn--bcher-kva.example', ['*.xn--bcher-kva.example']],
  ])('takes the internationalised name %s in the form that URLs have', (entry, url, kept) => {
    expect(parseTrustedHosts(entry)).toEqual(kept);
    expect(guardOf(entry).check(url, OPEN).trusted).toBe(true);
    expect(refusal(() => guardOf().check(url, OPEN)).message).toContain('SLUICE_TRUSTED_HOSTS');
    expect(refusal(() => guardOf(entry).check('https://xn--e1afmkfd.com', OPEN)).message).toContain(
      'internationalised',
    );
  });

  it.each(['１２７.0.0.1', 'ä@host.example', 'ä#.example', 'xn--a-ä.example', 'bü cher.example', 'ä%2e.example'])(
    'stops the start for %j, which no URL has as its host',
    (entry) => expect(() => parseTrustedHosts(entry)).toThrow('is not a host'),
  );

  it('connects to an internationalised name that is trusted', async () => {
    const { port } = await listen();
    const { resolver } = fakeDns({ 'xn--bcher-kva.example': ['127.0.0.1'] });
    const host = 'xn--bcher-kva.example';
    expect(await connect(guardOf('bücher.example', resolver), host, port)).toBe('127.0.0.1');
    expect(await connect(guardOf('', resolver), host, port)).toBeInstanceOf(SluiceError);
  });

  it('reads an empty list, spaces and upper case', () => {
    expect(parseTrustedHosts('')).toEqual([]);
    expect(parseTrustedHosts(' , ')).toEqual([]);
    expect(guardOf('LocalHost').check('http://localhost', OPEN).trusted).toBe(true);
  });
});

describe('connector', () => {
  it('connects to literal addresses only, never handing a name to the system resolver', async () => {
    const { port } = await listen();
    const seen: unknown[] = [];
    const original = Socket.prototype.connect;
    vi.spyOn(Socket.prototype, 'connect').mockImplementation(function record(this: Socket, ...args: unknown[]) {
      const [first] = args;
      seen.push(JSON.stringify(first));
      return Reflect.apply(original, this, args);
    });
    const { resolver } = fakeDns({ 'upstream.example.com': ['127.0.0.1'] });
    expect(await connect(guardOf('upstream.example.com', resolver), 'upstream.example.com', port)).toBe('127.0.0.1');
    expect(seen).toHaveLength(1);
    expect(seen[0]).toContain('"host":"127.0.0.1"');
  });

  it('refuses a name when any one of its addresses is not public, without a connection', async () => {
    const { port, connections } = await listen();
    for (const bad of [
      '127.0.0.1',
      '10.0.0.1',
      '169.254.169.254',
      '::1',
      '::ffff:127.0.0.1',
      'fd00:ec2::254',
      '64:ff9b::7f00:1',
    ]) {
      for (const answer of [[bad], ['93.184.216.34', bad], [bad, '93.184.216.34'], ['2606:4700:4700::1111', bad]]) {
        const { resolver } = fakeDns({ 'rebind.example.com': answer });
        const result = await connect(guardOf('', resolver), 'rebind.example.com', port);
        expect(result, answer.join()).toMatchObject({ kind: 'malformed_call' });
        if (result instanceof SluiceError) for (const address of answer) expect(result.message).not.toContain(address);
      }
    }
    expect(connections()).toBe(0);
  });

  it('judges a cached answer again when the name is used, and a changed answer when it is fetched', async () => {
    let answer = ['93.184.216.34'];
    const { resolver } = fakeDns({ 'flip.example.com': () => answer }, 0);
    const clock = new TestClock();
    const guard = createEgressGuard({ trustedHosts: [], ownListeners: () => [], clock, log: silentLog, resolver });
    const checked = guard.check('https://flip.example.com/', OPEN);
    await guard.verify(checked, 'org');
    answer = ['127.0.0.1'];
    await guard.verify(checked, 'org');
    await clock.advance(5_001);
    await expect(guard.verify(checked, 'org', { kind: 'validation', param: 'url' })).rejects.toMatchObject({
      kind: 'validation',
      param: 'url',
    });
    expect(await connect(guard, 'flip.example.com', 443)).toMatchObject({ kind: 'malformed_call' });
  });

  it('refuses metadata addresses, wildcard addresses and refused ports behind a trusted name', async () => {
    const { port } = await listen();
    for (const bad of ['169.254.169.254', '0.0.0.0', '168.63.129.16', 'fd00:ec2::254', '::']) {
      const { resolver } = fakeDns({ 'trusted.example.com': [bad] });
      expect(await connect(guardOf('trusted.example.com', resolver), 'trusted.example.com', port), bad).toMatchObject({
        kind: 'malformed_call',
      });
    }
    const { resolver } = fakeDns({ 'trusted.example.com': ['127.0.0.1'] });
    expect(await connect(guardOf('trusted.example.com', resolver), 'trusted.example.com', 6379)).toMatchObject({
      kind: 'malformed_call',
    });
  });

  it('opens a name whose addresses lie in a trusted range or are public, and no other', async () => {
    const { port } = await listen();
    const names = {
      'in.example.com': ['127.0.0.1'],
      'out.example.com': ['127.1.0.1'],
      'mixed.example.com': ['127.0.0.1', '127.1.0.1'],
    };
    const guard = guardOf('127.0.0.0/24', fakeDns(names).resolver);
    expect(await connect(guard, 'in.example.com', port)).toBe('127.0.0.1');
    expect(await connect(guard, 'out.example.com', port)).toMatchObject({ kind: 'malformed_call' });
    expect(await connect(guard, 'mixed.example.com', port)).toMatchObject({ kind: 'malformed_call' });
  });

  it('refuses this node itself, trusted or not, under any local address', async () => {
    const { port, connections } = await listen();
    for (const own of ['127.0.0.1', '0.0.0.0', '::', 'localhost']) {
      const guard = guardOf('127.0.0.0/8,localhost', undefined, [{ address: own, port }]);
      expect(await connect(guard, '127.0.0.1', port), own).toMatchObject({ kind: 'malformed_call' });
      expect(() => guard.check(`http://127.0.0.1:${port}/`, OPEN)).toThrow('is this gateway itself');
    }
    const loose = guardOf('127.0.0.0/8', undefined, [{ address: '::', port: port + 1 }]);
    expect(await connect(loose, '127.0.0.1', port)).toBe('127.0.0.1');
    expect(connections()).toBe(1);
  });

  it('resolves a trusted localhost to loopback without DNS', async () => {
    const { port } = await listen();
    const { resolver, asked } = fakeDns({});
    const guard = guardOf('localhost', resolver);
    expect(await connect(guard, 'localhost', port)).toBe('127.0.0.1');
    expect(await connect(guard, 'ollama.localhost', port)).toBe('127.0.0.1');
    expect(asked).toEqual([]);
    expect(await connect(guardOf('', resolver), 'localhost', port)).toMatchObject({ kind: 'malformed_call' });
  });

  it('tries the next checked address when one does not answer', async () => {
    const { port } = await listen('127.0.0.3');
    const { resolver } = fakeDns({ 'two.example.com': ['127.0.0.4', '127.0.0.3'] });
    expect(await connect(guardOf('two.example.com', resolver), 'two.example.com', port)).toBe('127.0.0.3');
    expect(await connect(guardOf('two.example.com', resolver), 'two.example.com', 9)).toMatchObject({
      kind: 'upstream_unreachable',
    });
  });

  it('answers 502 for a name without address or a resolver that fails', async () => {
    const failing: DnsResolver = { resolve: () => Promise.reject(new Error('SERVFAIL from 10.9.8.7')) };
    for (const resolver of [failing, fakeDns({}).resolver]) {
      const result = await connect(guardOf('', resolver), 'gone.example.com', 443);
      expect(result).toMatchObject({ kind: 'upstream_unreachable' });
      if (result instanceof SluiceError) expect(result.message).not.toContain('10.9.8.7');
    }
  });
});
