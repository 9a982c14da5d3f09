/**
 * How the cost of what the store does grows: `npm run bench:growth -- [--bar 1.3] [--sizes S,M,L] [--store sqlite|postgres] [--row <part>]`.
 *
 * The same things in stores of three sizes, on both engines, counted and not timed (`server/test/growth/meter.ts`). Fails
 * when a constant row costs more than `bar` times what it costs in the smallest store. Milliseconds are information.
 * Statements that read more by their nature (`excuses.ts`) are counted in linear rows only. `--row` measures
 * the rows of such a name alone, and shows what each of their statements costs.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { excused, shapeOf } from '../growth/excuses.ts';
import { hear, type Sent } from '../growth/hear.ts';
import { IN_PROCESS, LAWS, type Law } from '../growth/laws.ts';
import { type Meter, openPostgresMeter, openSqliteMeter } from '../growth/meter.ts';
import { openPostgres, openSqlite, SIZES, type SizeName, type Store } from '../growth/stores.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { watchdog } from '../support/watchdog.ts';

const { values } = parseArgs({
  options: {
    bar: { type: 'string', default: '1.3' },
    sizes: { type: 'string', default: 'S,M,L' },
    store: { type: 'string' },
    row: { type: 'string', default: '' },
  },
});
const bar = Number(values.bar);
const sizes = values.sizes.split(',').map((name): SizeName => {
  if (name in SIZES) return name as SizeName;
  throw new Error(`there is no size ${name}: ${Object.keys(SIZES).join(', ')}`);
});
const engines = (['sqlite', 'postgres'] as const).filter((name) => values.store === undefined || values.store === name);

let measured = '';
const watch = watchdog('growth', () => `measured last: ${measured}`);
const laws = LAWS.filter(({ name }) => name.includes(values.row));

const WORK = /^(select|update|delete|insert|with)\b/i;

interface Cost {
  readonly work: number;
  readonly ms: number;
}

/** The second time: the first one fills what is kept in memory. */
async function measure(store: Store, meter: Meter, { run, law }: Law): Promise<Cost> {
  await run(store);
  const sent: Sent[] = [];
  const end = hear(store.engine, (one) => sent.push(one));
  const began = performance.now();
  await run(store).finally(end);
  const ms = performance.now() - began;
  let work = 0;
  for (const one of sent) {
    const shape = shapeOf(one.sql);
    if (!WORK.test(shape) || (law === 'constant' && excused(shape) !== null)) continue;
    const cost = await meter.cost(one);
    work += cost;
    if (values.row !== '') process.stdout.write(`${String(cost).padStart(8)} ${shape}\n`);
  }
  return { work, ms };
}

/**
 * Rows that are no growth: PostgreSQL reads a table of one page whole and counts all its rows. The stores differ by
 * thousands of rows in whatever grows.
 */
const ONE_PAGE = 20;

let broken = 0;

function tell(name: string, law: Law['law'], unit: string, costs: readonly Cost[], why = ''): void {
  const [first = { work: 0, ms: 0 }] = costs;
  const worst = Math.max(...costs.map(({ work }) => work));
  const times = worst / Math.max(1, first.work);
  const holds = law === 'linear' || times <= bar || worst - first.work <= ONE_PAGE;
  if (!holds) broken += 1;
  const counts = costs.map(({ work }) => String(work).padStart(8)).join('');
  const ms = (costs.at(-1)?.ms ?? 0).toFixed(1).padStart(7);
  const end = holds ? why : 'BROKEN';
  process.stdout.write(
    `${`${name.padEnd(31)}${law.padEnd(9)}${unit.padEnd(6)}${counts}${times.toFixed(2).padStart(8)}${ms}  ${end}`.trimEnd()}\n`,
  );
}

const began = performance.now();
process.stdout.write(
  `${'row'.padEnd(31)}${'law'.padEnd(9)}${'count'.padEnd(6)}${sizes.map((name) => name.padStart(8)).join('')}${'×'.padStart(8)}${'ms'.padStart(7)}\n`,
);
for (const engine of engines) {
  const server = engine === 'postgres' ? await startPostgres() : null;
  const costs = new Map<Law, Cost[]>();
  try {
    for (const name of sizes) {
      const dir = mkdtempSync(join(tmpdir(), 'sluice-growth-'));
      const size = SIZES[name];
      watch.phase(`${engine}, a store of size ${name}`, 240_000);
      const store = server === null ? await openSqlite(size, dir) : await openPostgres(size, await server.database());
      try {
        const meter = server === null ? await openSqliteMeter(store) : await openPostgresMeter(store, name !== 'L');
        for (const law of laws) {
          watch.progress();
          measured = law.name;
          costs.set(law, [...(costs.get(law) ?? []), await measure(store, meter, law)]);
        }
        await meter.close();
      } finally {
        await store.close();
        rmSync(dir, { recursive: true, force: true });
      }
    }
  } finally {
    await server?.stop();
  }
  for (const law of laws) {
    tell(law.name, law.law, engine === 'sqlite' ? 'steps' : 'rows', costs.get(law) ?? [], law.why);
  }
}
for (const { name, law, why, count } of IN_PROCESS) {
  const costs = sizes.map((size) => ({ work: count(SIZES[size]), ms: 0 }));
  tell(name, law, 'looks', costs, why);
}
const seconds = Math.round((performance.now() - began) / 1000);
process.stdout.write(`${broken === 0 ? 'every row keeps its law' : `${broken} rows grow`}; ${seconds} s\n`);
if (broken > 0) process.exitCode = 1;
