/** The process of the log keeper. It is started by the server (`log-keeper.ts`) and ends with it. */
import { setPriority } from 'node:os';
import { systemClock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { Log } from '../kernel/log.ts';
import type { ErasedLogs } from '../telemetry/log-query.ts';
import { BodyKeeper } from './body-keeper.ts';
import { bodyStoreOver, sentBodies } from './body-messages.ts';
import { type LogCatalogState, UNFINISHED } from './catalog.ts';
import { ChunkReader } from './chunk-reader.ts';
import { eraseFromStore } from './clickhouse/erase.ts';
import { RemoteLogs, remoteReading } from './clickhouse/remote-logs.ts';
import { shipFile } from './clickhouse/ship.ts';
import { ClickHouse, type LogStoreAddress } from './clickhouse/store.ts';
import { type Engine, openEngine } from './engine.ts';
import { type ErasingParts, eraseRecords, eraseSharedRecords, handRecords } from './erasing.ts';
import { LogExports } from './exports.ts';
import { Keeper } from './keeper.ts';
import { LogSearch } from './log-search.ts';
import { Channel, type KeeperSettings, type Message } from './messages.ts';
import { LogQueries } from './queries.ts';
import { sharedOver } from './shared-messages.ts';
import type { RepeatedBodies } from './tail.ts';

const TICK_MS = 5_000;
const REST_MS = 600_000;
const MOST_RSS_MB = 700;
const MOST_FAILURES = 3;
const LOW_PRIORITY = 10;
const clock = systemClock;

function send(message: Message): void {
  if (process.connected) process.send?.(message);
}

function end(code: number): never {
  if (process.connected) process.disconnect();
  process.exit(code);
}

async function main(): Promise<void> {
  process.once('disconnect', () => process.exit(0));
  // A signal to the terminal's group is for the server, which ends this process in its time.
  process.on('SIGINT', () => undefined);
  process.on('SIGTERM', () => undefined);
  try {
    setPriority(LOW_PRIORITY);
  } catch {
    // Some containers refuse it; the keeper works all the same.
  }
  const settings = JSON.parse(process.argv[2] ?? '{}') as KeeperSettings;
  const {
    node,
    dir,
    spool,
    workers,
    memoryMb,
    threads,
    tickMs = TICK_MS,
    restMs = REST_MS,
    mostRssMb = MOST_RSS_MB,
    cacheBytes,
  } = settings;
  let engine: Engine;
  try {
    engine = await openEngine({ memory: `${memoryMb}MB`, threads, temporary: `${dir}/spill` });
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    process.send?.({ ready: false, why }, () => end(0));
    return;
  }
  let lastUse = clock.now();
  const used = <A extends unknown[], T>(run: (...args: A) => T) => {
    return (...args: A): T => {
      lastUse = clock.now();
      return run(...args);
    };
  };
  const answers: Record<string, (...args: never[]) => unknown> = {};
  const channel = new Channel(send, answers);
  const tell = (level: keyof Log) => (message: string, fields?: object) => {
    const error = fields !== undefined && 'error' in fields ? { error: String(fields.error) } : {};
    void channel.call('log', level, message, { ...fields, ...error }).catch(() => undefined);
  };
  const log = { debug: tell('debug'), info: tell('info'), warn: tell('warn'), error: tell('error') } as Log;
  process.on('message', (message: Message) => void channel.receive(message));
  const { flushRecords, flushBytes, flushMs } = settings;
  const remote =
    settings.remote === true ? new ClickHouse((await channel.call('store')) as LogStoreAddress, log) : null;
  const repeated: RepeatedBodies[] = [];
  const keeper = await Keeper.open({
    node,
    dir,
    spool,
    engine,
    clock,
    log,
    newId: () => uuidv7(clock),
    onRepeated: (bodies) => void repeated.push(...bodies),
    onGap: (records) => void channel.call('gap', records).catch(() => undefined),
    catalog: {
      load: () => channel.call('load') as Promise<LogCatalogState>,
      commit: async (change) => void (await channel.call('commit', change)),
    },
    workers,
    elsewhere: remote && {
      send: shipFile({ engine, store: remote, dir, unfinished: UNFINISHED }),
      isAway: () => remote.why !== null,
    },
    shared: cacheBytes === undefined ? null : { store: sharedOver(channel), cacheBytes },
    ...(flushRecords === undefined ? {} : { flushRecords }),
    ...(flushBytes === undefined ? {} : { flushBytes }),
    ...(flushMs === undefined ? {} : { flushMs }),
  });
  const reading = {
    connect: () => engine.connect(),
    pin: (from: number, to: number) => keeper.pin(from, to),
    damaged: () => keeper.findDamaged(),
    log,
  };
  const local = new LogQueries({ ...reading, clock });
  const settle = () => keeper.settle();
  const queries = remote === null ? local : new RemoteLogs({ store: remote, local, settle, clock, log });
  const exported = remote === null ? reading : remoteReading({ store: remote, settle, log });
  const bodies = new BodyKeeper({ dir, spool, store: bodyStoreOver(channel), clock, log });
  const chunks = {
    store: bodyStoreOver(channel),
    waiting: bodies.waiting.bind(bodies),
    dir,
    ending: UNFINISHED,
    newId: () => uuidv7(clock),
    now: () => clock.now(),
    log,
  };
  const readerOfBodies = async () => {
    await bodies.catchUp();
    return new ChunkReader(chunks);
  };
  const exports = new LogExports({
    ...exported,
    dir,
    ending: UNFINISHED,
    newId: () => uuidv7(clock),
    bodies: readerOfBodies,
  });
  const search = new LogSearch({ store: queries, bodies: readerOfBodies, clock });
  const erasing = {
    dir,
    keeper,
    bodies,
    forgetFeedback: async (...traces: Parameters<ErasingParts['forgetFeedback']>) =>
      Number(await channel.call('forgetFeedback', ...traces)),
  };
  let erasures = 0;
  const erasure = <A extends unknown[], T>(run: (...args: A) => Promise<T>) =>
    used(async (...args: A) => {
      erasures++;
      return run(...args).finally(() => erasures--);
    });
  const rssMb = () => Math.round(process.memoryUsage().rss / 1_048_576);
  Object.assign(answers, {
    page: used(queries.page.bind(queries)),
    groups: used(queries.groups.bind(queries)),
    arrived: used(queries.arrived.bind(queries)),
    count: used(queries.count.bind(queries)),
    find: used(queries.find.bind(queries)),
    search: used(search.search.bind(search)),
    part: used(exports.part.bind(exports)),
    join: used(exports.join.bind(exports)),
    ofLines: used(exports.ofLines.bind(exports)),
    flush: used(async () => {
      await keeper.flush();
      await bodies.flush();
    }),
    body: used(async (...place: readonly [string, string, number]) => sentBodies(await bodies.find(...place))),
    erase: erasure((...of: readonly [string, ErasedLogs]) => eraseRecords(erasing, ...of)),
    hand: erasure(async (erased: ErasedLogs) => {
      await handRecords(erasing, erased);
      if (remote !== null) await settle();
    }),
    eraseForAll: erasure((...of: readonly [string, ErasedLogs]) =>
      remote === null ? eraseSharedRecords(erasing, ...of) : eraseFromStore(erasing, remote, ...of),
    ),
    isClear: used(async (before: number) => (await keeper.isClear()) && (remote === null || remote.isClear(before))),
    forgetBefore: used(async (time: number) => {
      await remote?.forgetBefore(time);
      return keeper.forgetBefore(time);
    }),
    state: () => ({
      ...keeper.state,
      bodies: bodies.state,
      rssMb: rssMb(),
      ...(remote === null ? {} : { away: remote.why }),
    }),
  });
  send({ ready: true, why: '' });
  // Said at once, before there are records.
  void remote?.ready().catch(() => undefined);

  let failures = 0;
  for (;;) {
    await new Promise<void>((resolve) => {
      clock.after(tickMs, resolve);
    });
    try {
      if (remote?.why) void remote.retry().catch(() => undefined);
      const [records, kept] = [await keeper.tick(), await bodies.tick()];
      for (let one = repeated[0]; one !== undefined; one = repeated[0]) {
        await bodies.erase(one.organisationId, one.chunk, new Set([one.id]));
        repeated.shift();
      }
      if (records || kept) lastUse = clock.now();
      failures = 0;
    } catch (error) {
      failures++;
      log.warn('the log keeper could not write, records stay in the journal', { error });
      // Another keeper may have been here: the list is read again by the next one.
      if (failures >= MOST_FAILURES) end(1);
    }
    if (queries.running + search.running + exports.running + erasures > 0) continue;
    const { tail, files, damagedFiles } = keeper.state;
    const waiting = tail + (remote === null ? 0 : files - damagedFiles);
    // One that shares its files tells the others how far they are, and stays.
    const idle = cacheBytes === undefined && waiting === 0 && clock.now() - lastUse >= restMs;
    if (idle || rssMb() > mostRssMb) end(0);
  }
}

// The channel keeps the process alive between two ticks.
await main().catch((error: unknown) => {
  process.stderr.write(`the log keeper ended: ${String(error)}\n`);
  end(1);
});
