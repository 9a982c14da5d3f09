/** The files of a job at its provider: uploaded once each, found again after a crash, removed when the job came to nothing. */
import { SluiceError } from '../../kernel/errors.ts';
import type { FileObject, JobRequest } from '../../operations/training.ts';
import type { AdapterContext, FilesAdapter, TrainingAdapter } from '../../providers/training.ts';
import { isMissing } from '../errors.ts';
import { ownershipOf } from '../object-ownership.ts';
import { addFile } from './file-rows.ts';
import { converted } from './job-dataset.ts';
import { FIELD, filenameOf, noted, progressOf, ROLES, type Role, type Uploaded } from './job-row.ts';
import { type Connection, connect, type JobClaim, type JobServices } from './job-services.ts';

const PURPOSE = 'fine-tune';

/** What a provider makes of a name: some put it into a path, some allow only a few characters. */
const plain = (text: string): string =>
  decoded(text)
    .toLowerCase()
    .replaceAll(/[^a-z0-9]/g, '');

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const tagged = (filename: string): string => plain(filename.replace(/\.jsonl$/, ''));

/** The job's own file among others: its name holds the job's random id. */
const isNamed = (file: FileObject, filename: string): boolean => {
  const wanted = tagged(filename);
  return plain(file.filename).includes(wanted) || plain(file.id).includes(wanted);
};

export function filesOf(adapter: TrainingAdapter): FilesAdapter {
  if (adapter.files !== undefined) return adapter.files;
  throw new SluiceError('unsupported_operation', 'The provider takes no files, so a job cannot be run there.');
}

/** Removes whatever earlier uploads of this name left, finished or not. */
async function removeNamed(files: FilesAdapter, filename: string, context: AdapterContext): Promise<void> {
  await files.abandon?.(filename, context);
  const planned = files.plannedId?.(filename, context);
  const found =
    planned === undefined
      ? (await files.list(null, context)).filter((file) => isNamed(file, filename)).map((file) => file.id)
      : [planned];
  for (const id of found) await removed(files, id, context);
}

async function removed(files: FilesAdapter, id: string, context: AdapterContext): Promise<void> {
  try {
    await files.remove(id, context);
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
}

function owned({ tenant, account }: Connection, services: JobServices, claim: JobClaim) {
  return ownershipOf(services, account, { tenant, createdBy: claim.row.created_by });
}

/**
 * Uploads one file unless that was done before. Its name is noted first, so that a worker that takes over knows what may
 * lie there; what an unfinished upload left is removed before the next try.
 */
async function upload(services: JobServices, claim: JobClaim, role: Role, id: string, job: JobRequest): Promise<void> {
  const known = progressOf(claim.row).uploads?.[role];
  if (known?.id) return;
  const filename = filenameOf(claim.row.id, role);
  const signal = AbortSignal.any([claim.signal, claim.cancelled]);
  const connection = await connect(services, claim.row, { signal, filename });
  const { adapter, context, tenant } = connection;
  const files = filesOf(adapter);
  const { jobs } = adapter;
  if (jobs === undefined) throw new SluiceError('unsupported_operation', 'The provider runs no fine-tuning jobs.');
  if (known === undefined) await note(claim, role, { filename, id: null });
  else await removeNamed(files, filename, context);
  const held = await services.scratch.hold(await converted(services, { tenant, id, role, signal }, job, jobs));
  try {
    const stream = held.read();
    // A reader that stops, or never starts, leaves no open file behind.
    const stop = () => stream.destroy();
    signal.addEventListener('abort', stop, { once: true });
    let file: FileObject;
    try {
      file = await files.upload(
        { filename, purpose: PURPOSE, contentType: 'application/jsonl', stream, bytes: held.bytes },
        context,
      );
    } finally {
      signal.removeEventListener('abort', stop);
      stream.destroy();
    }
    try {
      await owned(connection, services, claim)?.claim('file', [file.id]);
      await note(claim, role, { filename, id: file.id });
    } catch (error) {
      // A worker that has taken over may have looked before this file was there, and does not know its id. Where the id
      // follows from the name, the file is by now the other's.
      if (claim.signal.aborted && !plain(file.id).includes(tagged(filename))) await forget(services, claim, file.id);
      throw error;
    }
  } finally {
    await held.close();
  }
}

async function note(claim: JobClaim, role: Role, uploaded: Uploaded): Promise<void> {
  await claim.write(async (_tx, row) => noted(row, { uploads: { ...progressOf(row).uploads, [role]: uploaded } }));
}

/** Best effort of a worker that has lost its row. */
async function forget(services: JobServices, claim: JobClaim, id: string): Promise<void> {
  try {
    const { adapter, context } = await connect(services, claim.row);
    await removed(filesOf(adapter), id, context);
  } catch (error) {
    services.log.warn('a file of a job could not be removed at the provider', {
      job: claim.row.id,
      error: String(error),
    });
  }
}

/** Ids of the job's files at the provider, uploading what is not there yet. */
export async function uploadAll(services: JobServices, claim: JobClaim, job: JobRequest): Promise<void> {
  for (const role of ROLES) {
    const id = job[FIELD[role]];
    if (id !== null) await upload(services, claim, role, id, job);
  }
}

/** Removes all the job has uploaded. */
export async function removeAll(services: JobServices, claim: JobClaim): Promise<void> {
  for (const role of ROLES) {
    const known = progressOf(claim.row).uploads?.[role];
    if (known === undefined) continue;
    const connection = await connect(services, claim.row, { signal: claim.signal, filename: known.filename });
    const { adapter, context } = connection;
    const files = filesOf(adapter);
    if (known.id === null) await removeNamed(files, known.filename, context);
    else {
      await removed(files, known.id, context);
      await owned(connection, services, claim)?.forget('file', known.id);
    }
    await claim.write(async (_tx, row) => {
      const { [role]: _gone, ...rest } = progressOf(row).uploads ?? {};
      return noted(row, { uploads: rest });
    });
  }
}

/** Copies a result file of the provider into Sluice's own files under `id`, unless it is there. */
export async function copyResult(
  services: JobServices,
  claim: JobClaim,
  { adapter, context, tenant }: Connection,
  source: string,
  id: string,
): Promise<void> {
  const files = filesOf(adapter);
  const there = await services.tables.read(tenant, (tx) => tx.find('files', { id }));
  if (there !== undefined) return;
  // Only for the name it has there.
  const described = await files.retrieve(source, context).catch(() => null);
  const content = await files.content(source, context);
  const stat = await services.blobs.put(tenant, id, content.stream);
  if (content.bytes !== null && content.bytes !== stat.bytes) {
    throw new SluiceError('upstream_cut', 'The provider ended a result file before it was complete.');
  }
  await claim.write(async (tx, row, now) => {
    if ((await tx.find('files', { id })) === undefined) {
      await addFile(tx, {
        id,
        organisation_id: row.organisation_id,
        workspace_id: row.workspace_id,
        filename: described?.filename ?? `${row.id}-result`,
        purpose: 'fine-tune-results',
        content_type: content.contentType,
        bytes: stat.bytes,
        status: 'processed',
        status_details: null,
        created_by: row.created_by,
        created_at: now,
      });
    }
    return {};
  });
}
