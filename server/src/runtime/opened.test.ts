import { expect, it } from 'vitest';
import { TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { SealedValue } from './opened.ts';

/** A vault that can be away, and a value of it that changes. */
function world() {
  const clock = new TestClock();
  const state = { asked: 0, away: false, value: 'first', logged: [] as unknown[] };
  const open = async () => {
    state.asked += 1;
    if (state.away) throw new Error('the vault is away');
    return state.value;
  };
  const log = { ...silentLog, error: (message: string) => state.logged.push(message) };
  return { clock, state, sealed: new SealedValue(open, clock, log, { provider: 'p1' }) };
}
const turns = async () => {
  for (let i = 0; i < 5; i++) await null;
};

it('is opened at its first use, once for all who wait, and then given without waiting', async () => {
  const { state, sealed } = world();
  expect(state.asked).toBe(0);
  expect(await Promise.all([sealed.get(), sealed.get(), sealed.get()])).toEqual(['first', 'first', 'first']);
  expect(sealed.get()).toBe('first');
  expect(state.asked).toBe(1);
});

it('is opened anew after ten minutes behind the requests, which never wait again', async () => {
  const { clock, state, sealed } = world();
  await sealed.get();
  const until = sealed.until;
  expect(until).toBe(clock.now() + 600_000);
  clock.jump(600_000);
  state.value = 'second';
  expect(sealed.get()).toBe('first');
  expect(sealed.until).toBe(clock.now() + 5_000);
  await turns();
  expect(sealed.get()).toBe('second');
  expect(state.asked).toBe(2);
});

it('keeps its last good value for as long as the vault is away', async () => {
  const { clock, state, sealed } = world();
  await sealed.get();
  state.away = true;
  for (let minute = 0; minute < 60; minute++) {
    clock.jump(600_000);
    expect(sealed.get()).toBe('first');
    await turns();
  }
  expect(state.logged.at(-1)).toMatch(/last good value/);
  state.away = false;
  state.value = 'second';
  clock.jump(5_000);
  sealed.get();
  await turns();
  expect(sealed.get()).toBe('second');
});

it('asks a vault that does not open it again after five seconds, not with every request', async () => {
  const { clock, state, sealed } = world();
  state.away = true;
  for (let i = 0; i < 10; i++) await expect(sealed.get()).rejects.toThrow('away');
  expect(state.asked).toBe(1);
  clock.jump(5_000);
  state.away = false;
  expect(await sealed.get()).toBe('first');
});
