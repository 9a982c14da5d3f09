import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { cpu } from '../../test/support/cost.ts';
import { clientAddress } from './client-address.ts';
import { stripIngress } from './headers.ts';

/** The address of a request from `peer`, after ingress. */
function seen(peer: string | undefined, forwardedFor: string | undefined, trusted: readonly string[]): string {
  const socket = new Socket();
  Object.defineProperty(socket, 'remoteAddress', { value: peer });
  const request = new IncomingMessage(socket);
  if (forwardedFor !== undefined) request.headers['x-forwarded-for'] = forwardedFor;
  stripIngress(request, trusted);
  return clientAddress(request);
}

const PROXIES = ['10.0.0.0/8', 'fd00::/8'];

describe('the address of a client', () => {
  it.each<[string, string | undefined, string | undefined, readonly string[], string]>([
    ['the peer, without proxies', '198.51.100.7', undefined, [], '198.51.100.7'],
    ['the peer, whatever it says, when it is not trusted', '198.51.100.7', '1.2.3.4', PROXIES, '198.51.100.7'],
    ['the peer, whatever it says, when nobody is trusted', '10.0.0.1', '1.2.3.4', [], '10.0.0.1'],
    ['what a trusted proxy says', '10.0.0.1', '1.2.3.4', PROXIES, '1.2.3.4'],
    [
      'what the last one that is not trusted was called from',
      '10.0.0.1',
      '6.6.6.6, 1.2.3.4, 10.0.0.9',
      PROXIES,
      '1.2.3.4',
    ],
    ['never what the client wrote before it', '10.0.0.1', '10.0.0.2, 6.6.6.6, 1.2.3.4', PROXIES, '1.2.3.4'],
    ['the first of all, when all are trusted', '10.0.0.1', '10.0.0.3,10.0.0.2', PROXIES, '10.0.0.3'],
    ['the proxy, when it says nothing', '10.0.0.1', undefined, PROXIES, '10.0.0.1'],
    ['the proxy, when it says no address', '10.0.0.1', 'unknown', PROXIES, '10.0.0.1'],
    ['the last proxy before an entry that is no address', '10.0.0.1', '1.2.3.4, <x>, 10.0.0.9', PROXIES, '10.0.0.9'],
    ['without the port some balancers add', '10.0.0.1', '1.2.3.4:5678', PROXIES, '1.2.3.4'],
    ['IPv6 without brackets and port', '10.0.0.1', '[2001:DB8::1]:443', PROXIES, '2001:db8::1'],
    [
      'behind a proxy whose address is IPv4 written as IPv6',
      '10.0.0.1',
      '6.6.6.6, 1.2.3.4, ::ffff:a00:9',
      PROXIES,
      '1.2.3.4',
    ],
    ['IPv6 as it is', 'fd00::1', '2001:db8::1', PROXIES, '2001:db8::1'],
    ['IPv4 on a socket of both families', '::ffff:198.51.100.7', undefined, PROXIES, '198.51.100.7'],
    ['behind a proxy on a socket of both families', '::ffff:10.0.0.1', '::ffff:1.2.3.4', PROXIES, '1.2.3.4'],
    ['IPv4 however a proxy writes it into IPv6', '10.0.0.1', '::FFFF:0102:0304', PROXIES, '1.2.3.4'],
    [
      'never what stands before a proxy that is written into IPv6',
      '10.0.0.1',
      '6.6.6.6, ::ffff:a00:2',
      PROXIES,
      '6.6.6.6',
    ],
    ['empty for a connection that is closed', undefined, '1.2.3.4', PROXIES, ''],
  ])('is %s', (_title, peer, header, trusted, expected) => {
    expect(seen(peer, header, trusted)).toBe(expected);
  });

  it('is found in linear time in 16 KB of hops', () => {
    const started = cpu();
    expect(seen('10.0.0.1', '10.0.0.2,'.repeat(1_800), PROXIES)).toBe('10.0.0.1');
    expect(seen('10.0.0.1', `6.6.6.6,${Array(1_800).fill('10.0.0.2').join()}`, PROXIES)).toBe('10.0.0.2');
    expect(cpu() - started).toBeLessThan(100);
  });
});
