import type { RateCard } from './rates.ts';

/** Every sandbox model costs the same, so that costs and budgets can be tried out: 0.15, 0.60 and 0.075 dollars. */
export const sandboxCard: RateCard = {
  input: { digits: 15n, scale: 2 },
  output: { digits: 60n, scale: 2 },
  cache_read: { digits: 75n, scale: 3 },
};

/** What the sandbox lists; any other name works as well. */
export const SANDBOX_MODELS: readonly string[] = [
  'echo',
  'lorem',
  'slow',
  'error',
  'cut',
  'stall',
  'malformed',
  'flap',
];
