/**
 * A part of `npm run test:chaos`: the disk of a node under load is filled and freed again, several times.
 *
 * A real server keeps its data on a file system of 64 MB of its own. While it is full, new requests are refused with 503 and
 * a `Retry-After`, and readiness and the operator's health tell it; once there is room, requests of every kind are answered
 * within five seconds, without a restart. In the end every answer that completed has exactly one record, and the books of
 * the limited key hold exactly what its answers used. With `SLUICE_UNRECORDED=serve`, requests without a usage limit are
 * answered all the while, and the node stays ready.
 */
import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, unlinkSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { readFirstRun, startReady, stopProcess } from '../support/process.ts';
import { keptRecords } from '../support/stored-records.ts';
import { until as eventually } from '../support/watchdog.ts';

const DISK_MB = 64;
const CALLERS = 8;
const FULL_MS = 4_000;
const BACK_MS = 5_000;
/** Longer than anything takes here on a slow machine. */
const ANSWER_MS = 30_000;
const STORED_MS = 120_000;
const BLOCK = Buffer.alloc(64 << 10, 1);
/** Every kind of answer that leaves something behind: whole or streamed, under a usage limit or not. */
const KINDS = ['limited whole', 'limited streamed', 'free whole', 'free streamed'] as const;
type Kind = (typeof KINDS)[number];

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** The reason why this machine gives us no file system of our own, or null. */
export function mounted(dir: string): string | null {
  if (process.platform !== 'linux') return `${process.platform} has no tmpfs to mount`;
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MB}m,mode=0700`, 'tmpfs', dir], { stdio: 'pipe' });
    return null;
  } catch (error) {
    return `mounting is not permitted here (${String((error as Error).message)
      .trim()
      .split('\n')
      .at(-1)})`;
  }
}

/** Takes what room there is, and what becomes free meanwhile. */
export class Filler {
  readonly #path: string;
  readonly #timer: NodeJS.Timeout;
  readonly #fd: number;

  constructor(dir: string) {
    this.#path = join(dir, 'filler');
    this.#fd = openSync(this.#path, 'w');
    this.#fill();
    this.#timer = setInterval(() => this.#fill(), 20);
  }

  #fill(): void {
    for (let size = BLOCK.length; size >= 1; ) {
      try {
        writeSync(this.#fd, BLOCK, 0, size);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
        size >>= 4;
      }
    }
  }

  free(): void {
    clearInterval(this.#timer);
    closeSync(this.#fd);
    unlinkSync(this.#path);
  }
}

interface Health {
  readonly spool: { readonly failing: boolean; readonly dropped: number; readonly depth_bytes: number };
  readonly usage_spool: { readonly failing: boolean; readonly dropped: number; readonly depth_bytes: number };
}

/** True when all held, or when there is no disk to fill: the reason is printed then. */
export async function fullDisk(rounds: number): Promise<boolean> {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-full-disk-'));
  const reason = mounted(dir);
  if (reason !== null) {
    process.stdout.write(`full disk: skipped, ${reason}\n`);
    rmSync(dir, { recursive: true });
    return true;
  }
  try {
    const results = [await fillAndFree(dir, 'refuse', rounds), await fillAndFree(dir, 'serve', 1)];
    return results.every(Boolean);
  } finally {
    execFileSync('umount', ['--lazy', dir]);
    rmSync(dir, { recursive: true, force: true });
  }
}

async function fillAndFree(disk: string, unrecorded: 'refuse' | 'serve', rounds: number): Promise<boolean> {
  const began = performance.now();
  const dataDir = join(disk, unrecorded);
  mkdirSync(dataDir);
  const env = { SLUICE_UNRECORDED: unrecorded, SLUICE_ADMIN_REQUESTS_PER_MINUTE: '1000000' };
  const server = await startReady(dataDir, env, ['stderr']);
  const { url } = server;
  const isReady = () =>
    fetch(`${url}/readyz`, { signal: AbortSignal.timeout(ANSWER_MS) }).then(
      (answer) => answer.ok,
      () => false,
    );
  const first = await readFirstRun(dataDir);
  const made = await fetch(`${url}/v1/api-keys/workspace/service`, {
    method: 'POST',
    headers: { 'x-gateway-api-key': first.admin_api_key, 'content-type': 'application/json' },
    body: JSON.stringify({
      name: 'limited',
      workspace_id: first.workspace_id,
      scopes: ['completions.write'],
      usage_limits: { type: 'tokens', credit_limit: 1_000_000_000 },
    }),
  });
  const limited = (await made.json()) as { id: string; key: string };

  /** Answers that were seen whole, with the tokens they say they used. */
  const completed = new Map<string, { readonly kind: Kind; readonly tokens: number }>();
  const odd = new Map<string, number>();
  let asked = 0;
  let refused = 0;
  let withoutWait = 0;
  async function ask(kind: Kind): Promise<boolean> {
    const id = `full-${asked++}`;
    const answer = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      signal: AbortSignal.timeout(ANSWER_MS),
      headers: {
        'x-gateway-api-key': kind.startsWith('limited') ? limited.key : first.workspace_api_key,
        'content-type': 'application/json',
        'x-gateway-trace-id': id,
      },
      body: JSON.stringify({
        model: '@sandbox/slow?ttft_ms=20&tokens_per_s=200&tokens=20',
        max_tokens: 40,
        messages: [{ role: 'user', content: id }],
        ...(kind.endsWith('streamed') ? { stream: true, stream_options: { include_usage: true } } : {}),
      }),
    });
    const text = await answer.text();
    if (answer.status === 503) {
      refused += 1;
      if (!(Number(answer.headers.get('retry-after')) > 0)) withoutWait += 1;
      return false;
    }
    const tokens = Number(/"total_tokens":\s*(\d+)/.exec(text)?.[1]);
    const whole = kind.endsWith('streamed') ? text.endsWith('data: [DONE]\n\n') : text.endsWith('}');
    if (answer.status !== 200 || !whole || !(tokens > 0)) {
      const what = `${answer.status} ${text.slice(0, 200)}`;
      odd.set(what, (odd.get(what) ?? 0) + 1);
      return false;
    }
    completed.set(id, { kind, tokens });
    return true;
  }
  const health = async () => {
    const answer = await fetch(`${url}/v1/operator/health`, {
      headers: { 'x-gateway-api-key': first.operator_api_key },
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    return (await answer.json()) as Health;
  };

  const failed = (error: Error) => {
    if (error.name === 'TimeoutError') odd.set('nothing', (odd.get('nothing') ?? 0) + 1);
    return false;
  };

  let running = true;
  const callers = Array.from({ length: CALLERS }, async (_, i) => {
    while (running) if (!(await ask(KINDS[i % KINDS.length] as Kind).catch(failed))) await sleep(5);
  });
  let silent = 0;
  let served = 0;
  let slowest = 0;
  for (let round = 0; round < rounds; round++) {
    await sleep(700);
    const filler = new Filler(disk);
    const until = performance.now() + FULL_MS;
    const before = completed.size;
    let toldByProbe = false;
    let toldByHealth = false;
    while (performance.now() < until) {
      toldByProbe ||= !(await isReady());
      toldByHealth ||= await health().then(
        ({ spool }) => spool.failing,
        () => false,
      );
      await sleep(50);
    }
    if (toldByProbe !== (unrecorded === 'refuse') || !toldByHealth) silent += 1;
    served += completed.size - before;
    filler.free();
    const freed = performance.now();
    const back = async (kind: Kind) => {
      while (performance.now() - freed < 60_000 && !(await ask(kind).catch(failed))) await sleep(20);
    };
    await Promise.all(KINDS.map(back));
    while (performance.now() - freed < 60_000 && !(await isReady())) await sleep(20);
    slowest = Math.max(slowest, performance.now() - freed);
  }
  running = false;
  await Promise.all(callers);
  await eventually(STORED_MS, 'all usage to be booked', async () => (await health()).usage_spool.depth_bytes === 0);
  const { code } = await stopProcess(server, 'SIGTERM');

  const records = new Map<string, number>();
  for (const { trace_id } of await keptRecords({ dataDir }, first.organisation_id, first.workspace_id)) {
    records.set(String(trace_id), (records.get(String(trace_id)) ?? 0) + 1);
  }
  const tables = new DatabaseSync(join(dataDir, 'control.db'), { readOnly: true });
  const books = tables
    .prepare('SELECT COALESCE(SUM(used), 0) AS used FROM usage_buckets WHERE owner_id = ?')
    .get(limited.id);
  tables.close();
  const answers = [...completed];
  const used = answers.reduce((sum, [, { kind, tokens }]) => sum + (kind.startsWith('limited') ? tokens : 0), 0);

  const seconds = Math.round((performance.now() - began) / 1000);
  let missed = 0;
  const line = (id: string, value: number, goal: number, n: number) => {
    const pass = id.includes('ms') ? value <= goal : value === goal;
    if (!pass) missed += 1;
    process.stdout.write(
      `${JSON.stringify({ id, value, goal, pass, n, seconds, store: `full disk, ${unrecorded}`, rounds })}\n`,
    );
  };
  line('ms until every kind of request is answered again', Math.round(slowest), BACK_MS, rounds);
  line('full disks that readiness or health did not tell', silent, 0, rounds);
  line('refusals without Retry-After', withoutWait, 0, refused);
  line(
    'completed answers without exactly one record',
    answers.filter(([id]) => records.get(id) !== 1).length,
    0,
    answers.length,
  );
  line('tokens of completed answers that the books do not hold', used - Number(books?.used), 0, used);
  line('unclean end', code ?? -1, 0, 1);
  if (unrecorded === 'serve') line('full disks while which nothing was served', served > 20 ? 0 : 1, 0, served);
  for (const [what, count] of odd) process.stdout.write(`also answered, ${count} times: ${what}\n`);
  if (refused === 0) process.stdout.write('nothing was refused: the disk was never full\n');
  return missed === 0 && odd.size === 0 && refused > 0;
}
