import { randomInt } from 'node:crypto';

/** Uniform in [0, 1). Injected, so that tests know what comes. */
export type Random = () => number;

export const cryptoRandom: Random = () => randomInt(2 ** 32) / 2 ** 32;
