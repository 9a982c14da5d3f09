/** Every category of `gateway.pii`. */
export const PII_CATEGORIES = [
  'EMAIL_ADDRESS',
  'PHONE_NUMBER',
  'LOCATION_ADDRESS',
  'NAME',
  'IP_ADDRESS',
  'CREDIT_CARD',
  'SSN',
  'IBAN',
  'MAC_ADDRESS',
  'UK_NINO',
  'BR_CPF',
  'IN_AADHAAR',
  'CRYPTO_WALLET',
];

/** CPU time of this process, in milliseconds: a machine that others use does not add to it. */
export const cpu = (): number => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
};

/**
 * Microseconds of CPU one call of `work` takes, in the best of many rounds: garbage collection and compilation fall on single
 * ones. Ends early below `least`.
 */
export function leastCost(work: () => unknown, { least = 0, rounds = 100, calls = 200 } = {}): number {
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < rounds && best >= least; round++) {
    const start = cpu();
    for (let i = 0; i < calls; i++) work();
    best = Math.min(best, ((cpu() - start) * 1_000) / calls);
  }
  return best;
}

/** Longest CPU time, in milliseconds, that passes between two turns of the event loop while `work` runs. */
export async function stall(work: () => unknown): Promise<number> {
  let longest = 0;
  let last = cpu();
  let running = true;
  const turn = () => {
    const now = cpu();
    longest = Math.max(longest, now - last);
    last = now;
    if (running) setImmediate(turn);
  };
  setImmediate(turn);
  try {
    await work();
  } finally {
    turn();
    running = false;
  }
  return longest;
}

/** The least of several runs, which end once one is below `enough`. */
export async function leastStall(work: () => unknown, enough = 20, runs = 10): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let run = 0; run < runs && least >= enough; run++) least = Math.min(least, await stall(work));
  return least;
}
