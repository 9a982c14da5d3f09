import { Readable } from 'node:stream';
import { type FileObject, UPLOAD_PURPOSES } from '../../operations/training.ts';
import type { FileContent, FilesAdapter } from '../../providers/training.ts';
import type { TenantContext } from '../../store/ports.ts';
import { checkBuckets } from '../buckets.ts';
import { faultOf } from './dataset.ts';
import { type JobData, jobOfResult, metricsCsv, resultFileId, statusAt } from './life.ts';
import { MARK, missingObject, type Objects, type Stored, seconds, shortId } from './objects.ts';
import type { SandboxParts } from './parts.ts';

export interface FileData {
  readonly filename: string;
  readonly purpose: string;
  readonly contentType: string;
  readonly bytes: number;
  /** Why the file cannot be used; absent when it can. */
  readonly fault?: string;
}

export interface FileParts extends Pick<SandboxParts, 'blobs' | 'clock' | 'log'> {
  readonly tenant: TenantContext;
  readonly files: Objects<FileData>;
  readonly jobs: Objects<JobData>;
}

const fileObject = (file: Stored<FileData>): FileObject => ({
  id: file.id,
  object: 'file',
  bytes: file.data.bytes,
  created_at: seconds(file.createdAt),
  filename: file.data.filename,
  purpose: file.data.purpose,
  status: file.data.fault === undefined ? 'processed' : 'error',
  status_details: file.data.fault ?? null,
  ...MARK,
});

/** The metrics of a succeeded job: made when they are read. */
function resultObject(job: Stored<JobData>): FileObject {
  return {
    id: resultFileId(job),
    object: 'file',
    bytes: Buffer.byteLength(metricsCsv(job)),
    created_at: seconds(job.createdAt + job.data.trainMs),
    filename: 'step_metrics.csv',
    purpose: 'fine-tune-results',
    status: 'processed',
    status_details: null,
    ...MARK,
  };
}

export function sandboxFiles(parts: FileParts): FilesAdapter {
  const { blobs, clock, log, tenant, files, jobs } = parts;

  async function result(id: string, now: number): Promise<Stored<JobData> | null> {
    const jobId = jobOfResult(id);
    if (jobId === null) return null;
    const job = await jobs.find(jobId);
    if (job === null || job.data.resultRemoved || statusAt(job, now) !== 'succeeded') throw missingObject('file', id);
    return job;
  }

  async function faultIn(id: string): Promise<string | null> {
    const stream = await blobs.get(tenant, id);
    if (stream === null) throw missingObject('file', id);
    const found = await faultOf(stream, { clock, log, name: id, owner: tenant.organisationId });
    return found === null ? null : `The file cannot be used: ${found}`;
  }

  return {
    purposes: UPLOAD_PURPOSES,
    objectUris: false,

    async upload(file, context) {
      checkBuckets(context.header);
      const { filename, purpose, contentType } = file;
      const id = `file-${shortId(context, `${purpose} ${filename}`)}`;
      const { bytes } = await blobs.put(tenant, id, file.stream);
      const fault = purpose === 'fine-tune' ? await faultIn(id) : null;
      const data: FileData = { filename, purpose, contentType, bytes, ...(fault === null ? null : { fault }) };
      await files.add(id, data, context.now());
      return fileObject(
        await files.change(id, (found) => (found.data.bytes === bytes ? found.data : { ...found.data, ...data })),
      );
    },

    async list(purpose, context) {
      const own = (await files.all()).map(fileObject);
      const results = (await jobs.all())
        .filter((job) => !job.data.resultRemoved && statusAt(job, context.now()) === 'succeeded')
        .map(resultObject);
      return [...own, ...results]
        .filter((file) => purpose === null || file.purpose === purpose)
        .sort((a, b) => b.created_at - a.created_at);
    },

    async retrieve(id, context) {
      const job = await result(id, context.now());
      return job === null ? fileObject(await files.get(id)) : resultObject(job);
    },

    async remove(id, context) {
      const job = await result(id, context.now());
      if (job !== null) {
        await jobs.change(job.id, (found) => ({ ...found.data, resultRemoved: true }));
        return;
      }
      // The row first: without it nobody finds the bytes, whatever happens before they are gone as well.
      if (!(await files.remove(id))) throw missingObject('file', id);
      await blobs.delete(tenant, id);
    },

    async content(id, context): Promise<FileContent> {
      const job = await result(id, context.now());
      if (job !== null) {
        const text = Buffer.from(metricsCsv(job));
        return { contentType: 'text/csv', bytes: text.length, stream: Readable.from([text]) };
      }
      const file = await files.get(id);
      const stream = await blobs.get(tenant, id);
      if (stream === null) throw missingObject('file', id);
      return { contentType: file.data.contentType, bytes: file.data.bytes, stream };
    },
  };
}
