import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type DataPlaneTarget, fuzzDataPlane, startDataPlane } from './fuzz-data-plane.ts';

describe('hostile bytes for every data-plane route', () => {
  let target: DataPlaneTarget;

  beforeAll(async () => {
    target = await startDataPlane();
  });

  afterAll(async () => {
    await target?.stop();
  });

  it('are answered or closed in time, never with a failure of the gateway, each with one record', async () => {
    const { statuses, stall } = await fuzzDataPlane(target, 3_000, 20_261_121);
    // The generator is worth something only while part of what it makes is accepted.
    expect(statuses[200]).toBeGreaterThan(200);
    expect(statuses[400]).toBeGreaterThan(200);
    // Milliseconds of processor time: hostile bytes that stall the loop take seconds, on a slow machine a large one some tens.
    expect(stall).toBeLessThan(400);
  }, 60_000);
});
