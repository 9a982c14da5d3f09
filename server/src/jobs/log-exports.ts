/**
 * Writes the files of exports, part by part: a part is whole in the blob store before it is noted, and what is noted is
 * never written again. So a run that is killed goes on behind its last part, and its file is the same.
 */
import type { Readable } from 'node:stream';
import { systemTenant } from '../auth/tenant.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Log } from '../kernel/log.ts';
import { joinedKey, partKey, spareKeys } from '../resources/logs/exports/blob-keys.ts';
import { type ChosenRows, chosenRows } from '../resources/logs/exports/filters.ts';
import { presentHolder } from '../resources/logs/exports/holder.ts';
import { checkedTotal } from '../resources/logs/exports/index.ts';
import { checkFields } from '../resources/logs/exports/rights.ts';
import { type Reach, reachOf } from '../resources/logs/reach.ts';
import type { Services } from '../resources/services.ts';
import { bodySettings } from '../resources/settings/settings.ts';
import type { Blobs, Tables, TenantTx } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import {
  type ExportBodies,
  type ExportFieldId,
  type ExportFile,
  type LogExporter,
  wantsBodies,
} from '../telemetry/log-export.ts';
import type { LogCoverage, LogSelection, LogStore } from '../telemetry/log-query.ts';
import type { Claim } from './claim.ts';
import type { Turn } from './scheduler.ts';

export interface ExportOptions {
  readonly tables: Tables;
  readonly blobs: Blobs;
  readonly exporter: LogExporter;
  readonly store: LogStore;
  /** With the service of the kept logs, whose days are part of what may be read. */
  readonly services: Services;
  readonly clock: Clock;
  readonly log: Log;
  /** What paths of requests are behind, without a slash at its end. */
  readonly origin: () => string;
  /** Rows of an export with `all`. */
  readonly maxRows: number;
  /** Days that bodies stay, unless the organisation or workspace says fewer. */
  readonly bodiesDays: number;
  /** Rows of a part. */
  readonly partRows?: number;
  /** Bytes of a part with bodies. */
  readonly partBytes?: number;
  /** Between two looks of an export that waits for another one of its organisation. */
  readonly waitMs?: number;
}

type Export = Row<'log_exports'>;

const PART_ROWS = 50_000;
const PART_BYTES = 64 << 20;
const WAIT_MS = 2_000;
/** A node whose records are older than this is away, and answers name it. */
const BEHIND_MS = 15_000;
const MOST_FAILURES = 8;
const DAY_MS = 86_400_000;
const KEEP_FILE_MS = 7 * DAY_MS;
const KEEP_EXPORT_MS = 90 * DAY_MS;
const PAGE = 100;

const AGAIN: Turn = { again: 0 };

/** What is wrong with the export itself, and will be at the next try. */
const FINAL: ReadonlySet<string> = new Set(['forbidden', 'validation', 'not_found', 'unknown_reference']);

/** One turn at an export that is due, or whose file is to go. */
export async function exportTurn(options: ExportOptions, claim: Claim<'log_exports'>): Promise<Turn> {
  const { row } = claim;
  if (row.status !== 'in_progress') return tidyUp(options, claim);
  if (await isBehindAnother(options.tables, row)) return { again: options.waitMs ?? WAIT_MS };
  try {
    const chosen = await chosenNow(options, row);
    if (row.step === 'begin') return await begin(options, claim, chosen);
    if (row.parts.length === 0 || row.place !== null) return await writePart(options, claim, chosen);
    return await finish(options, claim);
  } catch (error) {
    if (claim.signal.aborted) throw error;
    if (error instanceof SluiceError && FINAL.has(error.kind)) return fail(claim, error);
    if (row.failures + 1 < MOST_FAILURES) throw error;
    options.log.error('an export of logs failed', { id: row.id, error });
    return fail(claim, new SluiceError('unavailable', 'The file could not be written. Start the export again later.'));
  }
}

/** Of an organisation's exports the one that was started first is written; the others wait. */
async function isBehindAnother(tables: Tables, { id, organisation_id }: Export): Promise<boolean> {
  const [first] = await tables.systemRead((tx) =>
    tx.list('log_exports', {
      where: { organisation_id, status: 'in_progress' },
      orderBy: [
        ['started_at', 'asc'],
        ['id', 'asc'],
      ],
      limit: 1,
    }),
  );
  return first !== undefined && first.id !== id;
}

/** The rows that may be exported now: rights, settings and denied fields are read anew before each part. */
function chosenNow(options: ExportOptions, row: Export): Promise<ChosenNow> {
  const { tables, services, clock, maxRows } = options;
  const { organisation_id, workspace_id, user_id, covers } = row;
  return tables.read(systemTenant(organisation_id), async (tx) => {
    const now = await tx.now();
    const holder = { userId: user_id, keyId: user_id === null ? row.created_by : null };
    const principal = await presentHolder(tx, holder, now);
    const reach = await reachOf(
      {
        principal,
        tx,
        clock,
        tenant: systemTenant(organisation_id, workspace_id),
        service: (wanted) => wanted.find(services),
      },
      'logs.view',
    );
    await checkFields(tx, { ...reach, seesBodies: principal.seesBodies }, workspace_id, row.requested_data);
    const chosen = await chosenRows({ tx }, reach, row, { now, maxRows });
    const bodies = wantsBodies(row.requested_data) ? await bodiesOf(options, tx, row, reach, now) : null;
    return covers === null
      ? { ...chosen, bodies }
      : { ...chosen, bodies, selection: { ...chosen.selection, ...covers } };
  });
}

interface ChosenNow extends ChosenRows {
  readonly bodies: ExportBodies | null;
}

/** What of bodies may be in the file now. */
async function bodiesOf(
  { bodiesDays, partBytes = PART_BYTES }: ExportOptions,
  tx: Pick<TenantTx, 'find' | 'organisation'>,
  { workspace_id: id }: Export,
  { sight }: Reach,
  now: number,
): Promise<ExportBodies> {
  const { days } = bodySettings(await tx.organisation(), (await tx.find('workspaces', { id })) ?? null);
  const since = now - Math.min(days ?? bodiesDays, bodiesDays) * DAY_MS;
  return { since, noMetadata: sight.noMetadata !== null, partBytes };
}

/** Pins the range of time, and counts. */
async function begin(options: ExportOptions, claim: Claim<'log_exports'>, chosen: ChosenRows): Promise<Turn> {
  const { selection, skip, limit } = chosen;
  if (await othersAreBehind(options.store, selection, claim.row.started_at))
    return { again: options.waitMs ?? WAIT_MS };
  const counted = await options.store.count(selection, skip + limit);
  const total = checkedTotal(counted, chosen, claim.row.whole);
  const covers = { from: selection.from, to: selection.to };
  await note(claim, async () => ({ step: 'parts', covers, total }));
  return AGAIN;
}

/** Whether another node has records of before the start that it gives to all in a moment. One that is away is not waited for. */
async function othersAreBehind(store: LogStore, selection: LogSelection, startedAt: number): Promise<boolean> {
  const until = Math.min(selection.to, startedAt);
  const { completeTo } = await store.page(selection, { columns: ['id'], order: 'newest', limit: 1, behind: null });
  return completeTo < until && completeTo >= until - BEHIND_MS;
}

async function writePart(options: ExportOptions, claim: Claim<'log_exports'>, chosen: ChosenNow): Promise<Turn> {
  const { exporter, origin, partRows = PART_ROWS } = options;
  const { row } = claim;
  const { parts, format, bom, place } = row;
  const written = parts.reduce((sum, { rows }) => sum + rows, 0);
  const part = await exporter.part(chosen.selection, {
    format,
    fields: row.requested_data as ExportFieldId[],
    origin: origin(),
    bom,
    behind: place,
    skip: place === null ? chosen.skip : 0,
    limit: Math.min(partRows, chosen.limit - written),
    bodies: chosen.bodies,
  });
  const { rows, bytes, sha256, next } = part;
  await store(options, claim, part, partKey(row, parts.length));
  const all = written + rows;
  const more = next !== null && all < chosen.limit;
  await note(claim, async () => ({
    parts: [...parts, { rows, bytes, sha256 }],
    place: more ? next : null,
    incomplete: merged(row.incomplete, part.incomplete),
  }));
  return AGAIN;
}

/** Parquet has what its file contains at its end, so parts of it are made one file; others are read one after the other. */
async function finish(options: ExportOptions, claim: Claim<'log_exports'>): Promise<Turn> {
  const { row } = claim;
  let { parts } = row;
  const rows = parts.reduce((sum, part) => sum + part.rows, 0);
  if (row.format === 'parquet' && parts.length > 1) {
    const file = await options.exporter.join(streamsOf(options.blobs, row));
    await store(options, claim, file, joinedKey(row));
    parts = [{ rows, bytes: file.bytes, sha256: file.sha256, joined: parts.length }];
  }
  await note(claim, async (now) => ({ status: 'success', parts, total: rows, expires_at: now + KEEP_FILE_MS }));
  return AGAIN;
}

async function* streamsOf(blobs: Blobs, row: Export): AsyncGenerator<Readable> {
  const tenant = systemTenant(row.organisation_id, row.workspace_id);
  for (const at of row.parts.keys()) {
    const stream = await blobs.get(tenant, partKey(row, at));
    if (stream === null) throw new SluiceError('validation', 'A part of the file is gone. Start the export again.');
    yield stream;
  }
}

/** Takes a file from this machine into the blob store. */
async function store(
  { blobs }: ExportOptions,
  { row, signal }: Claim<'log_exports'>,
  file: ExportFile,
  key: string,
): Promise<void> {
  const body = file.read();
  const leave = () => body.destroy(signal.reason as Error);
  signal.addEventListener('abort', leave, { once: true });
  try {
    signal.throwIfAborted();
    const { bytes } = await blobs.put(systemTenant(row.organisation_id, row.workspace_id), key, body);
    if (bytes !== file.bytes) throw new Error(`a part of an export has ${bytes} bytes in place of ${file.bytes}`);
  } finally {
    signal.removeEventListener('abort', leave);
    body.destroy();
    await file.remove();
  }
}

/** Notes progress of this run: nothing where the export was cancelled meanwhile. */
function note(claim: Claim<'log_exports'>, change: (now: number) => Promise<Partial<Export>>): Promise<Export> {
  const { runs } = claim.row;
  return claim.write(async (_tx, row, now) => {
    if (row.status !== 'in_progress' || row.runs !== runs) return {};
    return { ...(await change(now)), last_updated_at: now };
  });
}

async function fail(claim: Claim<'log_exports'>, { kind, message, param }: SluiceError): Promise<Turn> {
  await note(claim, async () => ({ status: 'failed', error: { code: kind, message, param } }));
  return AGAIN;
}

/** The end of a run: what its file does not need goes. */
async function tidyUp({ blobs }: Pick<ExportOptions, 'blobs'>, claim: Claim<'log_exports'>): Promise<Turn> {
  const { row } = claim;
  if (row.status === 'success') {
    if (row.parts[0]?.joined !== undefined) await removeBlobs(blobs, row, spareKeys(row));
    return 'done';
  }
  await removeBlobs(blobs, row, [...spareKeys(row), joinedKey(row)]);
  await claim.write(async (_tx, now) => (now.runs === row.runs ? { parts: [], place: null } : {}));
  return 'done';
}

async function removeBlobs(blobs: Blobs, row: Export, keys: readonly string[]): Promise<void> {
  const tenant = systemTenant(row.organisation_id, row.workspace_id);
  for (const key of keys) await blobs.delete(tenant, key);
}

/**
 * Removes files 7 days after they were made, those of workspaces that are gone, and exports 90 days after they were
 * created. For a job that runs now and then on one node.
 */
export async function sweepExports(
  { tables, blobs }: Pick<ExportOptions, 'tables' | 'blobs'>,
  signal?: AbortSignal,
): Promise<void> {
  const now = await tables.now();
  // What a worker holds, or is about to take, is not touched.
  const done = { step: 'done' } as const;
  for (let more = true; more && signal?.aborted !== true; ) {
    const rows = await tables.systemRead((tx) =>
      tx.list('log_exports', {
        where: { ...done, expires_at: { lte: now } },
        orderBy: [['expires_at', 'asc']],
        limit: PAGE,
      }),
    );
    for (const row of rows) {
      await removeBlobs(blobs, row, [...spareKeys(row), joinedKey(row)]);
      const { id, expires_at } = row;
      await tables.systemWrite(async (tx) => {
        if (expires_at === 0) await tx.remove('log_exports', { id, ...done });
        else await tx.update('log_exports', { id, expires_at, ...done }, { expires_at: null, parts: [] });
      });
    }
    more = rows.length === PAGE;
  }
  for (let more = true; more && signal?.aborted !== true; ) {
    const rows = await tables.systemRead((tx) =>
      tx.list('log_exports', {
        where: { ...done, created_at: { lt: now - KEEP_EXPORT_MS } },
        orderBy: [['created_at', 'asc']],
        limit: PAGE,
      }),
    );
    for (const row of rows) {
      await removeBlobs(blobs, row, [...spareKeys(row), joinedKey(row)]);
      await tables.systemWrite((tx) => tx.remove('log_exports', { id: row.id, ...done }));
    }
    more = rows.length === PAGE;
  }
}

function merged(known: Export['incomplete'], more: LogCoverage['incomplete']): Export['incomplete'] {
  const fresh = more.filter(({ from, to }) => !known.some((one) => one.from === from && one.to === to));
  return [...known, ...fresh];
}
