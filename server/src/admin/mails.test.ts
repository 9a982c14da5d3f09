/** How many mails strangers and users may ask for. */
import { describe, expect, it } from 'vitest';
import { TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { memoryCounters } from '../store/memory/counters.ts';
import { LimitedMails } from './mails.ts';

function desk(): LimitedMails {
  const clock = new TestClock();
  const counters = memoryCounters({ clock });
  return new LimitedMails({ counters, local: counters, clock, log: silentLog, post: () => undefined });
}

const kindOf = (admitted: Promise<void>): Promise<string> =>
  admitted.then(
    () => 'admitted',
    (error: { kind: string }) => error.kind,
  );

describe('mails that are asked for', () => {
  it('by strangers: thirty a quarter of an hour from all addresses of an IPv6 /64 together', async () => {
    const mails = desk();
    const told: string[] = [];
    for (let n = 0; n < 31; n++) {
      told.push(await kindOf(mails.admitStranger(`2001:db8:0:1::${n.toString(16)}`, `user${n}@x.example`)));
    }
    expect(told.indexOf('throttled')).toBe(30);
    expect(await kindOf(mails.admitStranger('2001:db8:0:2::1', 'other@x.example'))).toBe('admitted');
  });

  it('by users: five a quarter of an hour to one address over all who ask, and they leave its sign-in links alone', async () => {
    const mails = desk();
    const told: string[] = [];
    for (let n = 0; n < 6; n++) told.push(await kindOf(mails.admitUser(`user-${n}`, 'victim@x.example')));
    expect(told.indexOf('throttled')).toBe(5);
    expect(await kindOf(mails.admitUser('user-9', 'other@x.example'))).toBe('admitted');
    expect(await kindOf(mails.admitStranger('198.51.100.1', 'victim@x.example'))).toBe('admitted');
  });
});
