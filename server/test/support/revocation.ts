/** How soon something that was taken away is refused. */

export const SECOND = 1_000;

/** Status of one request to the other node. */
export type Probe = () => Promise<number>;

export const chat = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello' }] };

/** What an answer says; a credential that failed too often is not looked at for a while, which is a no too. */
export const means = (status: number, expected: number) => status === expected || (expected === 401 && status === 429);

export async function keepAsking(probe: Probe, over: () => boolean): Promise<number[]> {
  const statuses: number[] = [];
  while (!over()) statuses.push(await probe());
  return statuses;
}

export function report(what: string, lags: readonly number[]): void {
  const sorted = [...lags].sort((a, b) => a - b);
  const at = (part: number) => Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0);
  process.stdout.write(`revocation, ${what}: ${lags.length} × p50 ${at(0.5)} p99 ${at(0.99)} max ${at(1)} ms\n`);
}

/** `count` pieces of work, `width` at a time; answers in order. */
export async function inParallel<T>(width: number, count: number, work: (index: number) => Promise<T>): Promise<T[]> {
  const out: T[] = [];
  let next = 0;
  const lane = async () => {
    while (next < count) {
      const index = next++;
      out[index] = await work(index);
    }
  };
  await Promise.all(Array.from({ length: width }, lane));
  return out;
}
