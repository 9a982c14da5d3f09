import { expect, it } from 'vitest';
import { SluiceError } from '../kernel/errors.ts';
import { InFlight, type InFlightRequest } from './in-flight.ts';

/** A request that runs until it is ended or cancelled. */
function requestOf() {
  const { promise, resolve } = Promise.withResolvers<void>();
  const errors: SluiceError[] = [];
  const request: InFlightRequest = {
    place: 0,
    cancel(error) {
      errors.push(error);
      resolve();
    },
  };
  return { request, errors, end: resolve, work: () => promise };
}

it('lists requests until they end, in whatever order, and cuts those that are left', async () => {
  const inFlight = new InFlight();
  const all = [requestOf(), requestOf(), requestOf(), requestOf()] as const;
  const runs = all.map(({ request, work }) => inFlight.run(request, work));
  expect(inFlight.count).toBe(4);
  all[0].end();
  await runs[0];
  all[2].end();
  await runs[2];
  expect(inFlight.count).toBe(2);
  const error = new SluiceError('out_of_service', 'It stops.');
  inFlight.cut(error);
  await Promise.all(runs);
  expect(all.map(({ errors }) => errors)).toEqual([[], [error], [], [error]]);
  expect(inFlight.count).toBe(0);
});

it('a request that fails leaves the list, too', async () => {
  const inFlight = new InFlight();
  const { request } = requestOf();
  await expect(inFlight.run(request, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  expect(inFlight.count).toBe(0);
});
