import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { averageOf, bucketAt, bucketsOf, bucketWidth, fillBuckets, isZone, MAX_RANGE_MS } from './buckets.ts';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const at = (text: string): number => Date.parse(text);
const range = (from: string, to: string) => ({ from: at(from), to: at(to) });
const told = (times: readonly number[]): string[] => times.map((time) => new Date(time).toISOString());

/** Zones whose clocks change at midnight, by half an hour, far from UTC, across the date line, or never. */
const ZONES = [
  'UTC',
  'Europe/Berlin',
  'America/New_York',
  'America/St_Johns',
  'America/Sao_Paulo',
  'America/Havana',
  'Africa/Cairo',
  'Africa/Casablanca',
  'Asia/Kathmandu',
  'Asia/Beirut',
  'Australia/Lord_Howe',
  'Pacific/Apia',
  'Pacific/Chatham',
  'Pacific/Kiritimati',
] as const;

const ranges = fc
  .tuple(fc.integer({ min: at('2000-01-01'), max: at('2031-01-01') }), fc.integer({ min: 1, max: MAX_RANGE_MS }))
  .map(([from, length]) => ({ from, to: from + length }));
const zones = fc.constantFrom(...ZONES);

describe('the buckets of a graph', () => {
  it.each([
    [1, 'minute'],
    [HOUR, 'minute'],
    [HOUR + 1, 'hour'],
    [3 * DAY, 'hour'],
    [3 * DAY + 1, 'day'],
    [90 * DAY, 'day'],
    [90 * DAY + 1, 'week'],
    [MAX_RANGE_MS, 'week'],
  ] as const)('a range of %i ms is shown by the %s and the width next to it', (length, width) => {
    expect(bucketWidth({ from: 5, to: 5 + length })).toBe(width);
  });

  it('begin where the clock does, and cover the range', () => {
    const minutes = bucketsOf(range('2026-11-23T10:00:30Z', '2026-11-23T10:03:00Z'));
    expect(told(minutes.starts)).toEqual([
      '2026-11-23T10:00:00.000Z',
      '2026-11-23T10:01:00.000Z',
      '2026-11-23T10:02:00.000Z',
    ]);
    expect(bucketsOf(range('2026-11-23T00:00:00Z', '2026-11-24T00:00:00Z'), 'Asia/Kathmandu').starts).toHaveLength(24);
  });

  it('weeks begin on Monday', () => {
    const { starts, width } = bucketsOf(range('2026-01-01T00:00:00Z', '2026-06-01T00:00:00Z'));
    expect([width, told(starts)[0], told(starts).at(-1)]).toEqual([
      'week',
      '2025-12-29T00:00:00.000Z',
      '2026-05-25T00:00:00.000Z',
    ]);
  });

  it('days are those of the zone: 23 hours in spring, 25 in autumn', () => {
    const lengths = (from: string, to: string, zone: string) => {
      const { starts, end } = bucketsOf(range(from, to), zone);
      return starts.map((start, index) => ((starts[index + 1] ?? end) - start) / HOUR);
    };
    expect(lengths('2026-03-27T23:00:00Z', '2026-03-31T22:00:00Z', 'Europe/Berlin')).toEqual([24, 23, 24, 24]);
    expect(lengths('2026-10-23T22:00:00Z', '2026-10-27T23:00:00Z', 'Europe/Berlin')).toEqual([24, 25, 24, 24]);
    expect(lengths('2026-10-03T13:30:00Z', '2026-10-07T13:00:00Z', 'Australia/Lord_Howe')).toEqual([23.5, 24, 24, 24]);
  });

  it('a day whose midnight is skipped begins when clocks go on', () => {
    const { starts } = bucketsOf(range('2026-04-21T22:00:00Z', '2026-04-26T12:00:00Z'), 'Africa/Cairo');
    expect(told(starts).slice(1, 4)).toEqual([
      '2026-04-22T22:00:00.000Z',
      '2026-04-23T22:00:00.000Z',
      '2026-04-24T21:00:00.000Z',
    ]);
  });

  it('a day that a zone skipped has no bucket', () => {
    const { starts } = bucketsOf(range('2011-12-28T10:00:00Z', '2012-01-01T10:00:00Z'), 'Pacific/Apia');
    expect(told(starts)).toEqual([
      '2011-12-28T10:00:00.000Z',
      '2011-12-29T10:00:00.000Z',
      '2011-12-30T10:00:00.000Z',
      '2011-12-31T10:00:00.000Z',
    ]);
  });

  it('a range without length has none', () => {
    expect(bucketsOf({ from: 5, to: 5 }).starts).toEqual([]);
    expect(bucketAt(bucketsOf({ from: 5, to: 5 }), 5)).toBe(-1);
  });
});

describe('of any range in any zone', () => {
  it('every instant lies in exactly one bucket', () => {
    fc.assert(
      fc.property(ranges, zones, fc.double({ min: 0, max: 1, noNaN: true }), (range, zone, share) => {
        const buckets = bucketsOf(range, zone);
        const time = Math.min(range.to - 1, range.from + Math.floor((range.to - range.from) * share));
        const ends = [...buckets.starts.slice(1), buckets.end];
        const holding = buckets.starts.flatMap((start, index) =>
          start <= time && time < (ends[index] ?? 0) ? [index] : [],
        );
        expect(holding).toEqual([bucketAt(buckets, time)]);
      }),
      { numRuns: 300 },
    );
  });

  it('the sum of the buckets is the total, also of rows added up by step', () => {
    fc.assert(
      fc.property(ranges, zones, fc.array(fc.double({ min: 0, max: 0.999999, noNaN: true })), (range, zone, shares) => {
        const buckets = bucketsOf(range, zone);
        const times = shares.map((share) => range.from + Math.floor((range.to - range.from) * share));
        const count = (timeOf: (time: number) => number) =>
          fillBuckets(
            buckets,
            times,
            timeOf,
            () => 0,
            (sum) => sum + 1,
          );
        const exact = count((time) => time);
        expect(exact.reduce((sum, one) => sum + one, 0)).toBe(times.length);
        expect(count((time) => Math.floor(time / buckets.stepMs) * buckets.stepMs)).toEqual(exact);
      }),
      { numRuns: 200 },
    );
  });

  it('buckets rise, cover the range, and none lies outside it', () => {
    fc.assert(
      fc.property(ranges, zones, (range, zone) => {
        const { starts, end } = bucketsOf(range, zone);
        const edges = [...starts, end];
        expect(edges.every((edge, index) => index === 0 || edge > (edges[index - 1] ?? edge))).toBe(true);
        expect(starts[0]).toBeLessThanOrEqual(range.from);
        expect(starts[1] ?? end).toBeGreaterThan(range.from);
        expect(starts.at(-1)).toBeLessThan(range.to);
        expect(end).toBeGreaterThanOrEqual(range.to);
        expect(starts.length).toBeLessThanOrEqual(93);
      }),
      { numRuns: 300 },
    );
  });

  it('a bucket of days begins at the first instant that clocks of the zone show that day', () => {
    fc.assert(
      fc.property(ranges, zones, (range, zone) => {
        const day = new Intl.DateTimeFormat('sv-SE', { timeZone: zone, dateStyle: 'short' });
        const buckets = bucketsOf({ from: range.from, to: Math.min(range.to, range.from + 20 * DAY) }, zone);
        fc.pre(buckets.width === 'day');
        for (const start of buckets.starts) expect(day.format(start) > day.format(start - 1)).toBe(true);
      }),
      { numRuns: 100 },
    );
  });
});

describe('zones and averages', () => {
  it.each(['Europe/Berlin', 'UTC', 'Etc/GMT+12', 'America/Argentina/Buenos_Aires'])('%s is a zone', (name) => {
    expect(isZone(name)).toBe(true);
  });
  it.each(['', 'Berlin', '+02:00', 'Europe/', 'x'.repeat(65), 'Europe/Berlin\0'])('%j is none', (name) => {
    expect(isZone(name)).toBe(false);
  });

  it.each([
    [0, 0, 0, null],
    [5, 2, 3, 2.5],
    [-5, 2, -2, -2.5],
    [-1, 3, 0, -1 / 3],
  ])('the average of %i over %i is %i, exactly %s', (total, count, rounded, exact) => {
    expect(averageOf(total, count)).toEqual({ rounded, exact });
  });
});
