/**
 * What counts as one client where failures, mails or connections are counted for each: an IPv4 address, or the /64 of an
 * IPv6 address. A /64 is what one customer has at least, and each of its 2^64 addresses may be the next request's.
 * Other texts are answered as they are.
 *
 * @param address as a socket names its peer, zone included, or as a proxy wrote it
 */
export function networkOf(address: string): string {
  if (!address.includes(':')) return address;
  const [text = ''] = address.split('%', 1);
  const [head = '', tail] = text.split('::');
  const groups = head === '' ? [] : head.split(':');
  if (tail !== undefined) {
    const behind = tail === '' ? [] : tail.split(':');
    // An address that ends in IPv4 writes two groups as one.
    const shown = groups.length + behind.length + (tail.includes('.') ? 1 : 0);
    groups.push(...Array<string>(Math.max(0, 8 - shown)).fill('0'), ...behind);
  }
  return `${groups
    .slice(0, 4)
    .map((group) => group.toLowerCase().replace(/^0+(?=.)/, ''))
    .join(':')}::/64`;
}
