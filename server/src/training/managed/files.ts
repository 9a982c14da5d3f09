/**
 * Files that Sluice keeps itself: bytes in the blob store under the file's id, one row beside them. The row is
 * written after the blob is whole and removed before it, so a row never names bytes that are not there; what a killed
 * process leaves is a blob without a row, and `sweep` removes it.
 *
 * The content is checked in the background right after the upload, not when a job is made: the caller sees `processed`
 * or `error` within seconds, where a job would fail minutes later. Rules of one provider are a job's to check.
 */
import type { Readable } from 'node:stream';
import { systemTenant, tenantOf } from '../../auth/tenant.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { uuidv7 } from '../../kernel/id.ts';
import { reasonOf, Slots } from '../../kernel/slots.ts';
import type { FileObject } from '../../operations/training.ts';
import type { ObjectAnswer, ObjectCall } from '../../runtime/object-call.ts';
import type { TenantContext, Where } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { json } from '../answer.ts';
import {
  type DatasetReport,
  isValid,
  problemsText,
  type RowKind,
  TRAINING_KINDS,
  validateDataset,
} from '../datasets/index.ts';
import { invalid } from '../fields.ts';
import { notFound } from '../object-ownership.ts';
import { queryOf, readLimit, unknownAfter } from '../paging.ts';
import type { TrainingServices } from '../services.ts';
import { openUpload, sizeAhead } from '../upload.ts';
import { batchOfOutput, refuseUnjudged } from './batch-row.ts';
import { contentDisposition, type Range, readRange } from './content-headers.ts';
import { addFile, filesQueue, removeFile } from './file-rows.ts';
import { FileSpace, type Room } from './file-space.ts';
import type { ManagedFilesPort } from './ports.ts';

/** What keeping files needs; `TrainingServices` fits. */
export type FileServices = Pick<
  TrainingServices,
  'tables' | 'blobs' | 'clock' | 'log' | 'maxUploadBytes' | 'maxBatchBytes' | 'filesQuota'
>;

export type FileRow = Row<'files'>;

/** A file that the product itself writes, for example the output of a batch. */
export interface NewFile {
  readonly filename: string;
  readonly purpose: string;
  readonly contentType: string;
  /** API key; null for none. */
  readonly createdBy: string | null;
}

export interface OpenedFile {
  readonly row: FileRow;
  readonly stream: Readable;
}

/** Ids of files Sluice keeps; also their keys in the blob store. */
const FILE_PREFIX = 'gw_file_';

const MAX_LIST = 10_000;
/** Rows of the content that are checked, by purpose; other purposes hold anything. */
const CHECKED: ReadonlyMap<string, readonly RowKind[]> = new Map([
  ['fine-tune', TRAINING_KINDS],
  ['batch', ['batch']],
]);
/** Longer than any upload or batch lasts between its blob and its row. */
const ORPHAN_MS = 24 * 60 * 60_000;
/** A check that did not end by then was lost with its process. */
const LOST_CHECK_MS = 15 * 60_000;
const SWEEP_ROWS = 200;
/** Files that are checked at the same time. */
const CHECKS = 2;

export function fileObject(row: FileRow): FileObject {
  return {
    id: row.id,
    object: 'file',
    bytes: row.bytes,
    created_at: Math.floor(row.created_at / 1000),
    filename: row.filename,
    purpose: row.purpose,
    status: row.status,
    status_details: row.status_details,
  };
}

const tenantOfCall = (call: ObjectCall): TenantContext => tenantOf(call.principal, call.snapshot.workspaceId);
const tenantOfRow = (row: FileRow): TenantContext => systemTenant(row.organisation_id, row.workspace_id);

export class ManagedFiles implements ManagedFilesPort {
  readonly #services: FileServices;
  readonly #stopped = new AbortController();
  /** Checks under way or waiting, by file. */
  readonly #checks = new Map<string, Promise<void>>();
  /** A check that waits must not hold a connection of the blob store open meanwhile. */
  readonly #turns = new Slots('checks of files', CHECKS);

  readonly #space: FileSpace;

  constructor(services: FileServices) {
    this.#services = services;
    this.#space = new FileSpace(services.tables, services.filesQuota ?? 0);
  }

  async upload(call: ObjectCall): Promise<ObjectAnswer> {
    queryOf(call.query, []);
    const { upload: body } = call;
    if (body === null) throw new SluiceError('malformed_call', 'Send the file as multipart/form-data.');
    // Streams into the store as it comes: the purpose may follow the file in the form.
    const upload = await openUpload(
      body,
      call.header('content-type') ?? '',
      this.#services,
      call.header('x-gateway-file-purpose') ?? null,
      sizeAhead(call, this.#services),
    );
    // The file's stream ends with the body, and not while it waits for it.
    const leave = () => body.destroy(reasonOf(call.signal));
    // An error after the store has let go of the stream must not end the process.
    upload.stream.on('error', () => {});
    call.signal.addEventListener('abort', leave, { once: true });
    if (call.signal.aborted) leave();
    let room: Room | null = null;
    try {
      room = await this.#space.open(call.principal.organisationId);
      const stream = room.limited(upload.stream);
      const row = await this.#store(tenantOfCall(call), stream, room, () => {
        if (call.signal.aborted) throw reasonOf(call.signal);
        const purpose = upload.purpose();
        if (!upload.complete() || purpose === null) {
          throw upload.failed() ?? new SluiceError('malformed_call', 'The upload ended before the whole file came.');
        }
        const { filename, contentType } = upload;
        return { filename, purpose, contentType, createdBy: call.principal.keyId, status: 'uploaded' };
      });
      this.#check(row);
      return json(fileObject(row));
    } catch (error) {
      throw upload.failed() ?? (call.signal.aborted ? reasonOf(call.signal) : error);
    } finally {
      room?.close();
      call.signal.removeEventListener('abort', leave);
      body.destroy();
      upload.stream.destroy();
    }
  }

  async list(call: ObjectCall): Promise<ObjectAnswer> {
    const { purpose, after, limit, order = 'desc' } = queryOf(call.query, ['purpose', 'after', 'limit', 'order']);
    const most = limit === undefined ? MAX_LIST : readLimit(limit, MAX_LIST);
    if (order !== 'asc' && order !== 'desc') throw invalid('order', 'order must be asc or desc.');
    const rows = await this.#services.tables.read(tenantOfCall(call), async (tx) => {
      const last = after === undefined ? undefined : await tx.find('files', { id: after });
      if (after !== undefined && last === undefined) throw unknownAfter();
      return tx.list('files', {
        where: purpose === undefined ? {} : { purpose },
        ...(last === undefined ? {} : { anyOf: beyond(last, order) }),
        orderBy: [
          ['created_at', order],
          ['id', order],
        ],
        limit: most + 1,
      });
    });
    return json({ object: 'list', data: rows.slice(0, most).map(fileObject), has_more: rows.length > most });
  }

  async retrieve(call: ObjectCall): Promise<ObjectAnswer> {
    queryOf(call.query, []);
    return json(fileObject(await this.#find(tenantOfCall(call), call.params.file_id ?? '')));
  }

  async remove(call: ObjectCall): Promise<ObjectAnswer> {
    queryOf(call.query, []);
    const tenant = tenantOfCall(call);
    const id = call.params.file_id ?? '';
    const queue = filesQueue(tenant.organisationId);
    const removed = await this.#services.tables.write(tenant, (tx) => removeFile(tx, id), { queue });
    if (!removed) throw notFound('file');
    await this.#discard(tenant, id);
    return json({ id, object: 'file', deleted: true });
  }

  async content(call: ObjectCall): Promise<ObjectAnswer> {
    queryOf(call.query, []);
    const tenant = tenantOfCall(call);
    const row = await this.#find(tenant, call.params.file_id ?? '');
    if (call.unjudged != null && row.purpose === 'batch_output') await this.#refuseUnjudged(call, tenant, row);
    const headers = [
      'content-type',
      row.content_type,
      'content-disposition',
      contentDisposition(row.filename),
      // The type is what the uploader called it.
      'x-content-type-options',
      'nosniff',
      'accept-ranges',
      'bytes',
    ];
    const range = readRange(call.header('range'), row.bytes);
    if (range === 'unsatisfiable') {
      return { status: 416, headers: ['content-range', `bytes */${row.bytes}`], body: Buffer.alloc(0) };
    }
    const stream = await this.#bytes(tenant, row, range ?? undefined);
    if (range === null) return { status: 200, headers, body: stream, length: row.bytes };
    const { start, end } = range;
    headers.push('content-range', `bytes ${start}-${end}/${row.bytes}`);
    return { status: 206, headers, body: stream, length: end - start + 1 };
  }

  async #refuseUnjudged(call: ObjectCall, tenant: TenantContext, { filename }: FileRow): Promise<void> {
    const id = batchOfOutput(filename);
    const { tables } = this.#services;
    refuseUnjudged(call, id === null ? undefined : await tables.read(tenant, (tx) => tx.find('batches', { id })));
  }

  /** A file of the workspace and its bytes; consume or destroy the stream. 404 for any other id. */
  async open(tenant: TenantContext, id: string): Promise<OpenedFile> {
    const row = await this.#find(tenant, id);
    return { row, stream: await this.#bytes(tenant, row) };
  }

  /** Stores a file that the product wrote; it is `processed` at once. The tenant must be bound to a workspace. */
  save(tenant: TenantContext, file: NewFile, stream: Readable): Promise<FileRow> {
    return this.#store(tenant, stream, null, () => ({ ...file, status: 'processed' }));
  }

  /**
   * Removes blobs that no row names, and repeats the checks that were lost with their process. For a job that runs now
   * and then on one node.
   */
  async sweep(signal: AbortSignal): Promise<{ readonly removed: number; readonly checked: number }> {
    const { tables, blobs, clock } = this.#services;
    const lost = await tables.systemRead((tx) =>
      tx.list('files', {
        where: { status: 'uploaded', created_at: { lt: clock.now() - LOST_CHECK_MS } },
        orderBy: [['created_at', 'asc']],
        limit: SWEEP_ROWS,
      }),
    );
    for (const row of lost) {
      signal.throwIfAborted();
      await this.#check(row);
    }
    let removed = 0;
    let group: { organisationId: string; key: string }[] = [];
    const removeGroup = async () => {
      const keys = group.map(({ key }) => key);
      const rows = await tables.systemRead((tx) => tx.list('files', { where: { id: { in: keys } } }));
      const named = new Set(rows.map((row) => row.id));
      for (const { organisationId, key } of group) {
        if (!named.has(key) && (await blobs.delete(systemTenant(organisationId), key))) removed += 1;
      }
      group = [];
    };
    for await (const { organisationId, key, createdAt } of blobs.all()) {
      signal.throwIfAborted();
      if (!key.startsWith(FILE_PREFIX) || createdAt > clock.now() - ORPHAN_MS) continue;
      group.push({ organisationId, key });
      if (group.length === SWEEP_ROWS) await removeGroup();
    }
    if (group.length > 0) await removeGroup();
    return { removed, checked: lost.length };
  }

  /** Resolves when no check runs any more. */
  async settled(): Promise<void> {
    while (this.#checks.size > 0) await Promise.all(this.#checks.values());
  }

  /** Ends the checks; their files stay `uploaded` until a sweep. */
  async close(): Promise<void> {
    this.#stopped.abort(new SluiceError('out_of_service', 'Sluice is shutting down.'));
    await this.settled();
  }

  async #find(tenant: TenantContext, id: string): Promise<FileRow> {
    const row = await this.#services.tables.read(tenant, (tx) => tx.find('files', { id }));
    if (row === undefined) throw notFound('file');
    return row;
  }

  async #bytes(tenant: TenantContext, row: FileRow, range?: Range): Promise<Readable> {
    const stream = await this.#services.blobs.get(tenant, row.id, range);
    if (stream === null) throw notFound('file');
    return stream;
  }

  /** `described` is asked when the blob is whole; when it throws, or the row cannot be written, the blob goes again. */
  async #store(
    tenant: TenantContext,
    stream: Readable,
    room: Room | null,
    described: () => NewFile & { readonly status: 'uploaded' | 'processed' },
  ): Promise<FileRow> {
    const { tables, blobs, clock } = this.#services;
    const { organisationId, workspaceId } = tenant;
    if (workspaceId === null) throw new SluiceError('internal', 'Files belong to a workspace.');
    const id = `${FILE_PREFIX}${uuidv7(clock)}`;
    const { bytes } = await blobs.put(tenant, id, stream);
    try {
      const { filename, purpose, contentType, createdBy, status } = described();
      const row: FileRow = {
        id,
        organisation_id: organisationId,
        workspace_id: workspaceId,
        filename,
        purpose,
        content_type: contentType,
        bytes,
        status,
        status_details: null,
        created_by: createdBy,
        created_at: clock.now(),
      };
      // The system's: the quota is of all workspaces of the organisation.
      await tables.systemWrite(
        async (tx) => {
          await room?.take(tx, bytes);
          await addFile(tx, row);
        },
        { queue: filesQueue(organisationId) },
      );
      return row;
    } catch (error) {
      await this.#discard(tenant, id);
      throw error;
    }
  }

  /** A blob that stays behind is swept later. */
  async #discard(tenant: TenantContext, id: string): Promise<void> {
    await this.#services.blobs.delete(tenant, id).catch((error: unknown) => {
      this.#services.log.warn('a file without a row could not be removed yet', { file: id, error: String(error) });
    });
  }

  /** Reads the content once and settles the status; a file that was deleted meanwhile is left alone. Never rejects. */
  #check(row: FileRow): Promise<void> {
    const running = this.#checks.get(row.id);
    if (running !== undefined) return running;
    const { tables, log } = this.#services;
    const run = async () => {
      let release = () => {};
      try {
        release = await this.#turns.take(row.organisation_id, this.#stopped.signal);
        const details = await this.#faultsOf(row);
        const status = details === null ? 'processed' : 'error';
        // From `uploaded` only: another node may have been faster, and there is no way back.
        await tables.write(tenantOfRow(row), (tx) =>
          tx.update('files', { id: row.id, status: 'uploaded' }, { status, status_details: details }),
        );
      } catch (error) {
        if (!this.#stopped.signal.aborted)
          log.warn('a file could not be checked yet', { file: row.id, error: String(error) });
      } finally {
        release();
      }
    };
    const check = run().finally(() => this.#checks.delete(row.id));
    this.#checks.set(row.id, check);
    return check;
  }

  /** What is wrong with the content, naming lines and nothing of what they hold; null when it can be used. */
  async #faultsOf(row: FileRow): Promise<string | null> {
    const kinds = CHECKED.get(row.purpose);
    if (kinds === undefined) return null;
    const { blobs, clock, log } = this.#services;
    const { signal } = this.#stopped;
    const stream = await blobs.get(tenantOfRow(row), row.id);
    if (stream === null) return 'The content of the file is missing.';
    let report: DatasetReport;
    try {
      report = await validateDataset(stream, { kinds, clock, log, signal, name: row.id, owner: row.organisation_id });
    } catch (error) {
      // The content is at fault, and would be again.
      if (error instanceof SluiceError && error.reason === 'invalid_dataset_row') return error.message;
      throw error;
    }
    if (isValid(report)) return null;
    return `${report.valid} of ${report.rows} rows are valid: ${problemsText(report)}.`;
  }
}

/** Rows behind `last` in the order of a list. */
function beyond(last: FileRow, order: 'asc' | 'desc'): Where<'files'>[] {
  const { created_at, id } = last;
  return order === 'asc'
    ? [{ created_at: { gt: created_at } }, { created_at, id: { gt: id } }]
    : [{ created_at: { lt: created_at } }, { created_at, id: { lt: id } }];
}
