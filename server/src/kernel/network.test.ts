import { isIPv6 } from 'node:net';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { addressBytes } from '../http/addresses.ts';
import { networkOf } from './network.ts';

it.each([
  ['198.51.100.7', '198.51.100.7'],
  ['', ''],
  ['slc_key_id', 'slc_key_id'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:DB8:0001:2::6', '2001:db8:1:2::/64'],
  ['2001:db8::6', '2001:db8:0:0::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  ['::', '0:0:0:0::/64'],
  ['::1', '0:0:0:0::/64'],
  ['1::', '1:0:0:0::/64'],
  ['64:ff9b::1.2.3.4', '64:ff9b:0:0::/64'],
  ['1:2:3:4:5:6:1.2.3.4', '1:2:3:4::/64'],
])('%s counts as %s', (address, network) => {
  expect(networkOf(address)).toBe(network);
});

it('two spellings and two hosts of one /64 are one client, and another /64 is another', () => {
  const of = (bytes: readonly number[]) =>
    `${bytes.slice(0, 8).reduce((text, byte, at) => text + (at % 2 === 0 && at > 0 ? ':' : '') + byte.toString(16).padStart(2, '0'), '')}`;
  fc.assert(
    fc.property(fc.ipV6(), (address) => {
      const bytes = addressBytes(address);
      if (!isIPv6(address) || bytes === null) return;
      const whole = of(bytes)
        .split(':')
        .map((group) => Number.parseInt(group, 16).toString(16))
        .join(':');
      expect(networkOf(address)).toBe(`${whole}::/64`);
    }),
  );
});
