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

/** CPU milliseconds that `yardstick` takes on the machine that the bars were set on, when it does nothing else. */
const YARDSTICK_MS = 4;
/** A machine slower than this judges nothing: it could hide a fault. */
const MOST_SLOWER = 2;
const SAMPLE = JSON.stringify({
  messages: Array.from({ length: 400 }, (_, i) => ({
    role: 'user',
    content: `Message ${i}: what costs 12.5 % of 80 €?`,
  })),
});

/** What the measured code does most: it parses, walks characters, and searches by expressions. */
function yardstick(): number {
  const began = cpu();
  let seen = 0;
  for (let round = 0; round < 20; round++) {
    for (const { content } of (JSON.parse(SAMPLE) as { messages: { content: string }[] }).messages)
      seen += content.normalize('NFC').length;
    for (let i = 0; i < SAMPLE.length; i++) if (SAMPLE.charCodeAt(i) > 0x7f) seen += 1;
    for (const { index } of SAMPLE.matchAll(/(?<![\p{L}\p{N}_])\d{1,3}\.\d(?![\p{L}\p{N}_])/gu)) seen += index & 1;
  }
  if (seen === 0) throw new Error('The yardstick did nothing.');
  return cpu() - began;
}

/**
 * How many times slower this machine is just now than the one that the bars were set on; 1 where it is as fast or faster. Bars of
 * time are compared with figures divided by it: the speed of the machine that tests run on is not known.
 */
export function slowness(): number {
  let least = Number.POSITIVE_INFINITY;
  for (let run = 0; run < 20; run++) least = Math.min(least, yardstick());
  return Math.min(MOST_SLOWER, Math.max(1, least / YARDSTICK_MS));
}

/**
 * Microseconds of CPU one call of `work` takes, in the best of many rounds: garbage collection and compilation fall on single
 * ones. Ends early below `least`. In time of the machine that the bars were set on (`slowness`).
 */
export function leastCost(work: () => unknown, { least = 0, rounds = 100, calls = 200 } = {}): number {
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < rounds && best >= least; round++) {
    const start = cpu();
    for (let i = 0; i < calls; i++) work();
    const cost = ((cpu() - start) * 1_000) / calls;
    best = Math.min(best, cost < least ? cost : cost / slowness());
  }
  return best;
}

/** CPU time of this thread, in milliseconds: what other threads of the process do does not hold its event loop. */
const held = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
};

/** Longest CPU time, in milliseconds, that passes between two turns of the event loop while `work` runs. */
export async function stall(work: () => unknown): Promise<number> {
  let longest = 0;
  let last = held();
  let running = true;
  const turn = () => {
    const now = held();
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

/** The least of several runs, in time of the machine that the bars were set on; they end once one is below `enough`. */
export async function leastStall(work: () => unknown, enough = 20, runs = 10): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let run = 0; run < runs && least >= enough; run++) {
    const longest = await stall(work);
    least = Math.min(least, longest < enough ? longest : longest / slowness());
  }
  return least;
}
